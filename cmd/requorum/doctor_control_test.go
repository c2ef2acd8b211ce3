package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/store/storetest"
)

// TestDoctorControl: doctor and --check-config try what the configuration of agent
// control names, and tell what only some recoveries would fail for.
func TestDoctorControl(t *testing.T) {
	ca := storetest.NewAuthority(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "control.yaml")
	write := func(units []string, more string) {
		t.Helper()
		cert, key := ca.IssueHost(t, "host", time.Hour, net.IPv4(127, 0, 0, 1), units...)
		text := fmt.Sprintf("listen: {address: \"127.0.0.1:0\", cert: %s, key: %s, client-ca: %s}\nmember: {name: m1, data-dir: %s, kind: command, command: {start: [/bin/true], stop: [/bin/true]}}\nstate-dir: %s\n%s",
			cert, key, ca.CA, filepath.Join(dir, "data"), filepath.Join(dir, "state"), more)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, more string
		units      []string
		code       int
		want       string
	}{
		{"in order", "", []string{"requorum:copy"}, 0, "can be honoured"},
		{"no client", "", nil, 0, "requorum:copy"},
		{"repository away", "repositories: [" + filepath.Join(dir, "none") + "]\n", []string{"requorum:copy"}, 0, "repositories[0]"},
		{"no identity", "identity-files: [" + filepath.Join(dir, "none") + "]\n", []string{"requorum:copy"}, 1, "identity-files"},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(c.units, c.more)
			got := runHere(t.Context(), "doctor", "--control-config", file)
			if got.code != c.code || !strings.Contains(got.stdout, c.want) || !strings.Contains(got.stdout, "agent control "+file) {
				t.Errorf("doctor: %+v, want %q", got, c.want)
			}
			got = runHere(t.Context(), "agent", "control", "--config", file, "--check-config")
			if got.code != c.code || !strings.Contains(got.stdout+got.stderr, c.want) {
				t.Errorf("--check-config: %+v, want %q", got, c.want)
			}
		})
	}
	write(nil, "")
	got := runHere(t.Context(), "doctor", "--control-config", file, "--output", "json")
	var report doctorReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || !report.OK || len(report.Checks) != 1 || report.Checks[0].Verdict != checkWarn {
		t.Errorf("%+v %v", report, err)
	}
	// The one beside the agent's configuration is found.
	agent := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(agent, []byte("repository: {url: "+filepath.Join(dir, "none")+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runHere(t.Context(), "doctor", "--agent-config", agent); !strings.Contains(got.stdout, "agent control "+file) {
		t.Errorf("beside the agent's: %+v", got)
	}
	if got := runHere(t.Context(), "doctor", "--control-config", filepath.Join(dir, "other.yaml")); got.code != 1 || !strings.Contains(got.stdout, "other.yaml") {
		t.Errorf("one that is not there: %+v", got)
	}
}
