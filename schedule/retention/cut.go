package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// cut is up to and with which index the log of a timeline goes, and why not
// further.
type cut struct {
	index uint64
	why   string
}

// cut decides how much of a timeline's log goes: what no promised point needs,
// and nothing that what was pruned a short while ago still leads to.
func (d *decision) cut(t *Timeline) {
	c, ok := d.firstNeeded(t)
	if !ok || t.Unread || t.Held != "" {
		return
	}
	now := t.holding(every, 0)
	limit := func(index uint64, why string) {
		if index < c.index && now.reach(index) > index {
			c = cut{index, why}
		}
	}
	if d.policy.Grace > 0 {
		for _, l := range d.plan.Delete {
			if l.Timeline == t.ID && l.Index > 0 {
				limit(l.Index, fmt.Sprintf("a restore from backup %s, which is pruned, may be under way", l.Backup))
			}
		}
	}
	for _, r := range d.inv.Pruned {
		if waiting := d.inGrace(t, r); waiting && r.RaftIndex == 0 {
			return
		} else if waiting {
			limit(r.RaftIndex, fmt.Sprintf("a restore from backup %s, which was pruned, may be under way", r.Backup))
		}
	}
	l := t.upTo(c)
	if l.Segments+l.Marks+l.Gaps == 0 {
		return
	}
	d.cuts[t] = c
	d.plan.Log = append(d.plan.Log, l)
}

// inGrace says that a backup was pruned so short ago that its object stays.
func (d *decision) inGrace(t *Timeline, r PrunedRecord) bool {
	return r.Timeline == t.ID && d.inv.backup(t.ID, r.Backup) == nil && r.Written.Add(d.policy.Grace).After(d.inv.Clock)
}

// firstNeeded is the index of the full snapshot from which on the log is needed;
// false where nothing shows it.
func (d *decision) firstNeeded(t *Timeline) (cut, bool) {
	var bases []cut
	switch begin, promised := d.begin(t); {
	case promised:
		for _, counts := range []func(Backup) bool{Backup.timely, Backup.good, every} {
			b := t.before(begin, counts)
			if b == nil {
				b = t.oldest(counts)
			}
			if b != nil {
				bases = append(bases, cut{b.Index, "every promised point is reached from backup " + b.ID})
			}
		}
		if t.oldest(Backup.good) == nil {
			return cut{}, false
		}
		if b := t.newest(func(b Backup) bool { return b.good() && b.Proved }); b != nil {
			bases = append(bases, cut{b.Index, "the newest backup that passed structure is " + b.ID})
		}
	case d.policy.AnyPoint > 0: // superseded long ago: backups alone are kept
		if len(t.Backups) == 0 {
			return cut{}, false
		}
		return cut{t.end(), "the timeline was superseded, and no point of it is promised any more"}, true
	default:
		for i := range t.Backups {
			if b := &t.Backups[i]; b.known() && slices.ContainsFunc(d.reasons[b], func(r string) bool { return r != reasonPinned && r != reasonInClear }) {
				bases = append(bases, cut{b.Index, "the oldest backup that is kept is " + b.ID})
			}
		}
	}
	if len(bases) == 0 {
		return cut{}, false
	}
	return slices.MinFunc(bases, func(a, b cut) int {
		if a.index < b.index {
			return -1
		}
		return 1
	}), true
}

// oldest is the first of a timeline's backups that counts, or nil.
func (t *Timeline) oldest(counts func(Backup) bool) *Backup {
	for i := range t.Backups {
		if b := &t.Backups[i]; b.known() && counts(*b) {
			return b
		}
	}
	return nil
}

// upTo is what of a log goes.
func (t *Timeline) upTo(c cut) LogCut {
	l := LogCut{Timeline: t.ID, Before: c.index + 1, Why: c.why}
	for _, s := range t.goneSegments(c.index) {
		l.Segments++
		l.Bytes += s.Bytes
	}
	l.Marks, l.Gaps = len(t.goneMarks(c.index)), len(t.goneGaps(c.index))
	return l
}

// goneSegments are those that end at an index or before, in the order in which
// they go: whatever of them is gone, what is left is an end of the log.
func (t *Timeline) goneSegments(index uint64) []Segment {
	var all []Segment
	for _, s := range t.Segments {
		if s.Last > 0 && s.Last <= index {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b Segment) int { return cmp.Compare(a.Last, b.Last) })
	return all
}

// goneMarks are the marks before an index: those at it show when the first state
// that stays was there.
func (t *Timeline) goneMarks(index uint64) []string {
	var all []string
	for _, m := range t.Marks {
		if m.Index < index {
			all = append(all, m.String())
		}
	}
	return all
}

