package recovery

import (
	"cmp"
	"slices"
	"strings"
)

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
	if s == nil || len(s.owners()) != len(use) || !o.leadsThere(s) ||
		s.same(o.main) || slices.ContainsFunc(o.all, func(x Source) bool { return s.same(&x) }) {
		return
	}
	s.Term = o.main.Term
	o.all = append(o.all, *s)
}

// leadsThere tells whether a way is known to end with the very same entry: by its
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

// useful tells whether it can be worth the while to bring data of two together:
// where one is a member and the other an archive, which may be nearer or faster,
// where neither leads there by itself, or, once, where a database would begin no way
// otherwise: what it gives can be compared with what others give.
func (o *others) useful(alone []Source, base, log *source) bool {
	leads := func(name string) bool {
		return slices.ContainsFunc(alone, func(s Source) bool { return slices.Equal(s.owners(), []string{name}) })
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
		cmp.Compare(len(a.owners()), len(b.owners())),
		cmp.Compare(archived(a), archived(b)),
		cmp.Compare(b.Base.Index, a.Base.Index),
		strings.Compare(a.name(), b.name()),
	)
}

// same tells whether two ways are one.
func (s *Source) same(o *Source) bool { return s.Base == o.Base && slices.Equal(s.Log, o.Log) }
