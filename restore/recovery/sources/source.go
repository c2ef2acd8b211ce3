package sources

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/snapshot"
)

// source is a member's data or an archived timeline, seen alike. One of member
// and archive is nil.
type source struct {
	name    string
	member  *Remains
	archive *Archive

	cluster     snapshot.ID
	ranges      []Range
	index, term uint64 // of the end: of the log, or of a database beyond it
	committed   uint64 // the last index that it shows to be committed
	forced      []uint64
	changed     uint64 // the last entry that may have changed who votes
	terms       []Term
	images      []Base // databases to begin from
}

func memberSource(m *Remains) *source {
	s := &source{name: m.Name, member: m, cluster: m.ClusterID, committed: m.committed()}
	if m.Log != nil {
		s.ranges, s.forced, s.terms, s.changed = m.Log.Ranges, m.Log.Forced, m.Log.Terms, m.Log.Changed
		s.index, s.term = m.Log.LastIndex, m.Log.LastTerm
		if m.Log.FirstIndex == 1 && !m.Log.Restored && !m.has(KindMixed) {
			s.images = append(s.images, Base{Owner: m.Name, Revision: 1})
		}
	}
	for _, d := range m.Databases {
		if d.Damage != "" {
			continue
		}
		s.images = append(s.images, Base{Owner: m.Name, Path: d.Path, Index: d.Index, Term: d.Term, Revision: d.Revision})
		if d.Index > s.index {
			s.index, s.term = d.Index, max(s.term, d.Term)
		}
	}
	return s
}

func archiveSource(a *Archive) *source {
	s := &source{name: a.Name, archive: a, cluster: snapshot.ID(a.Timeline.ClusterID), ranges: a.Log, forced: a.Forced, terms: a.Terms, changed: a.Changed}
	if n := len(s.ranges); n > 0 {
		s.index, s.term = s.ranges[n-1].Last, a.LastTerm
	}
	for _, f := range a.Fulls {
		s.images = append(s.images, Base{Owner: a.Name, Backup: f.ID, Timeline: a.Timeline, Repository: a.Repository, Index: f.Index, Term: f.Term, Revision: f.Revision})
		if f.Index > s.index {
			s.index, s.term = f.Index, max(s.term, f.Term)
		}
	}
	s.committed = s.index
	return s
}

// holds reports whether the log has an entry.
func (s *source) holds(index uint64) bool {
	return slices.ContainsFunc(s.ranges, func(r Range) bool { return r.First <= index && index <= r.Last })
}

func (s *source) termAt(index uint64) uint64 {
	i, found := slices.BinarySearchFunc(s.terms, index, func(t Term, index uint64) int { return cmp.Compare(t.Index, index) })
	if !found {
		return 0
	}
	return s.terms[i].Term
}

// compare orders by the last entry's term, then its index: as raft does when it
// elects a leader.
func (s *source) compare(o *source) int {
	return cmp.Or(cmp.Compare(s.term, o.term), cmp.Compare(s.index, o.index))
}

func (s *source) before(o *source) bool { return s.compare(o) < 0 }

// whole reports whether the log was read to where the member had written it.
func (s *source) whole() bool {
	m := s.member
	return m != nil && m.Log != nil && m.Log.Damage == nil && !m.has(KindCutLog)
}

// what calls a source in a sentence.
func (s *source) what() string {
	if s.archive != nil {
		return fmt.Sprintf("the archive (timeline %s in %s)", s.archive.Timeline, s.archive.Repository)
	}
	return s.name
}

// tie is how two sources stand to each other.
type tie int

const (
	unmet tie = iota // nothing that both hold: not known
	equal            // equal wherever both hold something
	tail             // the end of one of them was refused
	fork             // two histories
)

