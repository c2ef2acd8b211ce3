package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// snapshots is one full snapshot as it is drawn, or several that are too near
// to each other.
type snapshots struct {
	X         string
	Y         int
	Count     string // empty for a single one
	Synthetic bool
	Pinned    bool
	Damaged   bool
	Ladder    []pip
	Title     string

	at float64
	of []status.Backup
}

// pip is a rung of the ladder above a full snapshot, from the lowest.
type pip struct {
	Y  int
	Is string // "on", "off", "failed"
}

// bad tells that a full snapshot is not one to restore from.
func bad(b status.Backup) bool { return b.Damaged != "" || b.Failed != "" }

// snapshots are those of a timeline. Bad ones are never hidden among others.
func (s scale) snapshots(st *status.Status, t repository.TimelineID, y int) []snapshots {
	var good, damaged []snapshots
	backups := slices.Clone(st.Repository.Backups)
	slices.SortStableFunc(backups, func(a, b status.Backup) int { return a.Time.Compare(b.Time) })
	for _, b := range backups {
		if b.Timeline != t || !s.shows(b.Time) {
			continue
		}
		at := s.share(b.Time)
		one := snapshots{X: percent(at), Y: y, at: at, of: []status.Backup{b}, Damaged: bad(b)}
		switch n := len(good); {
		case bad(b):
			damaged = append(damaged, one)
		case n > 0 && (at-good[n-1].at)*s.pixels < closest:
			good[n-1].of = append(good[n-1].of, b)
		default:
			good = append(good, one)
		}
	}
	all := slices.Concat(good, damaged)
	for i := range all {
		all[i].finish()
	}
	return all
}

// finish says of a group what is true of its newest one, and how many they are.
func (g *snapshots) finish() {
	newest := g.of[len(g.of)-1]
	g.Synthetic = newest.Synthetic
	for _, b := range g.of {
		g.Pinned = g.Pinned || b.Pinned
	}
	g.Ladder = ladder(newest, g.Y)
	if len(g.of) == 1 {
		g.Title = fmt.Sprintf("Full snapshot %s, %s: %s", newest.ID, minute(newest.Time), strings.Join(remarks(newest), ", "))
		return
	}
	if g.Count = strconv.Itoa(len(g.of)); len(g.of) > 999 {
		g.Count = strconv.Itoa(len(g.of)/1000) + "k"
	}
	g.Title = fmt.Sprintf("%d full snapshots, %s to %s; the newest: %s", len(g.of), minute(g.of[0].Time), minute(newest.Time), strings.Join(remarks(newest), ", "))
}

func ladder(b status.Backup, y int) []pip {
	var all []pip
	proved := slices.Index(report.Rungs(), b.Proved)
	for i, r := range report.Rungs() {
		p := pip{Y: y + rowLadder + (len(report.Rungs())-1-i)*pipStep, Is: "off"}
		if i <= proved {
			p.Is = "on"
		}
		if r == b.Failed {
			p.Is = "failed"
		}
		all = append(all, p)
	}
	return all
}

// remarks are what there is to say of one, the worst first.
func remarks(b status.Backup) []string {
	var all []string
	if b.Failed != "" {
		all = append(all, "failed "+string(b.Failed))
	}
	if b.Damaged != "" {
		all = append(all, "damaged: "+b.Damaged)
	}
	switch {
	case b.Proved != "":
		all = append(all, "proved by "+string(b.Proved))
	case !bad(b):
		all = append(all, "not verified yet")
	}
	if b.Synthetic {
		all = append(all, "synthetic")
	}
	if b.Pinned {
		all = append(all, "pinned")
	}
	return all
}

// drills are the recoveries that were tried, as verdicts and runs of the job
// tell of them.
func (s scale) drills(st *status.Status) []drill {
	var all []drill
	var seen []time.Time
	add := func(at time.Time, ok bool, text string) {
		for _, t := range seen {
			if at.Sub(t).Abs() < 10*time.Minute {
				return // the verdict of a run that is there already
			}
		}
		if !at.IsZero() && s.shows(at) {
			seen = append(seen, at)
			all = append(all, drill{s.x(at), ok, text})
		}
	}
	for _, j := range st.Jobs {
		if j.Name != string(report.Drill) {
			continue
		}
		for _, r := range []*status.Run{j.LastFailure, j.LastSuccess, j.Last} {
			if r == nil || r.Finished.IsZero() {
				continue
			}
			word := "succeeded"
			if !r.OK {
				word = "failed"
			}
			add(r.Finished, r.OK, fmt.Sprintf("Drill %s, %s: %s", word, minute(r.Finished), r.Text))
		}
	}
	for _, b := range st.Repository.Backups {
		if b.Proved == report.Drill {
			add(b.ProvedAt, true, fmt.Sprintf("Drill succeeded, %s: full snapshot %s", minute(b.ProvedAt), b.ID))
		}
	}
	return all
}
