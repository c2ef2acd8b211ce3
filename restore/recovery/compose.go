package recovery

import (
	"slices"
	"strings"

	"github.com/requorum/requorum/walreplay"
)

// composer finds out how far a state can be rebuilt of some sources.
type composer struct {
	history *history
	ties    ties
	use     []*source // the sources that may be used
	until   uint64    // no entry after it; 0 for no such limit
	target  walreplay.Target
}

// best is the way that leads furthest; nil where there is none. Of several, the
// one of fewer pieces, and then the one with less to replay.
func (c composer) best() *Source {
	var best *Source
	for _, owner := range c.use {
		if s := c.begunBy(owner); s != nil && c.better(s, best) {
			best = s
		}
	}
	return best
}

// begunBy is the best way that begins with a database of one source.
func (c composer) begunBy(owner *source) *Source {
	var best *Source
	for _, i := range owner.images {
		if i.base.Index > c.end(owner) || c.target.Kind == walreplay.AtRevision && i.base.Revision > c.target.Revision {
			continue
		}
		if s := c.from(owner, i.base); c.better(s, best) {
			best = s
		}
	}
	return best
}

func (c composer) better(s, than *Source) bool {
	if than != nil && s.Index == than.Index && c.looksBack() && s.Base.Index != than.Base.Index {
		return s.Base.Index < than.Base.Index
	}
	return s.better(than)
}

// looksBack tells that the point is looked for in the log: the more of it there is,
// the surer it is in it.
func (c composer) looksBack() bool {
	return c.target.Kind == walreplay.BeforeKey || c.target.Kind == walreplay.BeforePrefix
}

func (s *Source) better(than *Source) bool {
	return than == nil || s.Index > than.Index || s.Index == than.Index &&
		(len(s.Log) < len(than.Log) || len(s.Log) == len(than.Log) && s.Base.Index > than.Base.Index)
}

// end is the last entry of a source that may be used. What a database holds was
// committed, also beyond the end of its log.
func (c composer) end(s *source) uint64 {
	end := c.history.cut[s].index
	if c.until > 0 {
		end = min(end, c.until)
	}
	return end
}

// from follows the logs from a database on: always the one that leads furthest.
func (c composer) from(owner *source, b Base) *Source {
	s := &Source{Base: b, Log: []Piece{}, Index: b.Index, Term: b.Term}
	var at *source // whose piece was the last
	for {
		next, last := c.next(owner, b, at, s.Index)
		if next == nil {
			break
		}
		if at == next {
			s.Log[len(s.Log)-1].Last = last
		} else {
			s.Log = append(s.Log, Piece{next.name, s.Index + 1, last})
		}
		s.Index, at = last, next
	}
	if at != nil {
		s.Term = c.termOf(at, s.Index)
	}
	return s
}

// next is the log that goes on furthest after an index, and up to where.
func (c composer) next(owner *source, b Base, at *source, index uint64) (next *source, last uint64) {
	last = index
	for _, s := range c.use {
		for _, r := range s.stretches {
			end := min(r.Last, c.end(s))
			if r.First > index+1 || end <= last || s == at {
				continue
			}
			if at == nil && c.begins(owner, b, s, r) || at != nil && r.First <= index && c.ties.joined(at, s, index) {
				next, last = s, end
			}
		}
	}
	return next, last
}

// begins tells whether a stretch of a log goes on from a database: a member's own
// does, unless it holds another entry where the database ends; another's has to
// hold the very entry that the database ends with.
func (c composer) begins(owner *source, b Base, s *source, r Stretch) bool {
	term := s.termAt(b.Index)
	if s == owner {
		return term == 0 || b.Term == 0 || term == b.Term
	}
	if r.First > b.Index {
		return false
	}
	return b.Term != 0 && term == b.Term || c.ties.joined(owner, s, b.Index)
}

// termOf is the term of a source's entry, as far as it is known.
func (c composer) termOf(s *source, index uint64) uint64 {
	if cut := c.history.cut[s]; cut.index == index && cut.term != 0 {
		return cut.term
	}
	if term := s.termAt(index); term != 0 {
		return term
	}
	for _, o := range c.history.sources {
		if r := c.ties.relation(s, o); r != nil && r.Last == index && r.LastTerm != 0 {
			return r.LastTerm
		}
		if o.index == index && c.ties.joined(s, o, index) {
			return o.term
		}
	}
	return 0
}

// owners are those whose data a source is made of, in the order of their use.
func (s *Source) owners() []string {
	all := []string{s.Base.Owner}
	for _, p := range s.Log {
		if !slices.Contains(all, p.Owner) {
			all = append(all, p.Owner)
		}
	}
	return all
}

func (s *Source) name() string { return strings.Join(s.owners(), "+") }
