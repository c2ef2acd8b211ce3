package retention

import (
	"slices"
	"time"
)

// Reasons beside the names of rules.
const (
	reasonPinned   = "pinned"
	reasonNewest   = "newest"
	reasonGood     = "newest that is not damaged"
	reasonRead     = "newest that was read from a member"
	reasonProved   = "newest that passed structure"
	reasonMinimum  = "minimum"
	reasonAnyPoint = "any point"
)

// keep finds out which backups of a timeline stay. Rules count twice: once good
// backups alone, so that damaged ones take nobody's place, and once all, so that
// damage lets nothing go sooner: a verdict may be wrong.
func (d *decision) keep(t *Timeline) {
	line := d.inv.line(t)
	for _, counts := range []func(Backup) bool{Backup.good, every} {
		all := datedOf(line, counts)
		d.policy.apply(all, d.seen(line), d.because)
		for i, one := range all {
			if i < d.policy.Minimum && one.own {
				d.because(one.Backup, reasonMinimum)
			}
		}
		d.keepWindow(t, counts)
	}
	d.protect(t)
}

// protect keeps what never goes.
func (d *decision) protect(t *Timeline) {
	for i := range t.Backups {
		if t.Backups[i].Pin {
			d.because(&t.Backups[i], reasonPinned)
		}
	}
	for _, one := range []struct {
		reason string
		pass   func(Backup) bool
	}{
		{reasonNewest, every},
		{reasonGood, Backup.good},
		{reasonRead, func(b Backup) bool { return b.good() && !b.Synthetic }},
		{reasonProved, func(b Backup) bool { return b.good() && b.Proved }},
	} {
		if b := t.newest(one.pass); b != nil {
			d.because(b, one.reason)
		}
	}
	// Where a damaged manifest stands among the others only the time in its ID
	// tells, and in doubt it is the newest.
	if len(t.Backups) > 0 {
		b := slices.MaxFunc(t.Backups, func(a, b Backup) int { return a.Taken.Compare(b.Taken) })
		d.because(d.inv.backup(t.ID, b.ID), reasonNewest)
	}
}

// keepWindow keeps the backups that every promised point needs: the newest that
// was finished before the window begins, and of those behind it each that the log
// does not lead to.
func (d *decision) keepWindow(t *Timeline, counts func(Backup) bool) {
	begin, ok := d.begin(t)
	if !ok {
		return
	}
	first := t.before(begin, counts)
	h := t.holding(counts, 0)
	reach, started := uint64(0), false
	for i := range t.Backups {
		b := &t.Backups[i]
		if !b.known() || !counts(*b) || first != nil && b.Index < first.Index || first != nil && b.Index == first.Index && b.ID != first.ID {
			continue
		}
		if !started || b.Index > reach {
			d.because(b, reasonAnyPoint)
		}
		started, reach = true, max(reach, h.reach(b.Index))
	}
}

// before is the newest backup that was finished at a time; nil where there is
// none.
func (t *Timeline) before(begin time.Time, counts func(Backup) bool) *Backup {
	return t.newest(func(b Backup) bool { return b.known() && counts(b) && !b.Finished.After(begin) })
}

// seen is when any of a line's clusters was last observed, but never in the
// planner's future: a clock that is ahead somewhere lets nothing go sooner.
func (d *decision) seen(line []*Timeline) time.Time {
	var last time.Time
	for _, t := range line {
		if t.Seen.After(last) {
			last = t.Seen
		}
	}
	if last.After(d.now) {
		return d.now
	}
	return last
}

// begin is since when every point of a timeline is promised; false where none
// is. The log stays a grace time longer than promised, so that a restore of the
// oldest promised point can end.
func (d *decision) begin(t *Timeline) (time.Time, bool) {
	if d.policy.AnyPoint == 0 || d.expired(t) {
		return time.Time{}, false
	}
	return d.seen([]*Timeline{t}).Add(-d.policy.AnyPoint - d.policy.Grace), true
}

// expired tells that a timeline was superseded for so long that no point of it
// is promised any more, as far as observations of those that go on show. While
// these have no good backup, its end is all that can be restored.
func (d *decision) expired(t *Timeline) bool {
	if t.By.N == 0 || !slices.ContainsFunc(d.inv.line(t)[1:], func(next *Timeline) bool { return next.newest(Backup.good) != nil }) {
		return false
	}
	ended := t.Ended
	if t.Seen.After(ended) {
		ended = t.Seen
	}
	return d.seen(d.inv.line(t)).After(ended.Add(max(d.policy.AnyPoint, d.policy.Within) + d.policy.Grace))
}
