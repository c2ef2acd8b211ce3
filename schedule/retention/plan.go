package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// Plan is what is to stay and what is to go, and what can be restored before and
// after that. Its JSON form is stable; docs/json.md describes it.
type Plan struct {
	Repository string     `json:"repository"`
	Made       time.Time  `json:"made"` // for this time, by the planner's clock
	Policy     Policy     `json:"policy"`
	Keep       []Kept     `json:"keep"`
	Delete     []Deletion `json:"delete"`
	// Leftovers are objects without a use that go now.
	Leftovers []Leftover `json:"leftovers"`
	Log       []LogCut   `json:"log"`
	// Later is what is to go and cannot yet.
	Later   []Later  `json:"later"`
	Sweep   Sweep    `json:"sweep"`
	Windows []Window `json:"windows"`
	// Notes are sentences for the user.
	Notes []string `json:"notes"`
	// Confirm is how many full snapshots go that passed the level structure, where that
	// is more than a third of those, and more than two: nothing is deleted unless the
	// number is given. 0: nobody has to.
	Confirm int `json:"confirm,omitempty"`
	// Refused says why nothing may be deleted; empty where it may.
	Refused string `json:"refused,omitempty"`
}

// Kept is a full snapshot that stays.
type Kept struct {
	Timeline repository.TimelineID `json:"timeline"`
	Backup   string                `json:"backup"`
	Taken    time.Time             `json:"taken"`
	Reasons  []string              `json:"reasons"`
}

// Deletion is a full snapshot that goes.
type Deletion struct {
	Timeline repository.TimelineID `json:"timeline"`
	Backup   string                `json:"backup"`
	Taken    time.Time             `json:"taken"`
	Index    uint64                `json:"raft_index,omitempty"`
	Bytes    int64                 `json:"bytes"`
	Why      string                `json:"why"`
}

// LogCut is the part of a timeline's log that goes.
type LogCut struct {
	Timeline repository.TimelineID `json:"timeline"`
	// Before is the first index that stays recoverable with the log: all objects
	// go that hold nothing from it on.
	Before   uint64 `json:"before_index"`
	Segments int    `json:"segments"`
	Marks    int    `json:"marks"`
	Gaps     int    `json:"gaps"`
	Bytes    int64  `json:"bytes"`
	Why      string `json:"why"`
}

// Later is what is to go and cannot yet.
type Later struct {
	Timeline repository.TimelineID `json:"timeline"`
	Backup   string                `json:"backup,omitempty"`
	Object   string                `json:"object,omitempty"`
	Why      string                `json:"why"`
	Until    time.Time             `json:"until,omitzero"` // zero where it is not known
}

// Window is what can be restored of one timeline, damaged backups apart.
type Window struct {
	Timeline repository.TimelineID `json:"timeline"`
	// From is since when every point is promised; zero where none is.
	From   time.Time     `json:"from,omitzero"`
	Before []Recoverable `json:"before"`
	After  []Recoverable `json:"after"`
}

// Recoverable is a run of points that can all be restored; one full snapshot
// alone is a run of one.
type Recoverable struct {
	FirstBackup string    `json:"first_backup"`
	From        time.Time `json:"from"` // when that was begun
	FirstIndex  uint64    `json:"first_index"`
	LastIndex   uint64    `json:"last_index"`
}

// Empty says that the plan deletes nothing.
func (p *Plan) Empty() bool {
	return p.Refused != "" || len(p.Delete)+len(p.Leftovers)+len(p.Log)+p.Sweep.count() == 0
}

// NewPlan decides what stays and what goes at a time. It reads nothing but the
// inventory. A policy that cannot be followed, and a plan that would break a
// promise, come back with Refused set, and nothing to delete.
func NewPlan(inv *Inventory, p Policy, now time.Time) *Plan {
	d := &decision{inv: inv, policy: p, now: now, reasons: map[*Backup][]string{}, cuts: map[*Timeline]cut{},
		plan: &Plan{Repository: inv.Repository, Made: now.UTC(), Policy: p,
			Keep: []Kept{}, Delete: []Deletion{}, Leftovers: []Leftover{}, Log: []LogCut{}, Later: []Later{}, Windows: []Window{}, Notes: []string{}}}
	if err := p.Check(); err != nil {
		d.plan.Refused = err.Error()
		return d.plan
	}
	for _, t := range inv.Timelines {
		d.keep(t)
	}
	for _, t := range inv.Timelines {
		d.prune(t)
	}
	d.uncounted()
	d.confirm()
	d.leftovers()
	for _, t := range inv.Timelines {
		d.cut(t)
	}
	d.sweep()
	d.windows()
	if err := d.check(); err != nil {
		d.plan.refuse(err)
	}
	return d.plan
}

// refuse takes all that would be deleted out of a plan.
func (p *Plan) refuse(err error) {
	p.Refused = err.Error()
	p.Confirm, p.Delete, p.Leftovers, p.Log, p.Sweep = 0, []Deletion{}, []Leftover{}, []LogCut{}, Sweep{}
	for i := range p.Windows {
		p.Windows[i].After = p.Windows[i].Before
	}
}

