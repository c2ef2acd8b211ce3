// Package retention prunes old backups and old log, and never more than was
// promised to stay.
//
// What it promises:
//
//  1. What is kept is said, and checked, as what can still be restored: with
//     Policy.AnyPoint every point from that long before the end on that could be
//     restored before can be restored afterwards, from full snapshots that are not
//     known to be damaged. A plan that would break this is refused, by NewPlan and
//     once more by Execute.
//  2. Some backups never go, whatever the policy says: the newest of a timeline,
//     the newest that was read from a member, the newest that passed the level
//     structure, and pinned ones. A damaged backup counts for nothing, and goes no
//     sooner than a good one in its place would.
//  3. Planning reads, and Execute deletes. Execute looks again before it deletes
//     anything: what was pinned, damaged or deleted since is taken into account,
//     and no backup goes that the plan does not name.
//  4. Execute may be killed at any point and run again. At no point is a backup
//     listed that cannot be restored. The record comes first, then the manifest,
//     the object a grace time later, then the log (docs/format.md).
//  5. What is old is decided by the place's own clock for what is deleted without a
//     policy (interrupted uploads, the grace time), and by the cluster's last
//     observation for the policy: while nothing new is stored, nothing goes.
//
// The caller owes: one policy for one repository. Two hosts that prune at once
// with the same policy do no harm.
package retention

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy is what is to stay. What no part of it keeps may go.
type Policy struct {
	// AnyPoint is how far back from the last observation of a cluster every point
	// can be restored, as far as it could be before. Log from before that goes.
	// Zero: log goes with the full snapshots that it follows.
	AnyPoint time.Duration `json:"any_point_nanoseconds"`
	// Last full snapshots are kept, and the newest one of so many Hourly, Daily,
	// Weekly (ISO weeks) and Monthly periods that have any.
	Last    int `json:"last"`
	Hourly  int `json:"hourly"`
	Daily   int `json:"daily"`
	Weekly  int `json:"weekly"`
	Monthly int `json:"monthly"`
	// Within keeps all full snapshots from so long before the last observation.
	Within time.Duration `json:"within_nanoseconds"`
	// Minimum is how many good full snapshots stay at least, however old they are.
	Minimum int `json:"minimum"`
	// Zone is where days begin; nil is UTC.
	Zone *time.Location `json:"-"`
	// Grace is for how long a backup's object, and the log, stay after they were
	// pruned: a restore that has begun can end.
	Grace time.Duration `json:"grace_nanoseconds"`
}

// DefaultGrace is longer than any restore or verification goes on.
const DefaultGrace = 24 * time.Hour

// ErrNoPolicy says that a policy keeps nothing: that is never what was meant.
var ErrNoPolicy = errors.New("no rule says what to keep")

// Check refuses a policy that cannot be followed.
func (p Policy) Check() error {
	rules := 0
	for _, c := range p.Counts() {
		if *c.N < 0 {
			return fmt.Errorf("keep %s: %d is less than 0: write 0 or more", c.Name, *c.N)
		}
		rules += *c.N
	}
	for name, d := range map[string]time.Duration{"any point": p.AnyPoint, "within": p.Within, "grace": p.Grace} {
		if d < 0 {
			return fmt.Errorf("%s: %s is less than 0", name, d)
		}
	}
	if rules == 0 && p.AnyPoint == 0 && p.Within == 0 {
		return ErrNoPolicy
	}
	return nil
}

// String is the rules in words, the same for the same rules.
func (p Policy) String() string {
	var all []string
	for _, d := range []struct {
		name string
		time.Duration
	}{{"any-point", p.AnyPoint}, {"within", p.Within}, {"grace", p.Grace}} {
		if d.Duration > 0 {
			all = append(all, d.name+" "+d.String())
		}
	}
	for _, c := range p.Counts() {
		if *c.N > 0 {
			all = append(all, fmt.Sprintf("%s %d", c.Name, *c.N))
		}
	}
	return strings.Join(append(all, "days of "+p.zone().String()), ", ")
}

func (p Policy) zone() *time.Location {
	if p.Zone == nil {
		return time.UTC
	}
	return p.Zone
}

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

