package web

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// The heights within a picture, in pixels. Across, everything is in percent of
// the width, so that text keeps its size on every screen.
const (
	rowLadder = 37 // top of the levels
	rowHead   = 72 // middle of a full snapshot
	rowBar    = 82 // top of what is recoverable
	barHeight = 12
	rowHeight = 108
	lane      = 26 // of drills
	axis      = 26

	pipStep = 7
)

// closest is how many pixels apart full snapshots are drawn at least; nearer
// ones are drawn as one, with their number.
const closest = 23

// picture is one drawing of all timelines between two times.
type picture struct {
	ID          string // prefix of the IDs in it
	Narrow      bool   // drawn for a phone
	From, To    time.Time
	Title, Desc string
	Height      int
	Rows        []row
	Links       []link
	Drills      []drill
	DrillY      int
	AxisY       int
	Ticks       []mark
}

// row is one timeline.
type row struct {
	Y     int
	Label string
	From  string // its life, as far as it is seen here
	To    string
	Mid   int
	Bars  []bar
	Marks []snapshots
}

// bar is a part of a timeline that can be restored, or a gap.
type bar struct {
	X, W  string // percent
	Y     int
	Gap   bool
	Title string
}

// mark is something at a place, with a label.
type mark struct {
	X     string
	Label string
	Start bool // the label begins here, rather than having its middle here
}

// drill is a recovery that was tried.
type drill struct {
	X     string
	OK    bool
	Title string
}

// link leads from the point where a timeline branches off to its beginning.
type link struct{ X1, X2, Y1, Y2 string }

// scale turns times into places.
type scale struct {
	from, to time.Time
	pixels   float64 // the width that it is drawn for
}

func (s scale) share(t time.Time) float64 {
	whole := s.to.Sub(s.from)
	if whole <= 0 {
		return 1
	}
	return min(1, max(0, float64(t.Sub(s.from))/float64(whole)))
}

func (s scale) x(t time.Time) string { return percent(s.share(t)) }

func (s scale) shows(t time.Time) bool { return !t.Before(s.from) && !t.After(s.to) }

func percent(share float64) string {
	return strconv.FormatFloat(share*100, 'f', 2, 64)
}

// draw makes the picture from from to to, for a screen of so many pixels.
func draw(st *Status, id string, from, to time.Time, pixels float64) picture {
	sc := scale{from, to, pixels}
	p := picture{ID: id, From: from, To: to, Narrow: pixels < widest}
	ranges := timedRanges(st)
	beginnings := map[repository.TimelineID]int{}
	y := 0
	for _, t := range timelinesOf(st) {
		r := row{Y: y, Label: label(st, t, int(pixels/7.2))}
		for _, s := range ranges {
			if s.Timeline == t && !s.To.Before(from) && !s.From.After(to) {
				r.Bars = append(r.Bars, sc.bar(s, y))
			}
		}
		r.Marks = sc.snapshots(st, t, y)
		if len(r.Bars)+len(r.Marks) == 0 && t != st.Repository.Timeline {
			continue
		}
		r.From, r.To, r.Mid = sc.life(st, ranges, t), sc.end(st, ranges, t), y+rowBar+barHeight/2
		beginnings[t] = y
		p.Rows = append(p.Rows, r)
		y += rowHeight
	}
	p.Links = sc.links(st, beginnings)
	if p.Drills = sc.drills(st); len(p.Drills) > 0 {
		p.DrillY = y + 4
		y += lane
	}
	p.AxisY = y + 2
	p.Height = y + axis
	p.Ticks = sc.ticks()
	p.Title = fmt.Sprintf("Timeline from %s to %s UTC", minute(from), minute(to))
	p.Desc = describe(st, ranges, from)
	return p
}

func (s scale) ticks() []mark {
	all := []mark{}
	for _, t := range ticks(s.from, s.to, int(s.pixels/72)) {
		at := s.share(t.At) * s.pixels
		// The end of the axis says "now".
		if at < s.pixels-56 {
			all = append(all, mark{X: s.x(t.At), Label: t.Label, Start: at < 24})
		}
	}
	return all
}

func (s scale) bar(st timedRange, y int) bar {
	x, end := s.share(st.From), s.share(st.To)
	// A gap of a second is still a gap: three pixels at least.
	w := max(end-x, 3/s.pixels)
	x = min(x, 1-w)
	b := bar{X: percent(x), W: percent(w), Y: y + rowBar, Gap: st.Gap}
	switch {
	case st.Gap:
		b.Title = fmt.Sprintf("Gap, %s to %s: %s", minute(st.From), minute(st.To), st.Reason)
	case st.point():
		b.Title = fmt.Sprintf("Recoverable at one point, %s", minute(st.From))
	default:
		b.Title = fmt.Sprintf("Recoverable at any point, %s to %s", minute(st.From), minute(st.To))
	}
	return b
}