// decision is a plan in the making.
type decision struct {
	inv     *Inventory
	policy  Policy
	now     time.Time
	reasons map[*Backup][]string // of those that are kept
	cuts    map[*Timeline]cut
	plan    *Plan
}

// because keeps a backup.
func (d *decision) because(b *Backup, reason string) {
	if !slices.Contains(d.reasons[b], reason) {
		d.reasons[b] = append(d.reasons[b], reason)
	}
}

// stays says that a backup is listed after the plan was carried out.
func (d *decision) stays(b *Backup) bool { return len(d.reasons[b]) > 0 }

// prune says what goes, and notes what stays.
func (d *decision) prune(t *Timeline) {
	for i := range t.Backups {
		b := &t.Backups[i]
		switch {
		case d.stays(b):
		case b.LockedUntil.After(d.inv.Clock):
			d.because(b, "locked")
			d.plan.Later = append(d.plan.Later, Later{t.ID, b.ID, "", "locked against deletion", b.LockedUntil})
		default:
			d.plan.Delete = append(d.plan.Delete, Deletion{t.ID, b.ID, b.Taken, b.Index, b.Bytes, d.why(b)})
			continue
		}
		d.plan.Keep = append(d.plan.Keep, Kept{t.ID, b.ID, b.Taken, d.reasons[b]})
	}
}

// uncounted names what is listed and takes nobody's place.
func (d *decision) uncounted() {
	var first *Backup
	n := 0
	for _, t := range d.inv.Timelines {
		for i := range t.Backups {
			if b := &t.Backups[i]; !b.good() {
				if n++; n == 1 {
					first = b
				}
			}
		}
	}
	if n > 0 {
		d.note(fmt.Sprintf("%s for nothing, the first, %s of timeline %s, because: %s", report.Counted(n, "full snapshot counts", "full snapshots count"), first.ID, first.Timeline, first.Unusable))
	}
}

// confirm asks for somebody's word before most of what is proved goes at once: a mistake
// in the policy, or a clock, could mean that.
func (d *decision) confirm() {
	proved, gone := 0, 0
	for _, t := range d.inv.Timelines {
		for i := range t.Backups {
			if b := &t.Backups[i]; b.Proved {
				if proved++; !d.stays(b) {
					gone++
				}
			}
		}
	}
	if gone > 2 && 3*gone > proved {
		d.plan.Confirm = gone
		d.note(fmt.Sprintf("of %d full snapshots that passed verification %d go at once, more than a third: nothing goes without --confirm %d", proved, gone, gone))
	}
}

func (d *decision) why(b *Backup) string {
	if !b.good() {
		return "no rule keeps it, and it counts for nothing: " + b.Unusable
	}
	return "no rule keeps it"
}

// leftovers are distinguished: what goes now, later, or not without somebody's word.
func (d *decision) leftovers() {
	for _, t := range d.inv.Timelines {
		if t.Held != "" {
			d.note(fmt.Sprintf("nothing of timeline %s is deleted: %s ('requorum list' shows how to answer)", t.ID, t.Held))
			continue
		}
		for _, l := range t.Leftovers {
			wait := abandonedAfter
			if l.Kind == OfPruned {
				wait = d.policy.Grace
			}
			switch due := l.Since.Add(wait); {
			case l.Kind == Suspect:
				d.note("the manifest of backup " + l.Backup + " of timeline " + t.ID.String() + " is gone, no record says that it was pruned, and a verdict names it: its objects stay. Find out who deleted the manifest")
			case l.LockedUntil.After(d.inv.Clock):
				d.plan.Later = append(d.plan.Later, Later{t.ID, l.Backup, l.Objects[0], string(l.Kind) + ", locked against deletion", l.LockedUntil})
			case !due.After(d.inv.Clock):
				d.plan.Leftovers = append(d.plan.Leftovers, l)
			case l.Kind == OfPruned:
				d.plan.Later = append(d.plan.Later, Later{t.ID, l.Backup, l.Objects[0], "pruned; its objects stay for the grace time", due})
			default:
				d.plan.Later = append(d.plan.Later, Later{t.ID, l.Backup, l.Objects[0], string(l.Kind) + ", or one that is under way", due})
			}
		}
	}
}

// abandonedAfter is when an object without a manifest is of nobody any more: no
// upload goes on for so long.
const abandonedAfter = 24 * time.Hour

func (d *decision) note(s string) { d.plan.Notes = append(d.plan.Notes, s) }

// windows says what can be restored, before and after.
func (d *decision) windows() {
	for _, t := range d.inv.Timelines {
		if len(t.Backups) == 0 {
			continue
		}
		w := Window{Timeline: t.ID, Before: t.recoverable(Backup.good, 0)}
		if begin, ok := d.begin(t); ok {
			w.From = begin.UTC()
		}
		w.After = t.recoverable(d.goodAfter(t), d.cuts[t].index)
		d.plan.Windows = append(d.plan.Windows, w)
	}
}

// goodAfter passes good backups that stay.
func (d *decision) goodAfter(t *Timeline) func(Backup) bool {
	return func(b Backup) bool { return b.good() && d.stays(d.inv.backup(t.ID, b.ID)) }
}