// relationship is a tie, and where the two part.
type relationship struct {
	tie tie
	at  uint64 // the first index that differs, for tail and fork; 0 where it is not known
	// cut is the one whose end was refused, for tail. committed says that the
	// other's entries were: otherwise the newer last term decides, as it does when
	// a leader is elected.
	cut       *source
	committed bool
	why       string // for a fork
	last      uint64 // the last index at which both hold the same entry
	term      uint64 // its term
}

// ties finds out how each two sources stand.
type ties struct{ relations []Relation }

func (t ties) relation(a, b *source) *Relation {
	for i, r := range t.relations {
		if r.A == a.name && r.B == b.name || r.A == b.name && r.B == a.name {
			return &t.relations[i]
		}
	}
	return nil
}

// joined reports whether both were seen to hold the same entry at an index.
func (t ties) joined(a, b *source, index uint64) bool {
	r := t.relation(a, b)
	return r != nil && r.First != 0 && r.First <= index && index <= r.Last && a.holds(index) && b.holds(index)
}

// between judges two sources. It goes by what raft makes impossible within one
// history: two entries of one term at one index, two committed entries at one
// index, and members that leave without being asked.
func (t ties) between(a, b *source) relationship {
	if a.before(b) {
		a, b = b, a // b ranks lower from here on
	}
	if a.cluster != 0 && b.cluster != 0 && a.cluster != b.cluster {
		return relationship{tie: fork, why: fmt.Sprintf("%s is of cluster %s, %s of cluster %s", a.what(), a.cluster, b.what(), b.cluster)}
	}
	if why := restoredUnder(a, b); why != "" {
		return relationship{tie: fork, why: why}
	}
	r := t.relation(a, b)
	if r == nil {
		return t.byImages(a, b)
	}
	out := relationship{tie: equal, last: r.Last, term: r.LastTerm}
	if r.Parted == nil {
		for _, x := range []*source{a, b} {
			if i := slices.IndexFunc(x.forced, func(index uint64) bool { return index > r.Last }); i >= 0 {
				out.tie, out.at = fork, x.forced[i]
				out.why = fmt.Sprintf("%s went on by itself at raft index %d: it was started with --force-new-cluster", x.what(), x.forced[i])
			}
		}
		return out
	}
	out.tie, out.at, out.cut = tail, r.Parted.Index, b
	switch {
	case slices.ContainsFunc(append(slices.Clone(a.forced), b.forced...), func(index uint64) bool { return index >= out.at }):
		out.tie, out.why = fork, fmt.Sprintf("%s and %s part at raft index %d: one of them was started with --force-new-cluster and went on by itself", a.what(), b.what(), out.at)
	case r.Parted.TermA == r.Parted.TermB:
		out.tie, out.why = fork, fmt.Sprintf("%s and %s hold different entries of the same term %d at raft index %d, which one cluster cannot write: one of them was restarted under the same ID", a.what(), b.what(), r.Parted.TermA, out.at)
	case a.committed >= out.at && b.committed >= out.at:
		out.tie, out.why = fork, fmt.Sprintf("%s and %s hold different entries from raft index %d on, and both went on from there with what was committed", a.what(), b.what(), out.at)
	case b.committed >= out.at: // by a leader that came later than the other's end
		out.cut, out.committed = a, true
	case a.committed >= out.at:
		out.committed = true
	}
	return out
}

// restoredUnder reports why one of two members was restored by hand beside the other: its log
// begins with a restore, and the other's began empty or cannot have made the revisions of
// both. Each entry moves the revision by one at most. It forgot what it had acknowledged.
func restoredUnder(a, b *source) string {
	if a.member == nil || b.member == nil || a.member.Log == nil || b.member.Log == nil || a.member.Log.Restored == b.member.Log.Restored {
		return ""
	}
	if b.member.Log.Restored {
		a, b = b, a
	}
	x, y := a.member.newest(), b.member.newest()
	if x == nil || y == nil || x.Revision == 0 || y.Revision == 0 {
		return ""
	}
	if b.member.Log.FirstIndex == 1 {
		return fmt.Sprintf("%s was restored from a snapshot beside %s, which was not: it does not know what it acknowledged before", a.name, b.name)
	}
	apart, entries := x.Revision-y.Revision, x.Index-y.Index
	if x.Index < y.Index {
		apart, entries = -apart, y.Index-x.Index
	}
	if 0 <= apart && uint64(apart) <= entries {
		return ""
	}
	return fmt.Sprintf("the database of %s (revision %d at raft index %d) was restored, and the log of %s (revision %d at raft index %d) was applied to it", a.name, x.Revision, x.Index, b.name, y.Revision, y.Index)
}

