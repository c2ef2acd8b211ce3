// A member's database has no checksums: a flipped bit in a value shows only beside another
// database. So what is rebuilt from one is compared with the databases of all other survivors of its
// history (Source.Peers), each at its own newest revision, by etcd's HashKV: between the same
// two revisions, compacted and hashed, every state of one history has one hash.

package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
)

// HashDatabase returns the HashKV of a database's file at a revision; 0 is its newest. A
// snapshot.ErrNoRevision says that the database has no state there any more, or not yet.
func HashDatabase(ctx context.Context, path string, revision int64) (_ snapshot.HashKV, err error) {
	f, err := safedir.Open(path)
	if err != nil {
		return snapshot.HashKV{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return snapshot.HashKV{}, err
	}
	return snapshot.ReadHashKVAt(ctx, f, info.Size(), revision)
}

// HashPeers are the hashes of a restored database at the newest revisions of its peers. Those
// that it has no state at are left out. known is the one that the replay computed.
func HashPeers(ctx context.Context, path string, peers []Peer, known snapshot.HashKV) (all []snapshot.HashKV, err error) {
	if known.Hash != 0 {
		all = append(all, known)
	}
	for _, p := range peers {
		if slices.ContainsFunc(all, func(h snapshot.HashKV) bool { return h.Revision == p.Revision }) {
			continue
		}
		h, err := HashDatabase(ctx, path, p.Revision)
		switch {
		case errors.Is(err, snapshot.ErrNoRevision):
		case err != nil:
			return nil, err
		default:
			all = append(all, h)
		}
	}
	return all, nil
}

// Comparison is what came of comparing a restored database with those of the other survivors.
// Its JSON form is stable.
type Comparison struct {
	Base string `json:"base"` // whose database it was rebuilt from
	// Same are the owners of databases that hold the same keys.
	Same    []string     `json:"same,omitempty"`
	Differs []Difference `json:"differs,omitempty"`
	// NotCompared says of whose databases nothing is known, and why.
	NotCompared []string `json:"not_compared,omitempty"`
	// Agree are the owners of the databases that are to be trusted, and Odd of those that are
	// not. If databases differ and neither is known, nothing shows it.
	Agree []string `json:"agree,omitempty"`
	Odd   []string `json:"odd,omitempty"`
	// Next are the sources that begin from a database of Agree, or else from any, and lead as far.
	Next []string `json:"next,omitempty"`
}

// Difference is a database that holds other keys than the restored one.
type Difference struct {
	Owner    string          `json:"owner"`
	HashKV   snapshot.HashKV `json:"hashkv"`
	Restored uint32          `json:"restored_hash"` // at the same revisions
}

// PeerHashes are those of a source's peers, in their order; each has an error or a hash.
type PeerHashes struct {
	hashes []snapshot.HashKV
	errs   []error
}

// Hash is the HashKV of a survivor's database at a revision.
type Hash func(ctx context.Context, owner string, revision int64) (snapshot.HashKV, error)

// ReadPeers hashes the databases of the source's peers, all at once.
func (s *Source) ReadPeers(ctx context.Context, hash Hash) PeerHashes {
	h := PeerHashes{make([]snapshot.HashKV, len(s.Peers)), make([]error, len(s.Peers))}
	var all sync.WaitGroup
	for i, p := range s.Peers {
		all.Go(func() { h.hashes[i], h.errs[i] = hash(ctx, p.Owner, p.Revision) })
	}
	all.Wait()
	return h
}

// Compare compares what was rebuilt, of which HashPeers gave the hashes, with the peers. If
// several differ, they are hashed once more, to know which of them agree. The error is ctx's.
func (s *Source) Compare(ctx context.Context, restored []snapshot.HashKV, peers PeerHashes, hash Hash) (*Comparison, error) {
	c := &Comparison{Base: s.Base.Owner}
	for i, p := range s.Peers {
		theirs, err := peers.hashes[i], peers.errs[i]
		at := slices.IndexFunc(restored, func(h snapshot.HashKV) bool { return h.Revision == p.Revision })
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			c.NotCompared = append(c.NotCompared, fmt.Sprintf("that of %s could not be hashed: %v", p.Owner, err))
		case at < 0:
			c.NotCompared = append(c.NotCompared, fmt.Sprintf("that of %s ends at revision %d, which was compacted since, or is not reached", p.Owner, p.Revision))
		case theirs.CompactedRevision != restored[at].CompactedRevision:
			c.NotCompared = append(c.NotCompared, fmt.Sprintf("that of %s is compacted at revision %d, and not at %d", p.Owner, theirs.CompactedRevision, restored[at].CompactedRevision))
		case theirs.Hash == restored[at].Hash:
			c.Same = append(c.Same, p.Owner)
		default:
			c.Differs = append(c.Differs, Difference{p.Owner, theirs, restored[at].Hash})
		}
	}
	if len(c.Differs) > 0 {
		c.judge(largestGroup(ctx, c.Differs, hash))
	}
	c.Next = s.next(c.Agree)
	return c, ctx.Err()
}