func (t *Timeline) recoverable(pass func(Backup) bool, cut uint64) []Recoverable {
	all := []Recoverable{}
	for _, r := range t.holding(pass, cut).ranges() {
		i := slices.IndexFunc(t.Backups, func(b Backup) bool { return b.Index == r.First && pass(b) })
		all = append(all, Recoverable{t.Backups[i].ID, t.Backups[i].Taken, r.First, r.Last})
	}
	return all
}

// newest is the last of a timeline's backups that passes, by what the log had
// reached; nil where there is none.
func (t *Timeline) newest(pass func(Backup) bool) *Backup {
	for i := range slices.Backward(t.Backups) {
		if b := &t.Backups[i]; pass(*b) {
			return b
		}
	}
	return nil
}

// sortBackups brings them into the order of a Timeline.
func sortBackups(all []Backup) {
	slices.SortStableFunc(all, func(a, b Backup) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), a.Taken.Compare(b.Taken), cmp.Compare(a.ID, b.ID))
	})
}

const (
	// recordsAfter is how long verdicts stay to be read after they are of no use.
	recordsAfter = 30 * 24 * time.Hour
	// resultsAfter is how long records of jobs stay, longer than
	// another agent may still be at one.
	resultsAfter = 35 * 24 * time.Hour
	// resultsKept is how many of a job's results stay whatever their age, of those after a
	// failed attempt and of the others: names alone do not show which one was a success.
	resultsKept = 3
	// staleAfter is how long a record stays that has nothing to say any more, and a scratch
	// object: whoever wrote it may still be at it.
	staleAfter = 24 * time.Hour
)

// Sweep is how many objects go that were of use for some time only.
type Sweep struct {
	Verdicts int `json:"verdicts"` // nothing depends on them
	Records  int `json:"records"`  // of what was pruned
	Results  int `json:"results"`  // of jobs, and other records of theirs
	Scratch  int `json:"scratch"`

	others []string
}

func (s Sweep) count() int { return s.Verdicts + s.Records + s.Results + s.Scratch }

func (d *decision) sweep() {
	s := &d.plan.Sweep
	for _, v := range d.inv.Verdicts {
		// The verdict on a backup whose manifest somebody else deleted keeps what is left of it.
		if d.inv.Sound && d.old(v.Stored, recordsAfter) && (v.Spare || d.isGone(v.Timeline, v.Backup)) {
			s.others = append(s.others, v.Name)
			s.Verdicts++
		}
	}
	for _, r := range d.inv.Pruned {
		if d.isUseless(r) {
			s.others = append(s.others, repository.PrunedName(r.Timeline, r.Backup))
		}
	}
	s.Records = len(s.others) - s.Verdicts
	s.Results = s.old(d, d.spareResults(), resultsAfter)
	s.Scratch = s.old(d, d.inv.Scratch, staleAfter)
}

// spareResults are the records of jobs without the newest results of each job: those show
// how it last went, and without that of the newest slot of its schedule this slot would be
// run as a missed one. Slots of the future, which a wrong clock made, do not count.
func (d *decision) spareResults() []sinks.Object {
	type kind struct {
		job       string
		kind      repository.JobKind
		scheduled bool
	}
	newest, stays := map[kind]int{}, map[string]bool{}
	for _, o := range slices.Backward(d.inv.Results) {
		n, err := repository.ParseJobName(o.Name)
		at, demanded, errSlot := repository.ParseSlot(n.Slot)
		if err != nil || errSlot != nil || !n.Final() || at.After(d.now.Add(time.Hour)) {
			continue
		}
		k := kind{n.Job, n.Kind, !demanded}
		newest[k]++
		stays[o.Name] = newest[k] <= resultsKept
	}
	return slices.DeleteFunc(slices.Clone(d.inv.Results), func(o sinks.Object) bool {
		_, err := repository.ParseJobName(o.Name)
		return err != nil || stays[o.Name]
	})
}

// old adds the objects that are older.
func (s *Sweep) old(d *decision, objects []sinks.Object, than time.Duration) (n int) {
	for _, o := range objects {
		if d.old(o.ModTime, than) {
			s.others = append(s.others, o.Name)
			n++
		}
	}
	return n
}

// old reports whether the place has kept something for longer than that.
func (d *decision) old(stored time.Time, than time.Duration) bool {
	return d.inv.Clock.Sub(stored) > than
}

// isGone reports whether nothing of a backup is left.
func (d *decision) isGone(t repository.TimelineID, backup string) bool {
	line := d.inv.timeline(t)
	return d.inv.backup(t, backup) == nil && (line == nil || !slices.ContainsFunc(line.Leftovers, func(l Leftover) bool { return l.Backup == backup }))
}

// isUseless reports whether a record has nothing to say any more: its backup is gone, or
// is listed and stays.
func (d *decision) isUseless(r PrunedRecord) bool {
	if !d.old(r.Written, staleAfter) {
		return false
	}
	if b := d.inv.backup(r.Timeline, r.Backup); b != nil {
		return d.stays(b)
	}
	return d.isGone(r.Timeline, r.Backup)
}
