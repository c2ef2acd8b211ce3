package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// ranking makes the candidates of one history.
type ranking struct {
	history *history
	ties    ties
	proof   *proof
	until   uint64 // the last entry that is wanted; 0 for all
	target  walreplay.Target
	timed   bool // a time is wanted, which only an archive can show
	members []snapshot.ID
}

// need is the end of the best log that counts, and whose it is.
func (r *ranking) need() (index uint64, owners []string) {
	for _, s := range r.proof.witnesses {
		switch end := r.history.cut[s].index; {
		case end > index:
			index, owners = end, []string{s.name}
		case end == index:
			owners = append(owners, s.name)
		}
	}
	return index, owners
}

// holdsAll reports whether a state that ends at an index holds all that was acknowledged.
func (r *ranking) holdsAll(index uint64) bool {
	need, _ := r.need()
	return r.proof.proven && index >= need
}

// seen is the last index that anything shows was there.
func (r *ranking) seen() uint64 {
	index := r.history.end().index
	if m := r.proof.beyond; m != nil {
		index = max(index, m.newest().Index)
	}
	for _, s := range r.history.sources {
		switch {
		case s.archive != nil:
			index = max(index, s.archive.Seen.Index)
		case s.member.Log != nil && r.history.cut[s].by == nil:
			index = max(index, s.member.Log.Commit)
		}
	}
	return index
}

// removed reports whether a member is not one any more.
func (r *ranking) removed(s *source) bool {
	return s.member != nil && len(r.members) > 0 && !slices.Contains(r.members, s.member.MemberID)
}

// candidates are all of the history, by rank; those that are used only when they
// are named come last.
func (r *ranking) candidates() []Candidate {
	if n := len(r.proof.steps); n > 0 {
		for _, m := range r.proof.steps[n-1].Members {
			r.members = append(r.members, m.ID)
		}
	}
	var all []Candidate
	reach := uint64(0)
	for _, s := range r.history.sources {
		c := Candidate{Name: s.name, Kind: FromSurvivor, Findings: r.findings(s)}
		if s.archive != nil {
			c.Kind = FromArchive
		}
		if c.Source = r.way(s, []*source{s}, nil); c.Source != nil && !r.removed(s) {
			reach = max(reach, c.Source.Index)
		}
		all = append(all, c)
	}
	if s := r.joined(); s != nil && len(s.Owners()) > 1 && (s.Index > reach || r.target.Searches() && !slices.ContainsFunc(all, func(c Candidate) bool {
		return c.Source != nil && r.better(c.Source, s) == c.Source
	})) {
		all = append(all, Candidate{Name: s.name(), Kind: FromJoined, Source: s})
	}
	for i := range all {
		r.complete(&all[i])
		r.addPeers(&all[i])
	}
	slices.SortStableFunc(all, r.compare)
	for i := range all {
		r.rank(all, i)
	}
	return all
}

// joined is the best way from any database along any logs.
func (r *ranking) joined() (best *Source) {
	use := slices.DeleteFunc(slices.Clone(r.history.sources), r.removed)
	for _, s := range use {
		best = r.better(best, r.way(s, use, use))
	}
	return best
}

func (r *ranking) source(name string) *source {
	for _, s := range r.history.sources {
		if s.name == name {
			return s
		}
	}
	return nil
}

// complete fills in what follows from how a candidate is made.
func (r *ranking) complete(c *Candidate) {
	c.History = r.history.number
	s := c.Source
	if s == nil {
		return
	}
	c.LastIndex, c.LastTerm = s.Index, s.Term
	c.Revision = Bounds{s.Base.Revision, s.Base.Revision + int64(s.Index-s.Base.Index)}
	owner := r.source(c.Name)
	switch {
	case owner == nil:
	case owner.member != nil && s.Index == owner.index && owner.member.Revision.AtLeast == s.Base.Revision:
		c.Revision = owner.member.Revision
	case owner.archive != nil && s.Index == owner.index:
		c.Revision.AtLeast = min(max(c.Revision.AtLeast, owner.archive.Revision), c.Revision.AtMost)
	}
	c.Time = r.time(s)
	c.Lost = r.loss(s.Index)
}

