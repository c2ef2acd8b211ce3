package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/snapshot"
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
				if check.Verdict == checkFail && check.Next == "" {
					t.Errorf("nothing says what to do: %+v", check)
				}
			}
			named := 0
			for _, c := range r.Checks {
				if c.Verdict == checkFail && strings.Contains(c.Check, "s3://bucket") {
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

// Jobs that replay need room on the disk and in memory for the newest backup.
func TestDoctorRoom(t *testing.T) {
	c, err := config.Parse([]byte("repository: {url: file:///b}\njobs: {full: {run: off}, divergence: {run: off}, drill: {run: lease}}\nresources: {scratch-dir: /, job-memory: 1GiB}\n"), "agent.yaml")
	require.NoError(t, err)
	for _, room := range []struct {
		raw, keys int64
		want      map[string]string // what to do, by check
	}{
		{1 << 20, 1000, nil},
		{1 << 50, 1000, map[string]string{"scratch /": "resources.scratch-dir"}},
		{1 << 20, 10_000_000, map[string]string{"resources.job-memory": "resources.job-memory: 4848MiB"}},
	} {
		e := examination{agent: c}
		var m snapshot.Manifest
		m.Object.RawSize, m.Keys.Count = room.raw, &room.keys
		e.examineSpace(&m)
		found := map[string]string{}
		for _, c := range e.report.Checks {
			if c.Verdict == checkFail {
				found[c.Check] = c.Next
			}
		}
		if len(found) != len(room.want) {
			t.Errorf("%+v: %v", room, found)
		}
		for check, next := range room.want {
			if !strings.Contains(found[check], next) {
				t.Errorf("%+v: %v", room, found)
			}
		}
	}
}

// Promise 4: --agent-config and options that it would make useless are refused
// together; a file that is not there is a failed check.
func TestDoctorAgentUsage(t *testing.T) {
	if e := runHere(t.Context(), "doctor", "--agent-config", "x.yaml", "--repo", "file:///b"); e.code != exitUsage || !strings.Contains(e.stderr, "--repo") {
		t.Errorf("%s", e)
	}
	e := runHere(t.Context(), "doctor", "--agent-config", filepath.Join(t.TempDir(), "none.yaml"))
	if e.code != exitFailed || !strings.Contains(e.stdout, "no such file") || !strings.Contains(e.stdout, "→ ") {
		t.Errorf("%s", e)
	}
}

// The port of an agent that is running already is no fault; somebody else's is.
func TestDoctorPortOfTheAgent(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/status" {
			w.Write([]byte(`{"agent":"m1"}`))
		}
	})
	plain := httptest.NewServer(answer)
	defer plain.Close()
	authority := storetest.NewAuthority(t)
	cert, key := authority.Issue(t, "agent", time.Hour)
	otherCert, otherKey := authority.Issue(t, "other", time.Hour)
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	secure := httptest.NewUnstartedServer(answer)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert}
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for _, c := range []struct{ name, agent, listen, want string }{
		{"plain", "m1", "address: " + plain.Listener.Addr().String(), checkOK},
		{"another agent", "m2", "address: " + plain.Listener.Addr().String(), checkFail},
		{"TLS", "m1", fmt.Sprintf("address: %s, cert: %s, key: %s", secure.Listener.Addr(), cert, key), checkOK},
		{"somebody else's certificate", "m1", fmt.Sprintf("address: %s, cert: %s, key: %s", secure.Listener.Addr(), otherCert, otherKey), checkFail},
	} {
		text := fmt.Sprintf("name: %s\netcd: {endpoints: 'http://127.0.0.1:2379'}\nrepository: {url: file:///b}\nlisten: {%s}\n", c.agent, c.listen)
		agent, err := config.Parse([]byte(text), "agent.yaml")
		require.NoError(t, err)
		e := examination{agent: agent}
		if e.examinePort(t.Context()); e.report.Checks[0].Verdict != c.want {
			t.Errorf("%s: %+v", c.name, e.report.Checks)
		}
	}
}
