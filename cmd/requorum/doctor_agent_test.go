package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/store/storetest"
)

// A repository that nobody listens at is reported within seconds, however long the agent
// itself would try.
func TestDoctorDoesNotRetry(t *testing.T) {
	for name, v := range map[string]string{"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, v)
	}
	// One refuses, the other takes a connection and says nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	for _, c := range []struct {
		address string
		most    time.Duration
	}{{storetest.FreeAddress(t), 30 * time.Second}, {silent.Addr().String(), doctorPatience + 25*time.Second}} {
		address, most := c.address, c.most
		url := "s3://bucket/p?region=r&endpoint=http://" + address + "&path-style=true"
		file := filepath.Join(t.TempDir(), "agent.yaml")
		text := "name: m1\nrepository: {url: '" + url + "', retry-for: 1m}\njobs: {full: {run: off}, divergence: {run: off}}\nlisten: {address: '" + storetest.FreeAddress(t) + "'}\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		for _, args := range [][]string{{"--agent-config", file}, {"--repo", url, "--endpoints", "http://" + storetest.FreeAddress(t)}} {
			if address == silent.Addr().String() && args[0] == "--repo" {
				continue // it is the same code, and takes its time
			}
			began := time.Now()
			e := runHere(t.Context(), append([]string{"doctor", "--output", "json"}, args...)...)
			took := time.Since(began)
			var r doctorReport
			if err := json.Unmarshal([]byte(e.stdout), &r); err != nil {
				t.Fatalf("%v: %s", err, e)
			}
			if took > most || r.OK {
				t.Errorf("%v took %s: %s", args, took, e)
			}
			t.Logf("%v: %s", args, took)
			for _, check := range r.Checks {
				if check.Status == checkProblem && check.Next == "" {
					t.Errorf("nothing says what to do: %+v", check)
				}
			}
			named := 0
			for _, c := range r.Checks {
				if c.Status == checkProblem && strings.Contains(c.Check, "s3://bucket") {
					if named++; !strings.Contains(c.Next, "can be reached from this host") {
						t.Errorf("%+v", c)
					}
				}
			}
			if named != 1 {
				t.Errorf("one cause is named %d times: %s", named, e)
			}
		}
	}
}

// Jobs that unpack databases need room for the newest full snapshot.
func TestDoctorRoom(t *testing.T) {
	c, err := config.Parse([]byte("repository: {url: file:///b}\njobs: {full: {run: off}, divergence: {run: off}, drill: {run: lease}}\n"), "agent.yaml")
	require.NoError(t, err)
	dir := t.TempDir()
	for raw, want := range map[int64]string{1 << 20: checkOK, 1 << 50: checkProblem} {
		e := examination{agent: c}
		e.checkRoom(checkProblem, "resources.scratch-dir", dir, c.ScratchNeed(raw))
		if got := e.report.Checks[0]; got.Status != want {
			t.Errorf("%d bytes: %+v", raw, got)
		}
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// Promise 4: --agent-config and options that it would make useless are refused
// together; a file that is not there is a failed check.
func TestDoctorAgentUsage(t *testing.T) {
	if e := runHere(t.Context(), "doctor", "--agent-config", "x.yaml", "--repo", "file:///b"); e.code != exitUsage || !strings.Contains(e.stderr, "--repo") {
		t.Errorf("%s", e)
	}
	e := runHere(t.Context(), "doctor", "--agent-config", filepath.Join(t.TempDir(), "none.yaml"))
	if e.code != exitFailed || !strings.Contains(e.stdout, "no such file") || !strings.Contains(e.stdout, "; docs/agent-configuration.md") {
		t.Errorf("%s", e)
	}
}
