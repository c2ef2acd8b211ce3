package job

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

func timetable(t *testing.T, s Spec) *Timetable {
	t.Helper()
	if s.Name == "" {
		s.Name = "full"
	}
	table, err := s.Timetable("seed")
	require.NoError(t, err)
	return table
}

// slotsOf are the slots in (from, to], going forwards.
func slotsOf(table *Timetable, from, to time.Time) (all []time.Time) {
	for at := table.Next(from); !at.IsZero() && !at.After(to); at = table.Next(at) {
		all = append(all, at)
	}
	return all
}

// A wall time that does not exist runs at the first one after it, and one that
// exists twice runs once: what TestTimetableAgainstModel, of daily slots, does not have.
func TestDaylightSaving(t *testing.T) {
	for _, tt := range []struct {
		what, zone, schedule string
		from                 string
		hours                int
		want                 []string // UTC
	}{
		{"Berlin forward: every 20 minutes, 02:xx fall together", "Europe/Berlin", "*/20 * * * *", "2026-03-29T00:30:00Z", 1,
			[]string{"2026-03-29T00:40:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z"}},
		{"Berlin back: hourly has one 02:00", "Europe/Berlin", "0 * * * *", "2026-10-24T22:30:00Z", 4,
			[]string{"2026-10-24T23:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"}},
		{"Apia: a whole day does not exist", "Pacific/Apia", "0 6 * * *", "2011-12-29T12:00:00Z", 36,
			[]string{"2011-12-29T16:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T16:00:00Z"}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			table := timetable(t, Spec{Schedule: tt.schedule, Zone: zone(t, tt.zone)})
			from, err := time.Parse(time.RFC3339, tt.from)
			require.NoError(t, err)
			var got []string
			for _, at := range slotsOf(table, from, from.Add(time.Duration(tt.hours)*time.Hour)) {
				got = append(got, at.Format(time.RFC3339))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// Each minute of two years, in zones with all sorts of changes, held against a
// dumb model that walks through the moments and looks at the wall.
func TestTimetableAgainstModel(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(1, 0, 0)
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca", "Asia/Tehran", "UTC"} {
		z := zone(t, name)
		for _, s := range []struct {
			schedule     string
			minute, hour int
		}{{"30 2 * * *", 30, 2}, {"15 1 * * *", 15, 1}, {"0 0 * * *", 0, 0}, {"45 3 * * *", 45, 3}} {
			// The first moment of each day at which the wall shows the time, or more.
			var want []time.Time
			day := 0
			for at := from; at.Before(to); at = at.Add(time.Minute) {
				w := at.In(z)
				if w.YearDay() != day && (w.Hour() > s.hour || w.Hour() == s.hour && w.Minute() >= s.minute) {
					day = w.YearDay()
					want = append(want, at)
				}
			}
			want = want[2:] // at the beginning the model does not know the day before
			got := slotsOf(timetable(t, Spec{Schedule: s.schedule, Zone: z}), want[0].Add(-time.Second), to.Add(-time.Second))
			if !slices.EqualFunc(got, want, time.Time.Equal) {
				t.Errorf("%s in %s differs: %d slots, want %d", s.schedule, name, len(got), len(want))
			}
		}
	}
}

// Previous and Next agree wherever one asks, with jitter as well.
func TestPreviousAndNext(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, schedule := range []string{"* * * * *", "*/7 * * * *", "0 1 * * *", "0 5 * * 0", "30 2 29 2 *", "0 0 31 * *", "@hourly", "@weekly", "@monthly", "@yearly", "0 0 1,15 * 1"} {
		table := timetable(t, Spec{Schedule: schedule, Zone: zone(t, "Australia/Lord_Howe"), Jitter: 2 * time.Hour})
		for range 50 {
			at := time.Unix(1.7e9+random.Int64N(3e8), random.Int64N(1e9))
			p, n := table.Previous(at), table.Next(at)
			if p.IsZero() || n.IsZero() || p.After(at) || !n.After(at) || !table.Next(p).Equal(n) {
				t.Fatalf("%s: %v lies between %v and %v", schedule, at, p, n)
			}
		}
	}
}

// Jitter is the same on all agents of a repository, another one elsewhere, and
// never as long as it may be at most.
func TestJitter(t *testing.T) {
	s := Spec{Name: "full", Schedule: "0 1 * * *", Jitter: time.Hour}
	base := time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC)
	seen := map[time.Time]bool{}
	for _, seed := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		table, err := s.Timetable(seed)
		ok(t, err)
		at := table.Next(base.Add(-time.Second))
		if again := table.Next(base.Add(-time.Second)); !again.Equal(at) || at.Before(base) || !at.Before(base.Add(time.Hour)) {
			t.Fatalf("seed %s: %v, %v", seed, at, again)
		}
		if p := table.Previous(at); !p.Equal(at) {
			t.Fatalf("seed %s: previous is %v", seed, p)
		}
		seen[at] = true
	}
	if len(seen) < 20 {
		t.Fatalf("26 repositories share %d moments", len(seen))
	}
}

func TestSpecsRefused(t *testing.T) {
	for _, tt := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: "full", Schedule: "@every 6h"}, "*/15"},
		{Spec{Name: "full", Schedule: "@reboot"}, "is no time"},
		{Spec{Name: "full", Schedule: "TZ=UTC"}, "time-zone"},
		{Spec{Name: "full", Schedule: "CRON_TZ=UTC 0 1 * * *"}, "time-zone"},
		{Spec{Name: "full", Schedule: "0 1 * *"}, "five fields"},
		{Spec{Name: "full", Schedule: "0 0 1 * * *"}, "five fields"},
		{Spec{Name: "full", Schedule: "61 1 * * *"}, "above maximum"},
		{Spec{Name: "full", Schedule: "0 0 30 2 *"}, "no such day"},
		{Spec{Name: "full", Schedule: ", 1 * * *"}, "no such day"},
		{Spec{Name: "full", Schedule: "0 1 * * *", Jitter: -1}, "jitter"},
		{Spec{Name: "Full", Schedule: "0 1 * * *"}, "name of a job"},
		{Spec{Schedule: "0 1 * * *"}, "name of a job"},
	} {
		if _, err := tt.spec.Timetable(""); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q in it", tt.spec, err, tt.want)
		}
	}
	for _, schedule := range []string{"", "@daily", "@midnight", "@hourly", "@weekly", "@monthly", "@yearly", "@annually", "0 1 * jan mon-fri"} {
		_, err := (Spec{Name: "full", Schedule: schedule}).Timetable("")
		require.NoError(t, err)
	}
	if at := timetable(t, Spec{}).Next(time.Now()); !at.IsZero() {
		t.Errorf("on demand only, and yet due at %v", at)
	}
}