// byImages judges sources whose logs do not meet by the term of the entry that a
// database of the one ends with and that the other's log holds.
func (t ties) byImages(a, b *source) relationship {
	for _, pair := range [][2]*source{{a, b}, {b, a}} {
		for _, i := range pair[0].images {
			term := pair[1].termAt(i.Index)
			switch {
			case term == 0:
			case term == i.Term:
				return relationship{tie: equal}
			case pair[1].committed < i.Index:
				return relationship{tie: tail, at: i.Index, cut: pair[1], committed: true}
			default:
				return relationship{tie: fork, at: i.Index, why: fmt.Sprintf("%s and %s hold entries of different terms at raft index %d", a.what(), b.what(), i.Index)}
			}
		}
	}
	return relationship{}
}

// Unguarded reports whether it begins from a member's database. That has no checksums,
// as a backup and logs have: damage inside a value shows only beside another one.
func (s *Source) Unguarded() bool { return s.Base.Path != "" }

// compose makes a candidate of a name such as m2+m1: a database of the first, and the log of the
// last, joined by those between. It is used only when it is named. It is nil if none leads anywhere.
func (d *decision) compose(name string) *Candidate {
	for _, r := range d.rankings {
		var use []*source
		for owner := range strings.SplitSeq(name, "+") {
			if s := r.source(owner); s != nil {
				use = append(use, s)
			}
		}
		if len(use) < 2 {
			continue
		}
		s := r.way(use[len(use)-1], use[:1], use)
		if s == nil || s.name() != name {
			continue
		}
		c := Candidate{Name: name, Kind: FromJoined, Source: s, Why: "it was asked for by name"}
		r.complete(&c)
		r.addPeers(&c)
		d.plan.Candidates = append(d.plan.Candidates, c)
		return &d.plan.Candidates[len(d.plan.Candidates)-1]
	}
	return nil
}

// addPeers adds the other survivors whose databases can be compared with what is rebuilt: those
// of its history that are sound. A copy of another one's data shows nothing.
func (r *ranking) addPeers(c *Candidate) {
	if c.Source == nil || !c.Source.Unguarded() {
		return
	}
	for _, s := range r.history.sources {
		f, discounted := r.proof.discounted[s]
		if s.member == nil || s.name == c.Source.Base.Owner || r.removed(s) || discounted && f.Kind != KindUnshown {
			continue
		}
		for _, db := range s.member.Databases {
			if db.Damage == "" && filepath.Base(db.Path) == "db" && db.Index <= c.Source.Index {
				c.Source.Peers = append(c.Source.Peers, Peer{Owner: s.name, Revision: db.Revision, Source: r.begunBy(s, c)})
			}
		}
	}
}

// begunBy names the way from another owner's database to where a candidate leads; empty if there is none.
func (r *ranking) begunBy(s *source, c *Candidate) string {
	to := *r
	to.until = c.Source.Index
	logs := []*source{s}
	if n := len(c.Source.Log); n > 0 {
		logs = append(logs, r.source(c.Source.Log[n-1].Owner))
	}
	for _, log := range logs {
		if way := to.way(log, logs[:1], logs[:1]); way != nil && way.Index == c.Source.Index {
			return way.name()
		}
	}
	return ""
}
