package web

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

var (
	atNoon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	one    = repository.TimelineID{ClusterID: 1, N: 1}
	two    = repository.TimelineID{ClusterID: 1, N: 2}
)

// TestEverySnapshotIsDrawn: however many there are, on whatever screen, each is
// drawn once, alone or counted, and a damaged one always alone.
func TestEverySnapshotIsDrawn(t *testing.T) {
	st := &Status{Time: atNoon}
	damaged := 0
	for i := range 3000 {
		b := Backup{ID: strconv.Itoa(i), Timeline: one, Time: atNoon.Add(-time.Duration(i*i) * time.Minute / 10)}
		switch {
		case i%700 == 5:
			b.Damaged = "torn"
			damaged++
		case i%900 == 7:
			b.Failed = report.Structure
			damaged++
		}
		st.Repository.Backups = append(st.Repository.Backups, b)
	}
	for _, pixels := range []float64{narrowest, widest} {
		p := draw(st, "x", atNoon.Add(-2*365*day), atNoon, pixels)
		n, bad := 0, 0
		for _, m := range p.Rows[0].Marks {
			n += len(m.of)
			if m.Damaged {
				bad++
				if m.Count != "" {
					t.Error("a damaged one is hidden among others")
				}
			}
		}
		if n != 3000 || bad != damaged {
			t.Errorf("%v pixels: %d drawn of 3000, %d damaged of %d", pixels, n, bad, damaged)
		}
		if len(p.Rows[0].Marks) > int(pixels/closest)+1+damaged {
			t.Errorf("%v pixels: %d marks", pixels, len(p.Rows[0].Marks))
		}
	}
}

func TestLadder(t *testing.T) {
	var got []string
	for _, p := range ladder(Backup{Proved: report.Checksum, Failed: report.Replay}, 0) {
		got = append(got, p.Is)
	}
	if s := strings.Join(got, " "); s != "on off failed off" {
		t.Errorf("checksum proved and replay failed: %s", s)
	}
}

// TestTimedRanges: gaps have no times of their own; they lie between their
// neighbours, or last until now, and what the archiver knows is newer than the
// listing.
func TestTimedRanges(t *testing.T) {
	at := func(hours int) time.Time { return atNoon.Add(time.Duration(hours) * time.Hour) }
	st := &Status{Time: atNoon, RPO: RPO{Known: true, Until: atNoon.Add(-3 * time.Second)}}
	st.Repository.Timeline = one
	st.Repository.Backups = []Backup{{ID: "b", Timeline: one, Time: at(-20)}}
	st.Repository.Ranges = []walreplay.Range{
		{Timeline: two, FirstIndex: 1, LastIndex: 9, From: at(-30), To: at(-29)},
		{Timeline: one, FirstIndex: 300, LastIndex: 400, From: at(-10), To: at(-1)},
		{Timeline: one, FirstIndex: 200, LastIndex: 299, Gap: true, Reason: "lost"},
		{Timeline: one, FirstBackup: "b", FirstIndex: 100, LastIndex: 199, To: at(-15)},
	}
	var got []string
	for _, s := range timedRanges(st) {
		got = append(got, fmt.Sprintf("%d %v %s %s", s.Timeline.N, s.Gap, stamp(s.From)[5:], stamp(s.To)[5:]))
	}
	want := []string{
		"1 false 11-20 16:00:00 11-20 21:00:00",
		"1 true 11-20 21:00:00 11-21 02:00:00",
		"1 false 11-21 02:00:00 11-21 11:59:57",
		"2 false 11-20 06:00:00 11-20 07:00:00",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	st.Repository.Ranges = append(st.Repository.Ranges, walreplay.Range{Timeline: one, FirstIndex: 401, LastIndex: 500, Gap: true})
	for _, s := range timedRanges(st) {
		if s.First == 401 && (!s.From.Equal(at(-1)) || !s.To.Equal(atNoon)) {
			t.Errorf("the gap at the end is from %v to %v, want until now", s.From, s.To)
		}
	}
}

// TestOddStatus: no time, number or order in a status breaks the page, or draws
// anything outside of the picture.
func TestOddStatus(t *testing.T) {
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, st := range []*Status{
		nil,
		{},
		{Time: atNoon, RPO: RPO{Known: true, Seconds: math.Inf(1)}, RTO: RTO{Known: true, Seconds: math.NaN()}},
		{Time: atNoon, Repository: Repository{
			Timeline: two,
			Backups:  []Backup{{Timeline: one, Time: far}, {Timeline: one}, {Timeline: one, Time: atNoon}},
			Ranges: []walreplay.Range{
				{Timeline: one, From: far, To: atNoon}, {Timeline: two, Gap: true}, {Timeline: two, From: atNoon.Add(-time.Hour), To: far, LastIndex: 5},
			},
			Timelines: []repository.Timeline{{ID: two, Created: atNoon.Add(-time.Minute), Parent: &repository.Branch{Timeline: one}}, {ID: one, Parent: &repository.Branch{Timeline: two}}},
		}},
		{Time: atNoon, Repository: Repository{Backups: []Backup{{Timeline: one, Time: atNoon.Add(time.Hour)}}}},
		{Time: atNoon, Jobs: []job.Status{{Name: "drill", Running: &job.Run{Done: 9, Total: 3}, Last: &job.Run{}}}},
	} {
		v := newView(st)
		for _, panel := range v.Panels {
			for _, p := range panel.Pictures {
				for _, r := range p.Rows {
					for _, b := range r.Bars {
						x, _ := strconv.ParseFloat(b.X, 64)
						w, _ := strconv.ParseFloat(b.W, 64)
						if x < 0 || w < 0 || x+w > 100.02 {
							t.Errorf("a bar from %s, %s wide", b.X, b.W)
						}
					}
				}
			}
		}
		if body := render(t, st); !strings.Contains(body, "</html>") {
			t.Errorf("not a whole page:\n%s", body)
		}
	}
}
