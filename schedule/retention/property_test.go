package retention

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/segment"
)

// The model of the property test: a cluster is a list of moments, one for each
// raft index. What can be restored is found out index by index from what lies
// there: no spans, no ranges, no reach.
type model struct {
	*rand.Rand
	now  time.Time
	inv  *Inventory
	time map[repository.TimelineID][]time.Time // of each index, from 1 on
	ids  int
}

// has reports whether an object of the log holds an index.
func has(t *Timeline, index uint64) bool {
	return slices.ContainsFunc(t.Segments, func(s Segment) bool { return s.First <= index && index <= s.Last })
}

// restorable reports whether an index can be restored: a good backup is there, or
// is before it and the log holds every entry between.
func restorable(t *Timeline, index uint64) bool {
	for at := index; at > 0; at-- {
		if slices.ContainsFunc(t.Backups, func(b Backup) bool { return b.good() && b.Index == at }) {
			return true
		}
		if !has(t, at) {
			return false
		}
	}
	return false
}

// day lets a day pass: writes, segments, sometimes a gap, backups, verdicts, pins,
// a recovery.
func (m *model) day() {
	t := m.inv.Timelines[len(m.inv.Timelines)-1]
	for range 1 + m.IntN(4) {
		m.now = m.now.Add(time.Duration(1+m.IntN(9)) * time.Hour)
		first := uint64(len(m.time[t.ID]) + 1)
		last := first + uint64(m.IntN(4))
		for i := first; i <= last; i++ {
			m.time[t.ID] = append(m.time[t.ID], m.now)
		}
		t.see(m.now)
		switch m.IntN(20) {
		case 0: // lost
			t.Gaps = append(t.Gaps, repository.GapName{Timeline: t.ID, First: first, Last: last})
		default:
			t.Segments = append(t.Segments, Segment{Name: fmt.Sprint(t.ID, first), First: first, Last: last, Bytes: 1})
		}
		for range m.IntN(3) {
			m.backup(t, last)
		}
	}
	for _, t := range m.inv.Timelines {
		for i := range t.Backups {
			switch b := &t.Backups[i]; {
			case m.IntN(4) == 0 && b.good():
				b.Proved = true
			case m.IntN(60) == 0:
				b.Unusable, b.Proved = "verdict", false
			case m.IntN(80) == 0:
				b.Pin = !b.Pin
			case m.IntN(50) == 0:
				b.LockedUntil = m.now.Add(time.Duration(m.IntN(9)) * day)
			}
		}
	}
	if m.IntN(40) == 0 {
		next := repository.TimelineID{ClusterID: t.ID.ClusterID + 1, N: 1}
		t.By, t.Ended = next, m.now
		m.inv.Timelines = append(m.inv.Timelines, &Timeline{ID: next})
	}
	m.inv.Clock = m.now
	for _, t := range m.inv.Timelines {
		t.Coverage = nil
		for i := range uint64(len(m.time[t.ID])) {
			if n := len(t.Coverage); has(t, i+1) && n > 0 && t.Coverage[n-1].Last == i {
				t.Coverage[n-1].Last++
			} else if has(t, i+1) {
				t.Coverage = append(t.Coverage, segment.Range{First: i + 1, Last: i + 1})
			}
		}
	}
}

func (m *model) backup(t *Timeline, index uint64) {
	m.ids++
	b := Backup{Timeline: t.ID, ID: fmt.Sprint(m.ids), Taken: m.now.Add(-time.Minute), Finished: m.now, Index: index}
	if m.IntN(30) == 0 {
		b.Index, b.Unusable = 0, "manifest"
	}
	t.Backups = append(t.Backups, b)
	sortBackups(t.Backups)
}

func (m *model) policy() Policy {
	maybe := func(n int) int { return m.IntN(2) * m.IntN(n) }
	p := Policy{
		Last: maybe(5), Hourly: maybe(6), Daily: maybe(12), Weekly: maybe(5), Monthly: maybe(4), Minimum: maybe(4),
		AnyPoint: time.Duration(maybe(10)) * day, Within: time.Duration(maybe(20)) * day, Grace: time.Duration(maybe(49)) * time.Hour,
	}
	if p.Check() != nil {
		p.Last = 1
	}
	return p
}