// time says what is known of when a state was.
func (r *ranking) time(s *Source) string {
	last := r.source(s.Base.Owner)
	if n := len(s.Log); n > 0 {
		last = r.source(s.Log[n-1].Owner)
	}
	if m := last.member; m != nil && !m.Written.IsZero() {
		return "its log was last written at " + instant(m.Written)
	}
	if a := last.archive; a != nil && !a.Seen.Time.IsZero() && a.Seen.Index <= s.Index {
		return "seen at " + instant(a.Seen.Time)
	}
	return ""
}

// loss is what is lost if the state ends at index.
func (r *ranking) loss(index uint64) Loss {
	nothing := "nothing that was acknowledged"
	if r.history.forcedNote() != "" {
		nothing += " since it was started with --force-new-cluster; what that dropped was lost then"
	}
	switch seen := r.seen(); {
	case r.holdsAll(index):
		return Loss{Text: nothing}
	case seen > index:
		n := seen - index
		return Loss{Entries: n, Revisions: int64(n), Text: fmt.Sprintf("the %s after raft index %d that are known of, at most as many revisions", entries(n), index)}
	case r.proof.proven:
		return Loss{Text: nothing}
	default:
		return Loss{Text: "nothing that is known of; what nobody's log holds that could be read is not known"}
	}
}

// sound reports whether nothing that it is made of is damaged or cut.
func (r *ranking) sound(c *Candidate) bool {
	return !slices.ContainsFunc(c.Source.Owners(), func(name string) bool {
		s := r.source(name)
		_, discounted := r.proof.discounted[s]
		return discounted
	})
}

// eligible reports whether a candidate may be used without being named.
func (r *ranking) eligible(c *Candidate) bool {
	owner := r.source(c.Name)
	return c.Source != nil && (owner == nil || !r.removed(owner)) && (!r.timed || c.Kind == FromArchive) && (r.until == 0 || c.Source.Index == r.until)
}

