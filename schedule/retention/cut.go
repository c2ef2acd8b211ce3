package retention

import (
	"fmt"
	"slices"
)

// cut is up to and with which index the log of a timeline goes, and why not
// further.
type cut struct {
	index uint64
	why   string
}

// cut decides how much of a timeline's log goes: what no promised point needs,
// and nothing that what was let go a short while ago still leads to.
func (d *decision) cut(t *Timeline) {
	c, ok := d.firstNeeded(t)
	if !ok {
		return
	}
	now := t.holding(every, 0)
	limit := func(index uint64, why string) {
		if index < c.index && now.reach(index) > index {
			c = cut{index, why}
		}
	}
	if d.policy.Grace > 0 {
		for _, l := range d.plan.Let {
			if l.Timeline == t.ID && l.Index > 0 {
				limit(l.Index, fmt.Sprintf("a restore from backup %s, which is let go, may be under way", l.Backup))
			}
		}
	}
	for _, r := range d.inv.Pruned {
		if waiting := d.inGrace(t, r); waiting && r.RaftIndex == 0 {
			return
		} else if waiting {
			limit(r.RaftIndex, fmt.Sprintf("a restore from backup %s, which was let go, may be under way", r.Backup))
		}
	}
	l := t.upTo(c)
	if l.Segments+l.Marks+l.Gaps == 0 {
		return
	}
	d.cuts[t] = c
	d.plan.Log = append(d.plan.Log, l)
}

// inGrace tells that a backup was let go so short ago that its object stays.
func (d *decision) inGrace(t *Timeline, r PrunedRecord) bool {
	return r.Timeline == t.ID && d.inv.backup(t.ID, r.Backup) == nil && r.Written.Add(d.policy.Grace).After(d.inv.Clock)
}

// firstNeeded is the index of the full snapshot from which on the log is needed;
// false where nothing tells.
func (d *decision) firstNeeded(t *Timeline) (cut, bool) {
	var bases []cut
	switch begin, promised := d.begin(t); {
	case promised:
		for _, counts := range []func(Backup) bool{Backup.good, every} {
			b := t.before(begin, counts)
			if b == nil {
				b = t.oldest(counts)
			}
			if b == nil {
				return cut{}, false
			}
			bases = append(bases, cut{b.Index, "every promised point is reached from backup " + b.ID})
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
			if b := &t.Backups[i]; b.known() && d.stays(b) && !slices.Equal(d.reasons[b], []string{reasonPinned}) {
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
	slices.SortStableFunc(all, func(a, b Segment) int {
		if a.Last != b.Last && a.Last < b.Last {
			return -1
		} else if a.Last != b.Last {
			return 1
		}
		return 0
	})
	return all
}

// goneMarks are the marks before an index: those at it tell when the first state
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
