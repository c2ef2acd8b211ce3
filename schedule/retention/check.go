package retention

import (
	"fmt"
	"slices"
	"time"
)

// PromiseError says that a plan would break what was promised: a bug of the
// planner, or a plan that was changed. Nothing is deleted.
type PromiseError struct {
	Timeline string
	Text     string
}

func (e *PromiseError) Error() string {
	return fmt.Sprintf("the plan would break a promise, so nothing is deleted (please report this): timeline %s: %s", e.Timeline, e.Text)
}

// check holds the plan against the promises. It looks at what can be restored
// before and after, and shares nothing with what decided but that.
func (d *decision) check() error {
	for _, t := range d.inv.Timelines {
		after := func(b Backup) bool { return !d.goes(b) }
		if text := d.broken(t, after, d.cuts[t].index); text != "" {
			return &PromiseError{t.ID.String(), text}
		}
	}
	return nil
}

// goes tells that the plan's own list names a backup.
func (d *decision) goes(b Backup) bool {
	return slices.ContainsFunc(d.plan.Let, func(l Let) bool { return l.Timeline == b.Timeline && l.Backup == b.ID })
}

// broken says which promise to a timeline does not hold with the backups that
// stay, and without the log up to cut; empty where all do.
func (d *decision) broken(t *Timeline, stays func(Backup) bool, cut uint64) string {
	for _, b := range t.Backups {
		if b.Pin && !stays(b) {
			return "backup " + b.ID + " is pinned"
		}
	}
	if text := d.brokenNewest(t, stays); text != "" {
		return text
	}
	if text := d.brokenMinimum(t, stays); text != "" {
		return text
	}
	for _, good := range []func(Backup) bool{Backup.good, every} {
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

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (d *decision) brokenNewest(t *Timeline, stays func(Backup) bool) string {
	var newest, proved, read uint64
	var last time.Time
	for _, b := range t.Backups {
		last = later(last, b.Taken)
		newest = max(newest, b.Index)
		if b.good() && b.Proved {
			proved = max(proved, b.Index)
		}
		if b.good() && !b.Synthetic {
			read = max(read, b.Index)
		}
	}
	for _, one := range []struct {
		what string
		is   func(Backup) bool
	}{
		{"the newest", func(b Backup) bool { return b.Index == newest }},
		{"the last", func(b Backup) bool { return b.Taken.Equal(last) }},
		{"the newest that passed structure", func(b Backup) bool { return proved == 0 || b.Index == proved && b.good() && b.Proved }},
		{"the newest that was read from a member", func(b Backup) bool { return read == 0 || b.Index == read && b.good() && !b.Synthetic }},
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
			if one == t && stays(b) || one != t && !d.goes(b) {
				after++
			}
		}
	}
	if want := min(d.policy.Minimum, before); after < want {
		return fmt.Sprintf("%d good backups would be left, of at least %d", after, want)
	}
	return ""
}
