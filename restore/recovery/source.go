package recovery

import (
	"fmt"
	"slices"

	"github.com/requorum/requorum/snapshot"
)

// source is a member's data or an archived timeline, seen alike. One of member
// and archive is nil.
type source struct {
	name    string
	member  *Remains
	archive *Archive

	cluster     snapshot.ID
	stretches   []Stretch
	index, term uint64 // of the end: of the log, or of a database beyond it
	committed   uint64 // the last index that it shows to be committed
	forced      []uint64
	changed     uint64 // the last entry that may have changed who votes
	terms       []Term
	images      []image
}

// image is a database to begin from.
type image struct {
	base    Base
	members []snapshot.Member
}

func memberSource(m *Remains) *source {
	s := &source{name: m.Name, member: m, cluster: m.ClusterID, committed: m.committed()}
	if m.Log != nil {
		s.stretches, s.forced, s.terms, s.changed = m.Log.Stretches, m.Log.Forced, m.Log.Terms, m.Log.Changed
		s.index, s.term = m.Log.LastIndex, m.Log.LastTerm
		if m.Log.FirstIndex == 1 && !m.Log.Restored {
			s.images = append(s.images, image{base: Base{Owner: m.Name, Revision: 1}})
		}
	}
	for _, d := range m.Databases {
		if d.Damage != "" {
			continue
		}
		s.images = append(s.images, image{Base{Owner: m.Name, Path: d.Path, Index: d.Index, Term: d.Term, Revision: d.Revision}, d.facts.Members})
		if d.Index > s.index {
			s.index, s.term = d.Index, max(s.term, d.Term)
		}
	}
	return s
}

func archiveSource(a *Archive) *source {
	s := &source{name: a.Name, archive: a, cluster: snapshot.ID(a.Timeline.ClusterID), stretches: a.Stretches, forced: a.Forced, terms: a.Terms, changed: a.Changed}
	if n := len(s.stretches); n > 0 {
		s.index, s.term = s.stretches[n-1].Last, a.LastTerm
	}
	for _, f := range a.Fulls {
		s.images = append(s.images, image{Base{Owner: a.Name, Backup: f.ID, Timeline: a.Timeline, Repository: a.Repository, Index: f.Index, Term: f.Term, Revision: f.Revision}, f.Members})
		if f.Index > s.index {
			s.index, s.term = f.Index, max(s.term, f.Term)
		}
	}
	s.committed = s.index
	return s
}

// holds tells whether the log has an entry.
func (s *source) holds(index uint64) bool {
	return slices.ContainsFunc(s.stretches, func(r Stretch) bool { return r.First <= index && index <= r.Last })
}

func (s *source) termAt(index uint64) uint64 {
	for _, t := range s.terms {
		if t.Index == index {
			return t.Term
		}
	}
	return 0
}

// before orders by the last entry's term, then its index: as raft does when it
// elects a leader.
func (s *source) before(o *source) bool {
	if s.term != o.term {
		return s.term < o.term
	}
	return s.index < o.index
}

// whole tells whether the log was read to where the member had written it.
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
