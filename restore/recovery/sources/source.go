package sources

import (
	"cmp"
	"fmt"
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
		if m.Log.FirstIndex == 1 && !m.Log.Restored {
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
	for _, t := range s.terms {
		if t.Index == index {
			return t.Term
		}
	}
	return 0
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
	return m != nil && m.Log != nil && m.Log.Damage == nil &&
		!slices.ContainsFunc(m.Findings, func(f Finding) bool { return f.Kind == KindCutLog })
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

// byImages judges sources whose logs do not meet by the term of the entry that a
// database of the one ends with and that the other's log holds.
func (t ties) byImages(a, b *source) relationship {
	for _, pair := range [][2]*source{{a, b}, {b, a}} {
		for _, i := range pair[0].images {
			term := pair[1].termAt(i.Index)
			switch {
			case i.Term == 0 || term == 0:
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

// NameOf is what names a way to a state, as DecideRequest.Source takes it: the
// candidate that goes it, or, where it is only among the others of one, those whose
// data it is made of.
func (p *Plan) NameOf(way *Source) string {
	for i := range p.Candidates {
		if c := &p.Candidates[i]; c.Source != nil && c.Source.same(way) {
			return c.Name
		}
	}
	return way.name()
}

// Ways are the source and its others, each without others.
func (s *Source) Ways() []Source {
	all := append([]Source{*s}, s.Others...)
	all[0].Others = nil
	return all
}

// Unguarded reports whether it begins from a member's database. That has no checksums,
// as a backup and logs have: damage inside a value shows only beside another one.
func (s *Source) Unguarded() bool { return s.Base.Path != "" }

// Alternatives are those of the other sources that begin from another owner's database, at
// or before index: they must give the same result. None where the base has checksums.
func (s *Source) Alternatives(index uint64) (all []Source) {
	if !s.Unguarded() {
		return nil
	}
	for _, way := range s.Others {
		if way.Base.Owner != s.Base.Owner && way.Base.Index <= index {
			all = append(all, way)
		}
	}
	return all
}

// promote makes a candidate of a way that is only among the others of one, and that
// is asked for by its name; nil where there is none.
func (d *decision) promote(name string) *Candidate {
	for _, c := range d.plan.Candidates {
		if c.Source == nil {
			continue
		}
		for i := range c.Source.Others {
			way := c.Source.Others[i]
			if way.name() != name {
				continue
			}
			main := *c.Source
			main.Others = nil
			way.Others = append([]Source{main}, slices.Delete(slices.Clone(c.Source.Others), i, i+1)...)
			c.Name, c.Kind, c.Rank, c.Source, c.Findings = name, FromJoined, 0, &way, nil
			c.Why = "another way to where " + d.plan.NameOf(&main) + " leads: it is used only when it is named"
			d.plan.Candidates = append(d.plan.Candidates, c)
			return &d.plan.Candidates[len(d.plan.Candidates)-1]
		}
	}
	return nil
}

// mostOthers is enough for every host of seven members to find its own data among
// them, and for an archive beside it.
const mostOthers = 8

// addOthers adds the other ways to the very entry that a candidate ends with. They
// are made of sources that are sound and that are still members, since nobody
// named these.
func (r *ranking) addOthers(c *Candidate, use []*source) {
	if c.Source == nil {
		return
	}
	use = slices.DeleteFunc(slices.Clone(use), func(s *source) bool {
		_, discounted := r.proof.discounted[s]
		return discounted
	})
	o := others{ranking: r, main: c.Source}
	for _, s := range use {
		o.add(s, s)
	}
	alone := slices.Clone(o.all)
	alone = append(alone, *c.Source)
	for _, base := range use {
		for _, log := range use {
			if base != log && o.useful(alone, base, log) {
				o.add(base, log)
			}
		}
	}
	slices.SortStableFunc(o.all, o.compare)
	c.Source.Others = o.all[:min(len(o.all), mostOthers)]
}

// others gathers the ways to where another one leads.
type others struct {
	ranking *ranking
	main    *Source
	all     []Source
}

// add adds the way that begins with a database of one source and needs nothing
// but that one's log and another's, if it leads there and is not there yet.
func (o *others) add(base, log *source) {
	use := []*source{base}
	if log != base {
		use = append(use, log)
	}
	s := (composer{o.ranking.history, o.ranking.ties, use, o.main.Index, o.ranking.target}).begunBy(base)
	if s == nil || len(s.Owners()) != len(use) || !o.leadsThere(s) ||
		s.same(o.main) || slices.ContainsFunc(o.all, func(x Source) bool { return s.same(&x) }) {
		return
	}
	s.Term = o.main.Term
	o.all = append(o.all, *s)
}

// leadsThere reports whether a way is known to end with the very same entry: by its
// index and term, which no two entries of one history share, or because the two
// logs were seen to hold the same one there.
func (o *others) leadsThere(s *Source) bool {
	switch a, b := o.last(s), o.last(o.main); {
	case s.Index != o.main.Index:
		return false
	case s.Term != 0 && o.main.Term != 0:
		return s.Term == o.main.Term
	case a == nil || b == nil:
		return false
	default:
		return a == b || o.ranking.ties.joined(a, b, s.Index)
	}
}

// last is whose log a way ends with, nil where it ends with a database.
func (o *others) last(s *Source) *source {
	if len(s.Log) == 0 {
		return nil
	}
	return o.ranking.source(s.Log[len(s.Log)-1].Owner)
}

// useful reports whether it can be worth the while to bring data of two together:
// where one is a member and the other an archive, which may be nearer or faster,
// where neither leads there by itself, or, once, where a database would begin no way
// otherwise: what it gives can be compared with what others give.
func (o *others) useful(alone []Source, base, log *source) bool {
	leads := func(name string) bool {
		return slices.ContainsFunc(alone, func(s Source) bool { return slices.Equal(s.Owners(), []string{name}) })
	}
	switch {
	case (base.archive == nil) != (log.archive == nil), !leads(base.name) && !leads(log.name):
		return true
	case leads(base.name) || base.name == o.main.Base.Owner:
		return false
	}
	return !slices.ContainsFunc(o.all, func(s Source) bool { return s.Base.Owner == base.name })
}

// compare puts first what needs fewer owners, then members before archives, then
// what has less to replay.
func (o *others) compare(a, b Source) int {
	archived := func(s Source) int {
		if o.ranking.source(s.Base.Owner).archive != nil {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(len(a.Owners()), len(b.Owners())),
		cmp.Compare(archived(a), archived(b)),
		cmp.Compare(b.Base.Index, a.Base.Index),
		strings.Compare(a.name(), b.name()),
	)
}

// same reports whether two ways are one.
func (s *Source) same(o *Source) bool { return s.Base == o.Base && slices.Equal(s.Log, o.Log) }
