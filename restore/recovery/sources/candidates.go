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

// need is the end of the best log that counts.
func (r *ranking) need() uint64 {
	var index uint64
	for _, s := range r.proof.witnesses {
		index = max(index, r.history.cut[s].index)
	}
	return index
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
	var use []*source
	reach := uint64(0)
	for _, s := range r.history.sources {
		c := Candidate{Name: s.name, Kind: FromSurvivor, Findings: r.findings(s)}
		if s.archive != nil {
			c.Kind = FromArchive
		}
		c.Source = composer{r.history, r.ties, []*source{s}, r.until, r.target}.best()
		if !r.removed(s) {
			use = append(use, s)
			if c.Source != nil {
				reach = max(reach, c.Source.Index)
			}
		}
		all = append(all, c)
	}
	whole := composer{r.history, r.ties, use, r.until, r.target}
	if s := whole.best(); s != nil && len(s.Owners()) > 1 && (s.Index > reach || whole.target.Searches() && !slices.ContainsFunc(all, func(c Candidate) bool {
		return c.Source != nil && !whole.better(s, c.Source)
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
	case r.proof.proven && index >= r.need():
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
	full := func(c *Candidate) bool { return r.proof.proven && r.sound(c) && c.Source.Index >= r.need() }
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
		if i.Index > c.end(owner) || c.target.Kind == walreplay.AtRevision && i.Revision > c.target.Revision {
			continue
		}
		if s := c.from(owner, i); c.better(s, best) {
			best = s
		}
	}
	return best
}

func (c composer) better(s, than *Source) bool {
	// The point is looked for in the log: the more of it there is, the surer it is in it.
	if than != nil && s.Index == than.Index && c.target.Searches() && s.Base.Index != than.Base.Index {
		return s.Base.Index < than.Base.Index
	}
	return s.better(than)
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
		for _, r := range s.ranges {
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

// begins reports whether a range of a log goes on from a database: a member's own
// does, unless it holds another entry where the database ends; another's has to
// hold the very entry that the database ends with.
func (c composer) begins(owner *source, b Base, s *source, r Range) bool {
	term := s.termAt(b.Index)
	if s == owner {
		return term == 0 || term == b.Term
	}
	if r.First > b.Index {
		return false
	}
	return term == b.Term || c.ties.joined(owner, s, b.Index)
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
