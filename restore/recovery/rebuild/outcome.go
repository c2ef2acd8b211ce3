package rebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// Outcome is what a replay came to that began from one owner's database.
type Outcome struct {
	Owner  string `json:"owner"`  // of the database
	Source string `json:"source"` // what DecideRequest.Source takes for this way
	// Checksummed: every byte that it was made from had a checksum, as those of a
	// backup and of logs have, and those of a member's database have not.
	Checksummed bool            `json:"checksummed"`
	Index       uint64          `json:"raft_index"`
	Revision    int64           `json:"revision"`
	HashKV      snapshot.HashKV `json:"hashkv"`
}

// outcomeOf is that of an image. That of a backup which is the state itself may have
// no hash yet: it is read then, by way of a scratch file.
func outcomeOf(ctx context.Context, owner, source string, image *walreplay.Rebuilt, scratch string) (Outcome, error) {
	o := Outcome{Owner: owner, Source: source, Checksummed: image.HasHash()}
	if c := image.Recipe; c != nil {
		o.Index, o.Revision, o.HashKV = c.Index, c.Revision, c.HashKV
		return o, nil
	}
	facts, err := image.Facts(ctx)
	if err != nil {
		return o, err
	}
	o.Index, o.Revision = facts.RaftIndex, facts.Revision
	if m := image.Base.Manifest; m != nil && m.HashKV.Revision == facts.Revision {
		o.HashKV = m.HashKV
		return o, nil
	}
	o.HashKV, err = hashOf(ctx, image, scratch)
	return o, err
}

func hashOf(ctx context.Context, image *walreplay.Rebuilt, dir string) (_ snapshot.HashKV, err error) {
	var none snapshot.HashKV
	scratch, err := walreplay.NewScratchFolder(dir)
	if err != nil {
		return none, err
	}
	defer func() {
		if e := scratch.Remove(); e != nil {
			err = errors.Join(err, &leftError{e})
		}
	}()
	if err := scratch.Needs(image.Size()); err != nil {
		return none, err
	}
	r, err := image.Open(ctx)
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f, err := os.OpenFile(filepath.Join(scratch.Path(), "db"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := io.Copy(f, r)
	if err != nil {
		return none, fmt.Errorf("copy %s: %w", image.Name(), err)
	}
	return snapshot.ReadHashKV(ctx, f, size)
}

// Same tells whether two replays came to the same keys.
func (o Outcome) Same(p Outcome) bool {
	return o.Index == p.Index && o.Revision == p.Revision && o.HashKV.Hash == p.HashKV.Hash &&
		o.HashKV.Revision == p.HashKV.Revision && o.HashKV.CompactedRevision == p.HashKV.CompactedRevision
}

// Judge tells the outcomes that agree, and that are to be trusted, from the odd
// ones. They are those of the most databases, or those of the only one that has
// checksums, if there is one such group; both are empty where nothing tells, and
// odd is where all are the same.
func Judge(all []Outcome) (agree, odd []Outcome) {
	var groups [][]Outcome
	for _, o := range all {
		i := slices.IndexFunc(groups, func(g []Outcome) bool { return g[0].Same(o) })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], o)
	}
	if len(groups) < 2 {
		return all, nil
	}
	best := only(groups, func(g []Outcome) bool {
		return len(g) == len(slices.MaxFunc(groups, func(a, b []Outcome) int { return len(a) - len(b) }))
	})
	if best < 0 {
		best = only(groups, func(g []Outcome) bool { return slices.ContainsFunc(g, func(o Outcome) bool { return o.Checksummed }) })
	}
	if best < 0 {
		return nil, nil
	}
	agree = groups[best]
	return agree, slices.Concat(slices.Delete(groups, best, best+1)...)
}

// only is the place of the one group of which something holds; -1 where it holds
// of none, or of several.
func only(groups [][]Outcome, holds func([]Outcome) bool) int {
	found := -1
	for i, g := range groups {
		if !holds(g) {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}
