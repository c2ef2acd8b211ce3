package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/snapshot"
)

// proof is what shows, or does not show, that a history's best log holds every
// write that was ever acknowledged.
type proof struct {
	proven bool
	why    string
	// steps are the memberships that may have been in force.
	steps     []Membership
	witnesses []*source            // whose logs count, one for each member
	ids       map[snapshot.ID]bool // of these
	// discounted are survivors whose logs do not count, with the reason.
	discounted map[*source]Finding
	beyond     *Remains // whose database reaches furthest, of those that have no log
}

// prove applies raft's own argument. An acknowledged write is in the logs of a
// majority of the voters. Any other majority shares a member with that one, and
// of the logs of a majority the one that ends with the highest term, and then the
// highest index, holds all that any of them acknowledged: it is the one that these
// members would elect.
// A database without a log, of bare, is no witness, but can show that these were
// rolled back.
func (h *history) prove(bare []*Remains) *proof {
	p := &proof{ids: map[snapshot.ID]bool{}, discounted: map[*source]Finding{}}
	p.steps = h.memberships()
	p.findWitnesses(h)
	p.findBeyond(bare)
	switch {
	case len(h.survivors()) == 0:
		p.why = "no member's log was found: what was acknowledged after the end of the archive is missing"
		if end := h.archiveEnd(); end != "" {
			p.why += " (" + end + ")"
		}
		return p
	case len(p.steps) == 0:
		p.why = "who the voters were is not known for sure: no database with an unbroken log after it shows it"
		return p
	}
	var read, short []string
	for _, s := range p.steps {
		text, enough := p.count(s, s.Voters())
		read = append(read, text)
		if !enough {
			short = append(short, text)
		}
	}
	if len(short) > 0 {
		p.why = short[0] + p.doubts(h)
		return p
	}
	if text := cmp.Or(p.rolledBack(h), p.overtaken(h)); text != "" {
		p.why = text
		return p
	}
	p.proven = true
	p.why = strings.Join(slices.Compact(read), "; ") + ": every acknowledged write is in one of these logs, and the one that would win their election holds them all" + h.forcedNote()
	return p
}

// findWitnesses are the survivors whose logs count. Of two copies of one member the
// newer one does, which is not known where one of them lost its end.
func (p *proof) findWitnesses(h *history) {
	torn := map[snapshot.ID]*source{}
	for _, s := range h.survivors() {
		if s.member.Log == nil || !s.whole() {
			torn[s.member.MemberID] = s
		}
	}
	for _, s := range h.survivors() {
		other := torn[s.member.MemberID]
		switch kind, reason := h.discount(s); {
		case reason != "":
			p.discounted[s] = Finding{Kind: kind, Text: reason}
		case other != nil:
			p.discounted[s] = Finding{Kind: KindCopy, Text: fmt.Sprintf("%s is of the same member, and what its log held behind the damage may be newer: leave that one out if it is known to be the older copy", other.name)}
		case p.ids[s.member.MemberID]:
			p.discounted[s] = Finding{Kind: KindCopy, Text: "it is a second copy of a member that was counted already"}
		default:
			p.ids[s.member.MemberID] = true
			p.witnesses = append(p.witnesses, s)
		}
	}
}

// discount says why a survivor's log is no witness; empty where it is one.
func (h *history) discount(s *source) (Kind, string) {
	m := s.member
	switch {
	case m.Log == nil:
		return KindNoLog, "it has no log that can be read"
	case m.Log.Damage != nil:
		return KindBrokenLog, "its log is damaged: what was behind the damage is not known"
	case !s.whole():
		return KindCutLog, "its log was cut off or rolled back"
	case m.has(KindMixed):
		return KindMixed, "its database and its log are not of one history"
	case m.has(KindUnshown):
		return KindUnshown, "nothing shows that its log is whole and goes with its database"
	}
	for _, o := range h.sources {
		if o.archive == nil {
			continue
		}
		for _, held := range o.archive.Held {
			if held.Member == m.MemberID && held.Index > m.Log.LastIndex {
				return KindRolledBack, fmt.Sprintf("its log ends with raft index %d, and %s has entries up to %d that were read from this very log: it was rolled back, or its disk did not keep them", m.Log.LastIndex, o.what(), held.Index)
			}
		}
	}
	return "", ""
}

// count says how many of some voters were read.
func (p *proof) count(s Membership, voters []snapshot.ID) (text string, enough bool) {
	var read, names []string
	for _, id := range voters {
		name := id.String()
		if m := s.Find(id); m != nil {
			name = MemberName(*m)
		}
		names = append(names, name)
		if p.ids[id] {
			read = append(read, name)
		}
	}
	need := Majority(len(voters))
	list := "none"
	if len(read) > 0 {
		list = strings.Join(read, ", ")
	}
	text = fmt.Sprintf("of the %d voters %s the logs of %d were read whole (%s), and a majority is %d", len(voters), strings.Join(names, ", "), len(read), list, need)
	if len(voters) == 1 {
		text = fmt.Sprintf("the only voter is %s, whose log was read whole", names[0])
		if len(read) == 0 {
			text = fmt.Sprintf("the log of the only voter, %s, does not count", names[0])
		}
	}
	return text, len(read) >= need
}