// Count is a rule that keeps N full snapshots: the newest, or the newest one of
// each of the newest N periods that have any.
type Count struct {
	Name   string // of its key in the configuration and, behind --keep-, of its flag
	N      *int   // in the policy that gave the rule
	Usage  string // of its flag
	Period time.Duration
	key    func(time.Time) string // the same within one period; nil where each counts
}

// Counts are all of the policy's rules that count. A new one stands here, in Policy
// and in the agent's configuration.
func (p *Policy) Counts() []Count {
	at := func(layout string) func(time.Time) string {
		return func(t time.Time) string { return t.In(p.zone()).Format(layout) }
	}
	const day = 24 * time.Hour
	return []Count{
		{"last", &p.Last, "keep the last `N` full snapshots", 0, nil},
		{"hourly", &p.Hourly, "keep the newest of each of the last `N` hours that have one", time.Hour, at("2006-01-02T15 -0700")}, // an hour that comes twice is two
		{"daily", &p.Daily, "keep the newest of each of the last `N` days that have one", day, at("2006-01-02")},
		{"weekly", &p.Weekly, "keep the newest of each of the last `N` weeks that have one", 7 * day, func(t time.Time) string {
			year, week := t.In(p.zone()).ISOWeek()
			return fmt.Sprintf("%d-W%02d", year, week)
		}},
		{"monthly", &p.Monthly, "keep the newest of each of the last `N` months that have one", 31 * day, at("2006-01")},
		{"minimum", &p.Minimum, "keep `N` full snapshots that are not damaged at least, however old they are", 0, nil},
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
	for _, d := range all {
		if p.Within > 0 && !d.Taken.Before(newest.Add(-p.Within)) {
			note(d, "within")
		}
	}
	for _, rule := range p.Counts() {
		for i, d := range rule.chosen(all) {
			if i < *rule.N {
				note(d, rule.Name)
			}
		}
	}
}

// chosen is the newest backup of each period, the newest period first.
func (r Count) chosen(all []dated) []dated {
	if r.key == nil {
		return all
	}
	var chosen []dated
	last := ""
	for _, d := range all {
		key := r.key(d.Taken)
		if len(chosen) == 0 || key != last {
			chosen, last = append(chosen, d), key
		}
	}
	return chosen
}

// Reasons beside the names of rules.
const (
	reasonPinned   = "pinned"
	reasonNewest   = "newest"
	reasonGood     = "newest that is not damaged"
	reasonInClear  = "in the clear though an older one is encrypted: find out whose they are"
	reasonProved   = "newest that passed structure"
	reasonAnyPoint = "any point"
)

// keep finds out which backups of a timeline stay. Rules count three times: once good
// backups alone, so that damaged ones take nobody's place; once those of these that were
// stored when they say, so that ones which somebody has back-dated take nobody's; and
// once all, so that neither lets anything go sooner: a verdict may be wrong, and all of
// a copied repository was stored late.
func (d *decision) keep(t *Timeline) {
	line := d.inv.line(t)
	for _, counts := range []func(Backup) bool{Backup.timely, Backup.good, every} {
		all := datedOf(line, counts)
		d.policy.apply(all, d.seen(line), d.because)
		d.keepWindow(t, counts)
	}
	d.protect(t)
}

// protect keeps what never goes.
func (d *decision) protect(t *Timeline) {
	for i := range t.Backups {
		if t.Held != "" {
			d.because(&t.Backups[i], t.Held)
		}
		if t.Backups[i].Pin {
			d.because(&t.Backups[i], reasonPinned)
		}
		if t.Backups[i].InClear {
			d.because(&t.Backups[i], reasonInClear)
		}
	}
	for _, one := range []struct {
		reason string
		pass   func(Backup) bool
	}{
		{reasonNewest, every},
		{reasonGood, Backup.good},
		{reasonProved, func(b Backup) bool { return b.good() && b.Proved }},
		{reasonProved, func(b Backup) bool { return b.timely() && b.Proved }},
	} {
		if b := t.newest(one.pass); b != nil {
			d.because(b, one.reason)
		}
	}
	// Where a damaged manifest stands among the others only the time in its ID
	// shows, and in doubt it is the newest.
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

// expired says that a timeline was superseded for so long that no point of it
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