// carryOut does what a plan says: no more, no less.
func (m *model) carryOut(p *Plan) {
	for _, t := range m.inv.Timelines {
		t.Backups = slices.DeleteFunc(t.Backups, func(b Backup) bool {
			gone := slices.ContainsFunc(p.Delete, func(l Deletion) bool { return l.Timeline == t.ID && l.Backup == b.ID })
			if gone {
				m.inv.Pruned = append(m.inv.Pruned, PrunedRecord{Timeline: t.ID, Backup: b.ID, RaftIndex: b.Index, Written: m.now})
			}
			return gone
		})
		for _, l := range p.Log {
			if l.Timeline == t.ID {
				t.Segments = slices.DeleteFunc(t.Segments, func(s Segment) bool { return s.Last < l.Before })
				t.Gaps = slices.DeleteFunc(t.Gaps, func(g repository.GapName) bool { return g.Last < l.Before })
			}
		}
	}
}

// TestPropertyRetention simulates months of a cluster under random policies, with
// gaps, recoveries, pins, locks, damage and verdicts, and prunes on most days.
//
//  1. Every point of the last AnyPoint that could be restored before can be after,
//     and so can the newest one.
//  2. Pinned and locked backups stay, and of each timeline the newest, the newest
//     good one, and the newest that was proved.
//  3. Of each of the newest n days (hours, weeks, months) with a good backup one is
//     left; the last n good ones are, and those within; the minimum is.
//  4. What no rule can ask for goes: at most so many backups and so much log stay.
//  5. To prune twice is to prune once.
func TestPropertyRetention(t *testing.T) {
	cuts, gone, recoveries := 0, 0, 0
	seeds := uint64(100)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		m := &model{Rand: rand.New(rand.NewPCG(seed, 1)), now: dawn, time: map[repository.TimelineID][]time.Time{}, inv: &Inventory{Timelines: []*Timeline{{ID: timelineA}}}}
		policy := m.policy()
		for n := range 90 {
			m.day()
			if m.IntN(3) == 0 {
				continue
			}
			plan := NewPlan(m.inv, policy, m.now)
			if plan.Refused != "" {
				t.Fatalf("seed %d, day %d, %+v: %s", seed, n, policy, plan.Refused)
			}
			before := m.copy()
			m.carryOut(plan)
			if text := m.lost(before, policy); text != "" {
				t.Fatalf("seed %d, day %d, %+v: %s\n%+v", seed, n, policy, text, plan)
			}
			if again := NewPlan(m.respan(), policy, m.now); len(again.Delete) > 0 {
				t.Fatalf("seed %d, day %d: a second run prunes %+v", seed, n, again.Delete)
			}
			cuts, gone = cuts+len(plan.Log), gone+len(plan.Delete)
		}
		recoveries += len(m.inv.Timelines) - 1
		if text := m.tooMuch(policy); text != "" {
			t.Fatalf("seed %d, %+v: %s", seed, policy, text)
		}
	}
	if n := int(seeds); cuts < 10*n || gone < 10*n || recoveries < n/2 {
		t.Errorf("%d cuts of the log, %d backups pruned, %d recoveries: too little was tried", cuts, gone, recoveries)
	}
}

func (m *model) copy() *Inventory {
	c := &Inventory{}
	for _, t := range m.inv.Timelines {
		one := *t
		one.Backups, one.Segments = slices.Clone(t.Backups), slices.Clone(t.Segments)
		c.Timelines = append(c.Timelines, &one)
	}
	return c
}

// respan lets the spans follow the segments.
func (m *model) respan() *Inventory {
	for _, t := range m.inv.Timelines {
		t.Coverage = slices.DeleteFunc(t.Coverage, func(r segment.Range) bool { return !has(t, r.Last) })
		for i := range t.Coverage {
			for !has(t, t.Coverage[i].First) {
				t.Coverage[i].First++
			}
		}
	}
	return m.inv
}