// doubts say, without a majority, which writes may be missing and which unacknowledged
// ones may be there.
func (p *proof) doubts(h *history) string {
	text := ": writes that were acknowledged by others alone may be missing"
	end, known := h.end().index, h.committed()
	if end > known && len(h.survivors()) > 0 {
		text += fmt.Sprintf("; and the last %s, after raft index %d up to which all are known to be committed, may hold writes that the cluster refused", entries(end-known), known)
	}
	for _, s := range h.survivors() {
		if f, ok := p.discounted[s]; ok {
			text += fmt.Sprintf("; %s does not count: %s", s.name, f.Text)
		}
	}
	for _, s := range h.unconnected {
		if s.member != nil {
			text += fmt.Sprintf("; %s does not count: nothing shows that its log is of the same history", s.name)
		}
	}
	return text
}

// rolledBack says that the witnesses cannot all be what they were: of a committed
// entry at most a minority of the voters may lack.
func (p *proof) rolledBack(h *history) string {
	committed := h.committed()
	if !slices.ContainsFunc(p.witnesses, func(s *source) bool { return h.cut[s].index >= committed }) {
		return fmt.Sprintf("raft index %d is known to be committed, and none of the logs of a majority (%s) reaches it: members were rolled back to an older state, and what they had acknowledged since may be missing", committed, strings.Join(sourceNames(p.witnesses), ", "))
	}
	newest := p.steps[len(p.steps)-1]
	if len(p.steps) != 1 || newest.Index > committed {
		return ""
	}
	voters := newest.Voters()
	var lack []string
	for _, s := range p.witnesses {
		if slices.Contains(voters, s.member.MemberID) && h.cut[s].index < committed {
			lack = append(lack, fmt.Sprintf("%s (to %d)", s.name, h.cut[s].index))
		}
	}
	if most := len(voters) - Majority(len(voters)); len(lack) > most {
		return fmt.Sprintf("raft index %d is known to be committed, so that at most %d of %d voters can lack it, but these do: %s. At least one of them was rolled back to an older state, and what it had acknowledged since may be missing",
			committed, most, len(voters), strings.Join(lack, ", "))
	}
	return ""
}

// overtaken says that a database holds more than any of the logs that count, which
// it got from a log that is gone: a member applies what is committed only.
func (p *proof) overtaken(h *history) string {
	if p.beyond == nil || slices.ContainsFunc(p.witnesses, func(s *source) bool { return h.cut[s].index >= p.beyond.newest().Index }) {
		return ""
	}
	return fmt.Sprintf("the database of %s holds what was committed up to raft index %d, and none of the logs of a majority (%s) reaches that: members were rolled back to an older state, and what they had acknowledged since may be missing",
		p.beyond.Name, p.beyond.newest().Index, strings.Join(sourceNames(p.witnesses), ", "))
}

// findBeyond finds the database without a log that reaches furthest.
func (p *proof) findBeyond(bare []*Remains) {
	for _, m := range bare {
		if db := m.newest(); db != nil && p.sharesMembers(m) && (p.beyond == nil || p.beyond.newest().Index < db.Index) {
			p.beyond = m
		}
	}
}

// staleAfter is how much earlier than another log one may have been written last: members that
// run write the same entries, within moments.
const staleAfter = 10 * time.Minute

// stale names the logs that count and were written last long before others. Such a member was
// down then, or the directory is an old copy: which of them, no file shows.
func (p *proof) stale() (all []string) {
	var newest *source
	for _, s := range p.witnesses {
		if newest == nil || s.member.Written.After(newest.member.Written) {
			newest = s
		}
	}
	for _, s := range p.witnesses {
		if at := s.member.Written; !at.IsZero() && newest.member.Written.Sub(at) > staleAfter {
			all = append(all, fmt.Sprintf("the log of %s was last written at %s, and that of %s at %s: if %s ran after that, its directory is an old copy, and what it acknowledged since may be lost",
				s.name, instant(at), newest.name, instant(newest.member.Written), s.name))
		}
	}
	return all
}

// sharesMembers reports whether a database is of the cluster that the proof is about:
// the IDs of members are of one cluster alone.
func (p *proof) sharesMembers(m *Remains) bool {
	return slices.ContainsFunc(p.steps, func(s Membership) bool {
		return slices.ContainsFunc(s.Members, func(o snapshot.Member) bool { return m.Membership.Find(o.ID) != nil })
	})
}

// forcedNote says what a proof does not speak of.
func (h *history) forcedNote() string {
	for _, s := range h.sources {
		if n := len(s.forced); n > 0 {
			return fmt.Sprintf(". It speaks of the cluster that began when %s was started with --force-new-cluster, at raft index %d: what that dropped was lost then", s.name, s.forced[0])
		}
	}
	return ""
}

// archiveEnd says until when the archive saw the cluster.
func (h *history) archiveEnd() string {
	var at Observation
	for _, s := range h.sources {
		if s.archive != nil && !s.archive.Seen.Time.IsZero() && s.archive.Seen.Time.After(at.Time) {
			at = s.archive.Seen
		}
	}
	if at.Time.IsZero() {
		return ""
	}
	return fmt.Sprintf("the cluster was last seen at %s, at raft index %d", instant(at.Time), at.Index)
}

func sourceNames(all []*source) []string {
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}