// judge goes by the number of databases that agree: with what was rebuilt, or with each other
// against it.
func (c *Comparison) judge(against []string) {
	with := append([]string{c.Base}, c.Same...)
	var differing []string
	for _, d := range c.Differs {
		differing = append(differing, d.Owner)
	}
	switch {
	case len(with) > len(against):
		c.Agree, c.Odd = with, differing
	case len(against) > len(with):
		c.Agree = against
		c.Odd = slices.DeleteFunc(append(with, differing...), func(owner string) bool { return slices.Contains(against, owner) })
	}
}

// largestGroup are the owners of the most databases that agree with each other, at the highest
// revision that all have.
func largestGroup(ctx context.Context, all []Difference, hash Hash) (owners []string) {
	lowest := slices.MinFunc(all, func(a, b Difference) int { return int(a.HashKV.Revision - b.HashKV.Revision) }).HashKV.Revision
	groups := map[[2]int64][]string{}
	for _, d := range all {
		h := d.HashKV
		if h.Revision != lowest {
			var err error
			if h, err = hash(ctx, d.Owner, lowest); err != nil {
				continue // it counts for nobody
			}
		}
		key := [2]int64{int64(h.Hash), h.CompactedRevision}
		groups[key] = append(groups[key], d.Owner)
		if len(groups[key]) > len(owners) {
			owners = groups[key]
		}
	}
	return owners
}

// next are the sources that lead to the same entry from the databases of some owners; of any if
// none are given.
func (s *Source) next(owners []string) (all []string) {
	if len(owners) == 0 || slices.Contains(owners, s.Base.Owner) {
		all = append(all, s.name())
	}
	for _, p := range s.Peers {
		if p.Source != "" && (len(owners) == 0 || slices.Contains(owners, p.Owner)) {
			all = append(all, p.Source)
		}
	}
	return all
}

// Flags are what names the sources of Next to a recovery.
func (c *Comparison) Flags() string { return "--source " + strings.Join(c.Next, ", or --source ") }

// Differ reports whether any of the databases does.
func (c *Comparison) Differ() bool { return len(c.Differs) > 0 }

// Trusted reports whether the database that was used is among those that agree.
func (c *Comparison) Trusted() bool { return slices.Contains(c.Agree, c.Base) }

// String says what came out.
func (c *Comparison) String() string {
	if !c.Differ() {
		var parts []string
		if len(c.Same) > 0 {
			parts = append(parts, fmt.Sprintf("the database of %s and that of %s hold the same keys (HashKV)", c.Base, strings.Join(c.Same, " and ")))
		} else {
			parts = append(parts, fmt.Sprintf("the database of %s has no checksums, and was compared with no other one: damage inside values would go unnoticed", c.Base))
		}
		return strings.Join(append(parts, c.NotCompared...), "; ")
	}
	var parts []string
	for _, d := range c.Differs {
		parts = append(parts, fmt.Sprintf("that of %s has HashKV %d at revision %d, compacted at %d, and what was rebuilt has %d", d.Owner, d.HashKV.Hash, d.HashKV.Revision, d.HashKV.CompactedRevision, d.Restored))
	}
	text := fmt.Sprintf("what was rebuilt from the database of %s does not hold the keys of other databases (%s)", c.Base, strings.Join(append(parts, c.NotCompared...), "; "))
	if len(c.Agree) == 0 {
		return text + ": nothing shows which of them is damaged"
	}
	return fmt.Sprintf("%s: those of %s agree, so the damaged one is that of %s", text, strings.Join(c.Agree, " and "), strings.Join(c.Odd, " and "))
}

// DifferError says that databases differ, and that nothing shows that the one which was used is right.
func (c *Comparison) DifferError() error {
	next := "Recover with " + c.Flags()
	if len(c.Agree) == 0 {
		next = "Name a further data directory, so that a third one decides; or choose the one that you trust: " + c.Flags()
	}
	if len(c.Next) == 0 {
		next = fmt.Sprintf("No other database leads to this state: name a repository or a further data directory, or take the one that was used: --source %s", c.Base)
	}
	what := c.Odd
	if len(what) == 0 {
		what = []string{c.Base}
		for _, d := range c.Differs {
			what = append(what, d.Owner)
		}
	}
	return &snapshot.DamagedError{Object: "the database of " + strings.Join(what, " or "), Offset: -1, Err: fmt.Errorf("%s. %s", c, next)}
}
