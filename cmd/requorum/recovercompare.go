package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/rebuild"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// compare rebuilds what was rebuilt once more, from another member's database, where
// there is one: a database of etcd has no checksums, so that damage inside a value
// shows only beside another one. Where they differ nothing is built, unless what was
// chosen is what most of them came to, or was asked for by name.
func (l *localRecovery) compare(ctx context.Context, req rebuild.Request, image *walreplay.Rebuilt) (err error) {
	if l.compared, err = rebuild.Compare(ctx, req, image, l.plan.NameOf); err != nil {
		return fmt.Errorf("rebuild the state a second time: %w\nNothing was changed", err)
	}
	if !l.compared.Differ() || l.compared.Trusted() || l.plan.Named {
		return nil
	}
	return differing(l.compared)
}

// differing is the error of databases that give different states.
func differing(c *rebuild.Comparison) error {
	agree, odd := rebuild.Judge(c.Outcomes)
	name := func(all []rebuild.Outcome) string {
		var names []string
		for _, o := range all {
			names = append(names, "--source "+o.Source)
		}
		return strings.Join(names, ", or ")
	}
	what, next := strings.Join(rebuild.Owners(odd), " or "), "Give "+name(agree)
	if len(agree) == 0 {
		what = strings.Join(rebuild.Owners(c.Outcomes), " or ")
		next = "Name a further data directory or a repository (--repo), so that a third one tells; or choose: " + name(c.Outcomes)
	}
	return &snapshot.DamagedError{Object: "the database of " + what, Offset: -1, Err: fmt.Errorf("%s. %w. %s", rebuild.Differing(c.Outcomes), errNotBuilt, next)}
}

var errNotBuilt = errors.New("nothing was changed")

// comparison says beforehand what the result will be compared with.
func (l *localRecovery) comparison() string {
	s := l.plan.Candidate(l.plan.Chosen).Source
	if !rebuild.Unguarded(s) {
		return ""
	}
	if rivals := rebuild.Rivals(s, s.Index); len(rivals) > 0 {
		return fmt.Sprintf("before anything is built: what comes out is compared with what the database of %s gives, since a database has no checksums", rivals[0].Base.Owner)
	}
	return unguarded(s)
}

func unguarded(s *recovery.Source) string {
	return fmt.Sprintf("the database of %s has no checksums, and there is no other one to compare with: its structure is checked, damage inside keys and values would go unnoticed", s.Base.Owner)
}

// printCompared says what came out of the comparison; where that is damage, loudly.
func (g *globals) printCompared(c *rebuild.Comparison) {
	switch {
	case c == nil:
	case c.Differ():
		g.printItem("WARNING: ", c.String())
	case len(c.Outcomes) == 1 && !c.Outcomes[0].Checksummed:
		g.printItem("Warning: ", c.String())
	default:
		g.printf("Compared: %s\n", c)
	}
}
