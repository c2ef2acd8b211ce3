package control_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	agent "github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/store/storetest"
)

const run1, run2 = "recovery-1", "recovery-2"

// rig is a control process of one member, and the CA of its clients.
type rig struct {
	cfg     *config.Config
	ca      *storetest.Authority
	address string
	hooks   control.Hooks
	end     func()
}

// newRig starts a process for a member whose etcd, of a real cluster of one, is
// stopped and started by the commands of the test's own shell scripts.
func newRig(t *testing.T, m config.Member) *rig {
	t.Helper()
	ca := storetest.NewAuthority(t)
	cert, key := ca.Issue(t, "host", time.Hour)
	cfg := config.Default()
	cfg.Listen = config.Listen{Address: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: ca.CA}
	cfg.StateDir = filepath.Join(t.TempDir(), "state")
	cfg.AuditFile = filepath.Join(cfg.StateDir, "audit.jsonl")
	cfg.Member = m
	cfg.Member.Name = "m1"
	cfg.Member.StopTimeout = agent.Duration(20 * time.Second)
	if m.StartTimeout == 0 {
		cfg.Member.StartTimeout = agent.Duration(20 * time.Second)
	}
	r := &rig{cfg: cfg, ca: ca}
	r.start(t)
	t.Cleanup(func() { r.end() })
	return r
}

func (r *rig) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p, err := control.Listen(ctx, r.cfg, r.hooks, nil)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	r.address = p.Addr().String()
	r.cfg.Listen.Address = r.address // for the next one as well
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx) }()
	ended := false
	r.end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (r *rig) restart(t *testing.T) {
	t.Helper()
	r.end()
	r.start(t)
}

// client has the roles of these verbs; all where none is given.
func (r *rig) client(t *testing.T, run string, verbs ...protocol.Verb) *client.Client {
	t.Helper()
	if len(verbs) == 0 {
		verbs = protocol.Verbs()
	}
	var units []string
	for _, v := range verbs {
		units = append(units, v.Role())
	}
	cert, key := r.ca.IssueRoles(t, "operator", time.Hour, units...)
	return r.clientAs(t, client.Options{Run: run, CA: r.ca.CA, Cert: cert, Key: key})
}

func (r *rig) clientAs(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	o.Address = r.address
	if o.Member == "" {
		o.Member = "m1"
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// audit gives the lines so far.
func (r *rig) audit(t *testing.T) []control.Line {
	t.Helper()
	data, err := os.ReadFile(r.cfg.AuditFile)
	if err != nil {
		t.Fatal(err)
	}
	var lines []control.Line
	in := bufio.NewScanner(bytes.NewReader(data))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l control.Line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", in.Text(), err)
		}
		lines = append(lines, l)
	}
	return lines
}

// last is the audit's last line, which has to be of this event and code.
func (r *rig) last(t *testing.T, event control.Event, code protocol.Code) control.Line {
	t.Helper()
	lines := r.audit(t)
	if len(lines) == 0 {
		t.Fatalf("no audit line, want %s %s", event, code)
	}
	l := lines[len(lines)-1]
	if l.Event != event || l.Code != code {
		t.Errorf("the audit ends with %+v, want %s %s", l, event, code)
	}
	return l
}

// scripts writes shell scripts that start and stop an etcd, as an init script
// does: start returns at once and leaves a daemon.
func scripts(t *testing.T, version, dataDir string, args ...string) config.CommandMember {
	t.Helper()
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\nexport ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH+"\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stop := write("stop", "kill $(cat "+pid+")\n")
	t.Cleanup(func() {
		if data, err := os.ReadFile(filepath.Join(dir, "log")); err == nil && t.Failed() {
			t.Logf("etcd's output:\n%s", data[max(0, len(data)-3000):])
		}
		if data, err := os.ReadFile(pid); err == nil {
			killPID(strings.TrimSpace(string(data)))
		}
	})
	return config.CommandMember{
		Start:  []string{write("start", "setsid "+storetest.Binary(t, version, "etcd")+" --data-dir="+dataDir+" "+strings.Join(args, " ")+" >"+filepath.Join(dir, "log")+" 2>&1 &\necho $! >"+pid+"\n")},
		Stop:   []string{stop},
		Status: []string{write("status", "test -f "+pid+" && kill -0 $(cat "+pid+") 2>/dev/null && exit 0\nexit 3\n")},
	}
}