// goneGaps are the records of gaps around which no log is left.
func (t *Timeline) goneGaps(index uint64) []string {
	var all []string
	for _, g := range t.Gaps {
		if g.Last <= index {
			all = append(all, g.String())
		}
	}
	return all
}

// check holds the plan against the promises: one that breaks them is a bug of the
// planner, or was changed. It looks at what can be restored before and after, and
// shares nothing with what decided but that.
func (d *decision) check() error {
	for _, t := range d.inv.Timelines {
		after := func(b Backup) bool { return !d.plan.deletes(b.Timeline, b.ID) }
		if text := d.broken(t, after, d.cuts[t].index); text != "" {
			return fmt.Errorf("the plan would break a promise, so nothing is deleted (please report this): timeline %s: %s", t.ID, text)
		}
	}
	return nil
}

// broken says which promise to a timeline does not hold with the backups that
// stay, and without the log up to cut; empty where all do.
func (d *decision) broken(t *Timeline, stays func(Backup) bool, cut uint64) string {
	for _, b := range t.Backups {
		switch {
		case stays(b):
		case b.Pin:
			return "backup " + b.ID + " is pinned"
		case b.InClear:
			return "backup " + b.ID + " is in the clear though an older one is encrypted"
		}
	}
	if text := d.brokenNewest(t, stays); text != "" {
		return text
	}
	if text := d.brokenMinimum(t, stays); text != "" {
		return text
	}
	for _, good := range []func(Backup) bool{Backup.timely, Backup.good, every} {
		before := t.holding(good, 0).ranges()
		after := t.holding(func(b Backup) bool { return good(b) && stays(b) }, cut).ranges()
		if len(before) == 0 {
			continue
		}
		from := d.promisedFrom(t, good)
		if lost := missing(before, after, from); from > 0 && lost > 0 {
			return fmt.Sprintf("raft index %d is within the promised window, can be restored now, and could not any more", lost)
		}
	}
	return ""
}

// promisedFrom is the index from which on every point that can be restored is
// promised; 0 where none is.
func (d *decision) promisedFrom(t *Timeline, good func(Backup) bool) uint64 {
	if d.policy.AnyPoint > 0 && d.expired(t) {
		return 0
	}
	var from, newest uint64
	// Without a grace time: that is not promised.
	begin := d.seen([]*Timeline{t}).Add(-d.policy.AnyPoint)
	for _, b := range t.Backups {
		if !good(b) || !b.known() {
			continue
		}
		newest = max(newest, b.Index)
		if at := later(b.Taken, b.Finished); !at.After(begin) {
			from = max(from, b.Index)
		}
	}
	if d.policy.AnyPoint == 0 {
		return newest // the end of the log at least
	}
	return max(from, 1)
}

func later(times ...time.Time) time.Time   { return slices.MaxFunc(times, time.Time.Compare) }
func earlier(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

func (d *decision) brokenNewest(t *Timeline, stays func(Backup) bool) string {
	var newest, proved, good uint64
	var last time.Time
	for _, b := range t.Backups {
		last = later(last, b.Taken)
		newest = max(newest, b.Index)
		if b.good() && b.Proved {
			proved = max(proved, b.Index)
		}
		if b.good() {
			good = max(good, b.Index)
		}
	}
	for _, one := range []struct {
		what string
		is   func(Backup) bool
	}{
		{"the newest", func(b Backup) bool { return b.Index == newest }},
		{"the last", func(b Backup) bool { return b.Taken.Equal(last) }},
		{"the newest that passed structure", func(b Backup) bool { return proved == 0 || b.Index == proved && b.good() && b.Proved }},
		{"the newest that is not damaged", func(b Backup) bool { return good == 0 || b.Index == good && b.good() }},
	} {
		if len(t.Backups) > 0 && !slices.ContainsFunc(t.Backups, func(b Backup) bool { return one.is(b) && stays(b) }) {
			return one.what + " backup would go"
		}
	}
	return ""
}

// brokenMinimum counts the good backups that stay. Those of timelines that go on
// instead of this one count for it.
func (d *decision) brokenMinimum(t *Timeline, stays func(Backup) bool) string {
	before, after := 0, 0
	for _, one := range d.inv.line(t) {
		for _, b := range one.Backups {
			if !b.good() {
				continue
			}
			before++
			if one == t && stays(b) || one != t && !d.plan.deletes(b.Timeline, b.ID) {
				after++
			}
		}
	}
	if want := min(d.policy.Minimum, before); after < want {
		return fmt.Sprintf("%d good backups would be left, of at least %d", after, want)
	}
	return ""
}