// lost says what should be there and is not.
func (m *model) lost(before *Inventory, p Policy) string {
	for n, old := range before.Timelines {
		t := m.inv.Timelines[n]
		moments := m.time[t.ID]
		recovered := t.By.N != 0
		last := uint64(0)
		for i := uint64(1); i <= uint64(len(moments)); i++ {
			if !restorable(old, i) {
				continue
			}
			last = i
			recent := p.AnyPoint > 0 && moments[i-1].After(t.Seen.Add(-p.AnyPoint))
			if recent && !recovered && !restorable(t, i) {
				return fmt.Sprintf("index %d of %s, of %s, can not be restored any more", i, t.ID, moments[i-1])
			}
		}
		if last > 0 && !recovered && !restorable(t, last) {
			return fmt.Sprintf("the newest point of %s, index %d, can not be restored any more", t.ID, last)
		}
		left := func(b Backup) bool {
			return slices.ContainsFunc(t.Backups, func(o Backup) bool { return o.ID == b.ID })
		}
		var newest, good, proved *Backup
		for i := range old.Backups {
			b := &old.Backups[i]
			if (b.Pin || b.LockedUntil.After(m.now)) && !left(*b) {
				return "a pinned or locked backup went: " + b.ID
			}
			newest = b
			if b.good() {
				good = b
			}
			if b.good() && b.Proved {
				proved = b
			}
		}
		for _, b := range []*Backup{newest, good, proved} {
			if b != nil && !left(*b) {
				return "the newest, newest good or newest proved backup went: " + b.ID
			}
		}
		if recovered {
			continue // its places are those of all that follow
		}
		if text := m.lostByRules(old, left, p); text != "" {
			return text
		}
	}
	return ""
}

// lostByRules counts periods and backups, the plain way.
func (m *model) lostByRules(old *Timeline, left func(Backup) bool, p Policy) string {
	for rule, n := range map[string]int{"2006-01-02T15": p.Hourly, "2006-01-02": p.Daily, "2006-01": p.Monthly, "week": p.Weekly} {
		name := func(b Backup) string {
			if rule == "week" {
				year, week := b.Taken.ISOWeek()
				return fmt.Sprintf("%04d %02d", year, week)
			}
			return b.Taken.Format(rule)
		}
		have := map[string]bool{} // period: one is left
		for _, b := range old.Backups {
			if b.good() {
				have[name(b)] = have[name(b)] || left(b)
			}
		}
		periods := []string{}
		for period := range have {
			periods = append(periods, period)
		}
		slices.Sort(periods)
		for i := len(periods) - 1; i >= 0 && i >= len(periods)-n; i-- {
			if !have[periods[i]] {
				return fmt.Sprintf("nothing is left of %s", periods[i])
			}
		}
	}
	var good []Backup
	for _, b := range old.Backups {
		if !b.good() {
			continue
		}
		good = append(good, b)
		if p.Within > 0 && b.Taken.After(old.Seen.Add(-p.Within)) && !left(b) {
			return "a backup within went: " + b.ID
		}
	}
	slices.SortStableFunc(good, func(a, b Backup) int { return a.Taken.Compare(b.Taken) })
	count := 0
	for i, b := range good {
		if left(b) {
			count++
		}
		if older := len(good) - i; older <= p.Last && !left(b) && good[max(0, i-1)].Taken != b.Taken && good[min(len(good)-1, i+1)].Taken != b.Taken {
			return "one of the last backups went: " + b.ID
		}
	}
	if count < min(p.Minimum, len(good)) {
		return fmt.Sprintf("%d good backups are left, of at least %d", count, p.Minimum)
	}
	return ""
}

// tooMuch says what is left although nobody asked for it.
func (m *model) tooMuch(p Policy) string {
	t := m.inv.Timelines[0]
	plan := NewPlan(m.inv, p, m.now)
	bound := 2*(p.Last+p.Hourly+p.Daily+p.Weekly+p.Monthly+p.Minimum) + 5
	extra := 0
	for _, b := range t.Backups {
		switch {
		case b.Pin, b.LockedUntil.After(m.now):
		case p.Within > 0 && !b.Taken.Before(t.Seen.Add(-p.Within)):
		case p.AnyPoint > 0 && !b.Taken.Before(t.Seen.Add(-p.AnyPoint-p.Grace-3*day)):
		case slices.ContainsFunc(plan.Delete, func(l Deletion) bool { return l.Timeline == t.ID && l.Backup == b.ID }):
		default:
			extra++
		}
	}
	if extra > bound {
		return fmt.Sprintf("%d backups are left that nobody asked for, of at most %d", extra, bound)
	}
	return ""
}
