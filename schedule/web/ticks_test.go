package web

import (
	"testing"
	"time"
)

// TestTicks: for every span from seconds to decades, wherever it begins, there
// are enough ticks and not too many, all inside and in order, and each label
// differs from its neighbour's.
func TestTicks(t *testing.T) {
	begin := time.Date(2026, 11, 21, 10, 33, 33, 5, time.FixedZone("elsewhere", 19800))
	spans := 0
	for d := 20 * time.Second; d < 30*365*day; d += d / 3 {
		for _, limit := range []int{4, 14} {
			spans++
			from := begin.Add(-d)
			all := ticks(from, begin, limit)
			if len(all) < 1 || len(all) > limit {
				t.Errorf("%v: %d ticks of at most %d", d, len(all), limit)
			}
			for i, tick := range all {
				if tick.At.Before(from) || tick.At.After(begin) || tick.At.Location() != time.UTC {
					t.Errorf("%v: a tick at %v", d, tick.At)
				}
				if i > 0 && (!all[i-1].At.Before(tick.At) || all[i-1].Label == tick.Label) {
					t.Errorf("%v: %v %q after %v %q", d, tick.At, tick.Label, all[i-1].At, all[i-1].Label)
				}
			}
		}
	}
	if spans < 50 {
		t.Errorf("only %d spans were tried", spans)
	}
	if got := ticks(begin, begin, 4); got != nil {
		t.Errorf("ticks of nothing: %v", got)
	}
}

func TestTickLabels(t *testing.T) {
	at := time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)
	var got []string
	for _, tick := range ticks(at, at.Add(6*time.Hour), 8) {
		got = append(got, tick.Label)
	}
	want := []string{"22:00", "23:00", "21 Nov", "01:00", "02:00", "03:00", "04:00"}
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// Weeks begin on Mondays, months are whole.
	for _, tick := range ticks(at.Add(-50*day), at, 10) {
		if tick.At.Weekday() != time.Monday {
			t.Errorf("a tick of weeks on a %v", tick.At.Weekday())
		}
	}
	if got := ticks(at.Add(-365*day), at, 14); got[1].Label != "2026" || got[2].Label != "Feb" {
		t.Errorf("ticks of a year: %v", got)
	}
}