// First orders what is true before what is not.
func First(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// compare puts the better one first. Where a majority proves what was
// acknowledged, nothing damaged is needed, even if it reaches further.
func (r *ranking) compare(a, b Candidate) int {
	if c := First(r.eligible(&a), r.eligible(&b)); c != 0 || a.Source == nil || b.Source == nil {
		return c
	}
	full := func(c *Candidate) bool { return r.sound(c) && r.holdsAll(c.Source.Index) }
	return cmp.Or(
		First(full(&a), full(&b)),
		cmp.Compare(b.Source.Index, a.Source.Index),
		First(r.sound(&a), r.sound(&b)),
		First(r.looksFurtherBack(&a, &b), r.looksFurtherBack(&b, &a)),
		cmp.Compare(a.Kind.order(), b.Kind.order()),
		cmp.Compare(b.Source.Base.Index, a.Source.Base.Index),
		cmp.Compare(a.Name, b.Name),
	)
}

// looksFurtherBack reports whether the point that is looked for in the log is more
// likely to be found in the one than in the other.
func (r *ranking) looksFurtherBack(a, b *Candidate) bool {
	return r.target.Searches() && a.Source.Base.Index < b.Source.Base.Index
}

// rank numbers a candidate and says why it is there.
func (r *ranking) rank(all []Candidate, i int) {
	c := &all[i]
	owner := r.source(c.Name)
	if !r.eligible(c) {
		switch {
		case owner != nil && r.removed(owner):
			c.Why = "it is no member any more: it is used only when it is named"
		case c.Source == nil && r.until > 0:
			c.Why = fmt.Sprintf("nothing of it leads to raft index %d: it has no sound database from before that which its log goes on from", r.until)
		case c.Source == nil && r.target.Kind == walreplay.AtRevision:
			c.Why = fmt.Sprintf("nothing of it leads to revision %d: it has no sound database from before that which its log goes on from", r.target.Revision)
		case c.Source == nil:
			c.Why = "there is no sound database that its log goes on from: it cannot be rebuilt by itself"
		case r.timed:
			c.Why = "only an archive can show what the state was at a time: give an index"
		default:
			c.Why = fmt.Sprintf("it does not reach raft index %d", r.until)
		}
		return
	}
	c.Rank = i + 1
	best := &all[0]
	var parts []string
	switch {
	case i == 0 && c.LastTerm > 0:
		parts = append(parts, fmt.Sprintf("it reaches furthest: raft index %d of term %d", c.LastIndex, c.LastTerm))
	case i == 0:
		parts = append(parts, fmt.Sprintf("it reaches furthest: raft index %d", c.LastIndex))
	case c.LastIndex == best.LastIndex:
		parts = append(parts, "it reaches as far as "+best.Name)
	case c.LastIndex > best.LastIndex:
		parts = append(parts, fmt.Sprintf("it reaches further than %s, by entries that no majority acknowledged, and out of damaged data", best.Name))
	default:
		parts = append(parts, fmt.Sprintf("%s behind %s", entries(best.LastIndex-c.LastIndex), best.Name))
	}
	if c.Kind == FromJoined {
		parts = append(parts, c.Source.describe())
	}
	if owner != nil && owner.member != nil && r.history.cut[owner].by != nil {
		parts = append(parts, "its refused tail is left out")
	}
	if !r.sound(c) {
		for _, name := range c.Source.Owners() {
			if f, ok := r.proof.discounted[r.source(name)]; ok {
				parts = append(parts, name+": "+f.Text)
			}
		}
	}
	c.Why = strings.Join(parts, "; ")
}

// describe says what it is made of.
func (s *Source) describe() string {
	base := "the database of " + s.Base.Owner
	switch {
	case s.Base.Backup != "":
		base = "backup " + s.Base.Backup
	case s.Base.Path == "":
		base = "nothing"
	}
	text := fmt.Sprintf("begun from %s at raft index %d", base, s.Base.Index)
	for _, p := range s.Log {
		text += fmt.Sprintf(", then the log of %s from %d to %d", p.Owner, p.First, p.Last)
	}
	return text
}

// findings are those of a source, with what the others say of it.
func (r *ranking) findings(s *source) []Finding {
	var all []Finding
	add := func(kind Kind, next, format string, args ...any) {
		all = append(all, Finding{kind, fmt.Sprintf(format, args...), next})
	}
	if s.archive != nil {
		all = slices.Clone(s.archive.Findings)
		if e := s.archive.Superseded; e != nil {
			add(KindSuperseded, "use the timeline that goes on", "this timeline has ended: %s goes on (%s)", e.By, e.Reason)
		}
		return all
	}
	all = slices.Clone(s.member.Findings)
	cut, end := r.history.cut[s], r.history.end().index
	if cut.by != nil {
		how := "and ends with a newer term"
		if cut.committed {
			how = "which are known to be committed"
		}
		add(KindRefused, "", "its last %s, from raft index %d on, were refused: %s holds others there, %s. They were never acknowledged, and are left out", entries(s.index-cut.index), cut.index+1, cut.by.what(), how)
	} else if cut.index < end {
		add(KindBehind, "", "it is %s behind %s", entries(end-cut.index), r.history.sources[0].what())
	}
	switch f := r.proof.discounted[s]; f.Kind {
	case KindRolledBack:
		add(f.Kind, "the archive has what it lost", "%s", f.Text)
	case KindCopy:
		add(f.Kind, "", "%s", f.Text)
	default: // its own findings say it
	}
	if r.removed(s) {
		add(KindRemoved, "", "member %s was removed from the cluster: it is no part of the newest membership that was found", s.member.MemberID)
	} else if s.member.Learner {
		add(KindLearner, "", "it is a learner: its data is as good as another's, but it does not count for the majority")
	}
	return all
}

// way returns the best way to the end of a log from a database of these owners, nil if there is none. Of
// several ways it is the one of fewer pieces, then the one with less to replay. If no database is in
// reach of the log itself, one survivor's log and one archive, of leads, may lead to it: a second
// survivor is needed if the database of the best log is damaged, and the log begins behind the others'.
func (r *ranking) way(s *source, from, leads []*source) *Source {
	var best *Source
	if slices.Contains(from, s) {
		for _, b := range r.images(s) {
			best = r.better(best, &Source{Base: b, Log: []Piece{}, Index: b.Index, Term: b.Term})
		}
	}
	for _, g := range s.ranges {
		best = r.better(best, r.upTo(s, g, min(g.Last, r.end(s)), from, leads))
	}
	if best != nil && len(best.Log) > 0 {
		best.Term = r.termOf(r.source(best.Log[len(best.Log)-1].Owner), best.Index)
	}
	return best
}

// upTo is the best way to an entry in a range of a log.
func (r *ranking) upTo(s *source, g Range, last uint64, from, leads []*source) (best *Source) {
	for _, o := range from {
		for _, b := range r.images(o) {
			if b.Index < last && r.begins(o, b, s, g) {
				best = r.better(best, &Source{Base: b, Log: []Piece{{s.name, b.Index + 1, last}}, Index: last})
			}
		}
	}
	for _, o := range leads {
		rest := slices.DeleteFunc(slices.Clone(leads), func(l *source) bool { return (l.archive == nil) == (o.archive == nil) })
		for _, h := range o.ranges {
			at := r.meet(o, h, s, g, last)
			if at == 0 {
				continue
			}
			if way := r.upTo(o, h, at, from, rest); way != nil {
				way.Log, way.Index = append(way.Log, Piece{s.name, at + 1, last}), last
				best = r.better(best, way)
			}
		}
	}
	return best
}

// meet is the last entry that ranges of two logs both hold, before another one; 0 if they do not meet.
func (r *ranking) meet(a *source, x Range, b *source, y Range, before uint64) uint64 {
	met := r.ties.relation(a, b)
	if a == b || met == nil || before == 0 {
		return 0
	}
	at := min(x.Last, y.Last, met.Last, r.end(a), before-1)
	if at < max(x.First, y.First, met.First, 1) {
		return 0
	}
	return at
}

// images are the databases of a source that may be begun from. What a database holds was committed,
// also beyond the end of its log.
func (r *ranking) images(s *source) (all []Base) {
	for _, b := range s.images {
		if b.Index <= r.end(s) && (r.target.Kind != walreplay.AtRevision || b.Revision <= r.target.Revision) {
			all = append(all, b)
		}
	}
	return all
}

// better is the better one of two ways; either may be nil.
func (r *ranking) better(a, b *Source) *Source {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	order := cmp.Compare(b.Index, a.Index)
	if r.target.Searches() { // the more of the log there is, the surer the point is in it
		order = cmp.Or(order, cmp.Compare(a.Base.Index, b.Base.Index))
	}
	if cmp.Or(order, cmp.Compare(len(a.Log), len(b.Log)), cmp.Compare(b.Base.Index, a.Base.Index)) <= 0 {
		return a
	}
	return b
}

// end is the last entry of a source that may be used.
func (r *ranking) end(s *source) uint64 {
	end := r.history.cut[s].index
	if r.until > 0 {
		end = min(end, r.until)
	}
	return end
}

// begins reports whether a range of a log goes on from a database: a member's own
// does, unless it holds another entry where the database ends; another's has to
// hold the very entry that the database ends with.
func (r *ranking) begins(owner *source, b Base, s *source, g Range) bool {
	term := s.termAt(b.Index)
	if s == owner {
		return g.First <= b.Index+1 && (term == 0 || term == b.Term)
	}
	return g.First <= b.Index && (term == b.Term || r.ties.joined(owner, s, b.Index))
}

// termOf is the term of a source's entry, as far as it is known.
func (r *ranking) termOf(s *source, index uint64) uint64 {
	if cut := r.history.cut[s]; cut.index == index && cut.term != 0 {
		return cut.term
	}
	if term := s.termAt(index); term != 0 {
		return term
	}
	for _, o := range r.history.sources {
		if m := r.ties.relation(s, o); m != nil && m.Last == index && m.LastTerm != 0 {
			return m.LastTerm
		}
		if o.index == index && r.ties.joined(s, o, index) {
			return o.term
		}
	}
	return 0
}

// Owners are those whose data a source is made of, in the order of their use:
// archives among them.
func (s *Source) Owners() []string {
	all := []string{s.Base.Owner}
	for _, p := range s.Log {
		if !slices.Contains(all, p.Owner) {
			all = append(all, p.Owner)
		}
	}
	return all
}

func (s *Source) name() string { return strings.Join(s.Owners(), "+") }