// spoken is how much of a picture its description says: nobody listens to a
// hundred gaps.
const spoken = 12

// describe says in words what the picture shows.
func describe(st *Status, all []timedRange, from time.Time) string {
	var parts []string
	n, damaged := 0, 0
	for _, b := range st.Repository.Backups {
		if !b.Time.Before(from) {
			n++
			damaged += boolean(bad(b))
		}
	}
	parts = append(parts, report.Counted(n, "full snapshot", "full snapshots"))
	if damaged > 0 {
		parts[0] += fmt.Sprintf(", %d damaged", damaged)
	}
	for _, s := range slices.Backward(all) {
		switch {
		case s.To.Before(from) || s.point():
			continue
		case len(parts) == spoken:
			parts = append(parts, "and more")
			return strings.Join(parts, "; ") + ". The table below says all."
		case s.Gap:
			parts = append(parts, fmt.Sprintf("a gap from %s to %s", minute(s.From), minute(s.To)))
		default:
			parts = append(parts, fmt.Sprintf("recoverable at any point from %s to %s", minute(s.From), minute(s.To)))
		}
	}
	return strings.Join(parts, "; ") + ". The table below says the same."
}

// life and end are where a timeline begins, and where it was last heard of.
func (s scale) life(st *Status, all []timedRange, id repository.TimelineID) string {
	first := st.Time
	see := func(t time.Time) {
		if !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	for _, t := range st.Repository.Timelines {
		if t.ID == id {
			see(t.Created)
		}
	}
	for _, b := range st.Repository.Backups {
		if b.Timeline == id {
			see(b.Time)
		}
	}
	for _, r := range all {
		if r.Timeline == id {
			see(r.From)
		}
	}
	return s.x(first)
}

func (s scale) end(st *Status, all []timedRange, id repository.TimelineID) string {
	if id == st.Repository.Timeline {
		return s.x(st.Time)
	}
	last := s.from
	see := func(t time.Time) {
		if t.After(last) {
			last = t
		}
	}
	for _, b := range st.Repository.Backups {
		if b.Timeline == id {
			see(b.Time)
		}
	}
	for _, r := range all {
		if r.Timeline == id {
			see(r.To)
		}
	}
	// It went on at least until another one branched off.
	for _, t := range st.Repository.Timelines {
		if t.Parent != nil && t.Parent.Timeline == id {
			see(t.Created)
		}
	}
	return s.x(last)
}

// links join timelines to those that they branch off.
func (s scale) links(st *Status, rows map[repository.TimelineID]int) []link {
	var all []link
	for _, t := range st.Repository.Timelines {
		if t.Parent == nil || !s.shows(t.Created) {
			continue
		}
		parent, ok1 := rows[t.Parent.Timeline]
		child, ok2 := rows[t.ID]
		if !ok1 || !ok2 {
			continue
		}
		// Where the backup that it was restored from is known, it branches off
		// there; what followed in the parent is not in it.
		at := t.Created
		for _, b := range st.Repository.Backups {
			if b.Timeline == t.Parent.Timeline && b.ID == t.Parent.Backup {
				at = b.Time
			}
		}
		middle := rowBar + barHeight/2
		all = append(all, link{s.x(at), s.x(t.Created), strconv.Itoa(parent + middle), strconv.Itoa(child + middle)})
	}
	return all
}

// timelinesOf are all that anything is known of: the present one first, then
// the newest.
func timelinesOf(st *Status) []repository.TimelineID {
	begun := map[repository.TimelineID]time.Time{}
	see := func(t repository.TimelineID, at time.Time) {
		if old, ok := begun[t]; !ok || at.After(old) {
			begun[t] = at
		}
	}
	for _, t := range st.Repository.Timelines {
		see(t.ID, t.Created)
	}
	for _, b := range st.Repository.Backups {
		see(b.Timeline, b.Time)
	}
	for _, r := range st.Repository.Ranges {
		see(r.Timeline, r.From)
	}
	all := make([]repository.TimelineID, 0, len(begun))
	for t := range begun {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b repository.TimelineID) int {
		if a == st.Repository.Timeline || b == st.Repository.Timeline {
			return boolean(b == st.Repository.Timeline) - boolean(a == st.Repository.Timeline)
		}
		return cmp.Or(begun[b].Compare(begun[a]), cmp.Compare(b.N, a.N), cmp.Compare(b.ClusterID, a.ClusterID))
	})
	return all
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// label names a timeline, with where it branches off, in at most so many
// letters.
func label(st *Status, id repository.TimelineID, letters int) string {
	s := id.String()
	if id == st.Repository.Timeline {
		s += ", now"
	}
	for _, t := range st.Repository.Timelines {
		if t.ID == id && t.Parent != nil {
			s += ", branched off " + t.Parent.Timeline.String()
			if t.Parent.RaftIndex > 0 {
				s += " after index " + strconv.FormatUint(t.Parent.RaftIndex, 10)
			}
			if t.Reason != "" {
				s += ": " + t.Reason
			}
		}
	}
	if r := []rune(s); len(r) > letters {
		s = string(r[:letters-1]) + "…"
	}
	return s
}

// timedRange is a range of the repository with times at both ends.
type timedRange struct {
	Timeline    repository.TimelineID
	From, To    time.Time
	Gap         bool
	Reason      string
	First, Last uint64 // raft indexes
}

// point says that it is one full snapshot that no log follows.
func (s timedRange) point() bool { return !s.Gap && s.First == s.Last }

// timedRanges gives every range times. A gap has none of its own where nothing
// was observed in it: it is between its neighbours, or goes on until now.
func timedRanges(st *Status) []timedRange {
	begun := map[string]time.Time{}
	for _, b := range st.Repository.Backups {
		begun[b.Timeline.String()+"/"+b.ID] = b.Time
	}
	var all []timedRange
	for _, r := range st.Repository.Ranges {
		s := timedRange{r.Timeline, r.From, r.To, r.Gap, r.Reason, r.FirstIndex, r.LastIndex}
		if s.From.IsZero() {
			s.From = begun[r.Timeline.String()+"/"+r.FirstBackup]
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b timedRange) int {
		return cmp.Or(cmp.Compare(a.Timeline.ClusterID, b.Timeline.ClusterID), cmp.Compare(a.Timeline.N, b.Timeline.N), cmp.Compare(a.First, b.First))
	})
	for i := range all {
		s := &all[i]
		alone := func(j int) bool { return j < 0 || j >= len(all) || all[j].Timeline != s.Timeline }
		if s.From.IsZero() && !alone(i-1) {
			s.From = all[i-1].To
		}
		if s.To.IsZero() && !alone(i+1) {
			s.To = all[i+1].From
		}
		last := alone(i+1) && s.Timeline == st.Repository.Timeline
		if last && s.Gap && s.To.IsZero() {
			s.To = st.Time
		}
		// The archive is ahead of the last listing.
		if last && !s.Gap && st.RPO.Known && st.RPO.Until.After(s.To) {
			s.To = st.RPO.Until
		}
		if s.To.Before(s.From) {
			s.To = s.From
		}
	}
	return slices.DeleteFunc(all, func(s timedRange) bool { return s.From.IsZero() && s.To.IsZero() })
}

// tick is a mark on the time axis.
type tick struct {
	At    time.Time
	Label string
}

// steps are the distances that ticks may have, beside whole months.
var steps = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, week,
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// ticks are at most limit round UTC times from from to to, the finest that fit.
func ticks(from, to time.Time, limit int) []tick {
	from, to = from.UTC(), to.UTC()
	if limit < 1 || !from.Before(to) {
		return nil
	}
	for _, step := range steps {
		if to.Sub(from)/step >= time.Duration(limit) {
			continue
		}
		var all []tick
		// Truncate counts from a Monday, the first of year 1, so that weeks begin
		// on Mondays.
		for at := from.Truncate(step); !at.After(to); at = at.Add(step) {
			if !at.Before(from) {
				all = append(all, tick{at, clock(at, step)})
			}
		}
		return all
	}
	for _, months := range []int{1, 2, 3, 6, 12, 24, 60, 120} {
		var all []tick
		first := time.Date(from.Year(), 1, 1, 0, 0, 0, 0, time.UTC)
		for at := first; !at.After(to) && len(all) <= limit; at = at.AddDate(0, months, 0) {
			if !at.Before(from) {
				all = append(all, tick{at, month(at)})
			}
		}
		if len(all) <= limit {
			return all
		}
	}
	return nil
}

// clock labels a tick by what tells it from its neighbours; the first of a day
// says the day.
func clock(at time.Time, step time.Duration) string {
	switch {
	case step >= day || at.Equal(at.Truncate(day)):
		return at.Format("2 Jan")
	case step < time.Minute:
		return at.Format("15:04:05")
	default:
		return at.Format("15:04")
	}
}

func month(at time.Time) string {
	if at.Month() == time.January {
		return at.Format("2006")
	}
	return at.Format("Jan")
}
