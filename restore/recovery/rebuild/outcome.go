package rebuild

import (
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

// outcomeOf is that of an image. hashed is false where nothing was replayed, and
// the backup that it is had no hash.
func outcomeOf(owner, source string, image *walreplay.Rebuilt) (o Outcome, hashed bool) {
	o = Outcome{Owner: owner, Source: source, Checksummed: image.HasHash()}
	switch {
	case image.Recipe != nil:
		o.Index, o.Revision, o.HashKV = image.Recipe.Index, image.Recipe.Revision, image.Recipe.HashKV
	case image.Base != nil && image.Base.Manifest != nil:
		o.Index, o.Revision, o.HashKV = image.Base.Index(), image.Base.Facts.Revision, image.Base.Manifest.HashKV
	}
	return o, o.HashKV.Revision > 0
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
	return groups[best], slices.Concat(slices.Delete(groups, best, best+1)...)
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
