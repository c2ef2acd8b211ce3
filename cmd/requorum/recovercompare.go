package main

import (
	"context"
	"fmt"
	"strings"

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
	return &snapshot.DamagedError{Object: "the database of " + what, Offset: -1, Err: fmt.Errorf("%s. Nothing was changed. %s", rebuild.Differing(c.Outcomes), next)}
}

// comparison says beforehand what the result will be compared with; empty where
// there is nothing to compare with, as the plan has said.
func (l *localRecovery) comparison() string {
	if l.shared != nil || l.findings == nil {
		return "" // it was done when that was decided
	}
	s := l.plan.Candidate(l.plan.Chosen).Source
	if rivals := s.Rivals(s.Index); len(rivals) > 0 {
		return fmt.Sprintf("before anything is built: the state is rebuilt a second time, from the database of %s, and compared, since a database has no checksums; that takes about %s more beside the first, until then", rivals[0].Base.Owner, size(l.prospect().Size()))
	}
	return ""
}

// printCompared says what came out of the comparison; where that is damage, loudly.
func (g *globals) printCompared(c *rebuild.Comparison) {
	switch {
	case c == nil:
	case c.Differ() && c.Trusted():
		g.printItem("WARNING: ", c.String()+". Its database was not used")
	case c.Differ():
		g.printItem("WARNING: ", fmt.Sprintf("%s. That of %s was used, since it was asked for by name", c, c.Outcomes[0].Owner))
	case len(c.Outcomes) > 1:
		g.printf("Compared: %s\n", c)
	case len(c.Failed) > 0: // of one that has no other the plan has told
		g.printItem("WARNING: ", c.String())
	}
}
