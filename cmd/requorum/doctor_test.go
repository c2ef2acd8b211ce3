package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/store/client"
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
	if got := costOf("s3://b/p", 10*time.Second, 3, true); math.Abs(got.MonthUSD-4.19) > 0.005 || math.Abs(got.IdleUSD-3.05) > 0.005 {
		t.Errorf("agents: %+v", got)
	}
}

func TestDoctorVersions(t *testing.T) {
	for version, want := range map[string]string{
		"3.3.27": checkFail, "3.4.0": checkWarn, "3.5.35": checkOK, "3.7.3-rc.1": checkOK, "3.8.0": checkFail, "4.0.0": checkFail, "": checkFail,
	} {
		var e examination
		e.examineVersion(client.MemberStatus{Version: version})
		if got := e.report.Checks[0].Verdict; got != want {
			t.Errorf("%q: %s, want %s", version, got, want)
		}
	}
}

// What lies in the folders that are looked at may be anything: nobody waits for the other
// end of a pipe.
func TestDoctorOpensNoPipe(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "db")
	require.NoError(t, errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(filepath.Join(dir, "key"), nil, 0o600)))
	for name, examine := range map[string]func(*examination){
		checkWarn: func(e *examination) { e.examineDatabase(pipe) },
		checkOK:   func(e *examination) { e.examineAttachment(config.Attachment{Name: "pki", Path: dir}) },
	} {
		var e examination
		done := make(chan bool)
		go func() {
			examine(&e)
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Errorf("%s: it waits", name)
			f, err := os.OpenFile(pipe, os.O_RDWR, 0) // which lets it go on
			require.NoError(t, err)
			<-done
			f.Close()
			continue
		}
		if len(e.report.Checks) != 1 || e.report.Checks[0].Verdict != name {
			t.Errorf("want %s: %+v", name, e.report.Checks)
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
