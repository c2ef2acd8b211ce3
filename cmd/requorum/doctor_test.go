package main

import (
	"math"
	"testing"
	"time"

	"github.com/requorum/requorum/store"
)

// The numbers that docs/archive.md gives.
func TestCostOfArchiving(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		puts     int64
		month    float64
	}{
		{time.Second, 86400, 18.18},
		{10 * time.Second, 8640, 1.86},
		{time.Minute, 1440, 0.36},
	} {
		got := costOf("s3://b/p", c.interval, 3, false)
		if got.Puts != c.puts || math.Abs(got.MonthUSD-c.month) > 0.005 || math.Abs(got.IdleUSD-0.71) > 0.005 {
			t.Errorf("%s: %+v", c.interval, got)
		}
	}
	// And docs/agent.md: agents look at what is stored.
	if got := costOf("s3://b/p", 10*time.Second, 3, true); math.Abs(got.MonthUSD-3.42) > 0.005 || math.Abs(got.IdleUSD-2.27) > 0.005 {
		t.Errorf("agents: %+v", got)
	}
}

func TestDoctorVersions(t *testing.T) {
	for version, want := range map[string]string{
		"3.3.27": checkFail, "3.4.0": checkOK, "3.5.35": checkOK, "3.7.3-rc.1": checkOK, "3.8.0": checkFail, "4.0.0": checkFail, "": checkFail,
	} {
		var e examination
		e.examineVersion(store.MemberStatus{Version: version})
		if got := e.report.Checks[0].Verdict; got != want {
			t.Errorf("%q: %s, want %s", version, got, want)
		}
	}
}

// Clocks are compared with room for a request that takes long.
func TestDoctorClock(t *testing.T) {
	before := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	after := before.Add(10 * time.Second)
	for stored, warns := range map[time.Time]bool{
		{}:                           false,
		before.Add(-time.Second):     false,
		before.Add(5 * time.Second):  false,
		after.Add(2 * time.Second):   false,
		before.Add(-3 * time.Second): true,
		after.Add(time.Hour):         true,
	} {
		var e examination
		e.examineClock("s3://b/p", stored, before, after)
		if got := len(e.report.Checks) == 1; got != warns {
			t.Errorf("stored at %s: %+v", stored, e.report.Checks)
		}
	}
}
