package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// dated is a backup in the order in which rules count: the newest first.
type dated struct {
	*Backup
	own bool // of the timeline that is asked for, not of one that goes on in its stead
}

// datedOf are the backups that count of a line of timelines.
func datedOf(line []*Timeline, counts func(Backup) bool) []dated {
	var all []dated
	for i, t := range line {
		for n := range t.Backups {
			if b := &t.Backups[n]; counts(*b) {
				all = append(all, dated{b, i == 0})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b dated) int {
		return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(b.Index, a.Index), cmp.Compare(b.ID, a.ID))
	})
	return all
}

// period is a rule that keeps one backup of each of the newest n periods.
type period struct {
	name string
	n    int
	key  func(time.Time) string
}

func (p Policy) periods() []period {
	at := func(layout string) func(time.Time) string {
		return func(t time.Time) string { return t.In(p.zone()).Format(layout) }
	}
	return []period{
		{"hourly", p.Hourly, at("2006-01-02T15 -0700")}, // an hour that comes twice is two
		{"daily", p.Daily, at("2006-01-02")},
		{"weekly", p.Weekly, func(t time.Time) string {
			year, week := t.In(p.zone()).ISOWeek()
			return fmt.Sprintf("%d-W%02d", year, week)
		}},
		{"monthly", p.Monthly, at("2006-01")},
	}
}

// apply notes for each backup of all which rules keep it. newest is when the
// line's clusters were last observed.
func (p Policy) apply(all []dated, newest time.Time, keep func(*Backup, string)) {
	note := func(d dated, reason string) {
		if d.own {
			keep(d.Backup, reason)
		}
	}
	for i, d := range all {
		if i < p.Last {
			note(d, "last")
		}
		if p.Within > 0 && !d.Taken.Before(newest.Add(-p.Within)) {
			note(d, "within")
		}
	}
	for _, rule := range p.periods() {
		for i, d := range rule.chosen(all) {
			if i < rule.n {
				note(d, rule.name)
			}
		}
	}
}

// chosen is one backup of each period, the newest period first: the newest that
// was read from a member, or else the newest.
func (r period) chosen(all []dated) []dated {
	var chosen []dated
	last := ""
	for _, d := range all {
		key := r.key(d.Taken)
		switch n := len(chosen); {
		case n == 0 || key != last:
			chosen, last = append(chosen, d), key
		case chosen[n-1].Synthetic && !d.Synthetic:
			chosen[n-1] = d
		}
	}
	return chosen
}
