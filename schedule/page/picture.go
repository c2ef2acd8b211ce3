package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
)

// The heights within a picture, in pixels. Across, everything is in percent of
// the width, so that text keeps its size on every screen.
const (
	rowLadder = 37 // top of the rungs
	rowHead   = 72 // middle of a full snapshot
	rowBar    = 82 // top of what is recoverable
	barHeight = 12
	rowHeight = 108
	lane      = 26 // of drills
	axis      = 26

	pipHeight = 5
	pipStep   = 7
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
func draw(st *status.Status, id string, from, to time.Time, pixels float64) picture {
	sc := scale{from, to, pixels}
	p := picture{ID: id, From: from, To: to, Narrow: pixels < widest}
	stretches := stretchesOf(st)
	beginnings := map[repository.TimelineID]int{}
	y := 0
	for _, t := range timelinesOf(st) {
		r := row{Y: y, Label: label(st, t, int(pixels/7.2))}
		for _, s := range stretches {
			if s.Timeline == t && !s.To.Before(from) && !s.From.After(to) {
				r.Bars = append(r.Bars, sc.bar(s, y))
			}
		}
		r.Marks = sc.snapshots(st, t, y)
		if len(r.Bars)+len(r.Marks) == 0 && t != st.Repository.Timeline {
			continue
		}
		r.From, r.To, r.Mid = sc.life(st, stretches, t), sc.end(st, stretches, t), y+rowBar+barHeight/2
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
	p.Desc = describe(st, stretches, from)
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

func (s scale) bar(st stretch, y int) bar {
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
func describe(st *status.Status, all []stretch, from time.Time) string {
	var parts []string
	n, damaged := 0, 0
	for _, b := range st.Repository.Backups {
		if !b.Time.Before(from) {
			n++
			damaged += boolean(bad(b))
		}
	}
	parts = append(parts, plural(n, "full snapshot", "full snapshots"))
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
