package control_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/store/storetest"
)

// realMember is an etcd of a version with its data, which commands start.
func realMember(t *testing.T, version string) (config.Member, *clientv3.Client) {
	t.Helper()
	c := storetest.Start(t, storetest.Options{Version: version})
	m := c.Member(0)
	if _, err := c.Client(t).Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	c.Kill(0)
	command := scripts(t, version, m.DataDir, "--name="+m.Name, "--listen-client-urls="+m.ClientURL, "--advertise-client-urls="+m.ClientURL,
		"--listen-peer-urls=http://127.0.0.1:0", "--initial-advertise-peer-urls="+m.PeerURL, "--initial-cluster="+m.Name+"="+m.PeerURL)
	return config.Member{DataDir: m.DataDir, Kind: config.Command, Command: command}, c.Client(t)
}

func serves(t *testing.T, c *clientv3.Client) {
	t.Helper()
	for range 300 {
		got, err := c.Get(t.Context(), "key")
		if err == nil {
			if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
				t.Fatalf("it serves %v", got.Kvs)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it does not serve")
}

// TestStopSetAsideUndoStart: a recovery's way there and back, on a real etcd of
// each version, with each step done twice.
func TestStopSetAsideUndoStart(t *testing.T) {
	for _, version := range storetest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			m, etcd := realMember(t, version)
			r := newRig(t, m)
			c := r.client(t, run1)
			if _, err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			serves(t, etcd)
			state, err := c.Member(t.Context(), false)
			if err != nil || !state.Runs || state.Stopped != nil || state.NotStopped == "" || state.Run != "" {
				t.Fatalf("%+v %v", state, err)
			}
			// Promise 6: not while it runs.
			if _, err := c.SetAside(t.Context()); codeOf(err) != protocol.Running {
				t.Errorf("set aside while it runs: %v", err)
			}
			if _, err := c.Files(t.Context(), protocol.Current); codeOf(err) != protocol.Running {
				t.Errorf("copied while it runs: %v", err)
			}
			r.last(t, control.Refused, protocol.Running)
			for range 2 {
				done, err := c.Stop(t.Context())
				if err != nil || done.Stopped == nil || len(done.Stopped.Found) < 3 || len(done.Stopped.Processes.Using) > 0 {
					t.Fatalf("%+v %v", done, err)
				}
			}
			other := r.client(t, run2)
			if _, err := other.SetAside(t.Context()); codeOf(err) != protocol.Held || !strings.Contains(err.Error(), run1) {
				t.Errorf("another run: %v", err)
			}
			var folder string
			for range 2 {
				done, err := c.SetAside(t.Context())
				if err != nil || folder != "" && done.Aside.Folder != folder {
					t.Fatalf("%+v %v", done, err)
				}
				folder = done.Aside.Folder
				r.restart(t) // the journal knows
				c = r.client(t, run1)
			}
			if state, err = c.Member(t.Context(), false); err != nil || state.Run != run1 || len(state.Aside) != 1 || state.Aside[0].Folder != folder {
				t.Errorf("%+v %v", state, err)
			}
			if _, err := c.Start(t.Context()); codeOf(err) != protocol.Unstartable {
				t.Errorf("started without its data: %v", err)
			}
			if _, err := c.Undo(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Undo(t.Context()); codeOf(err) != protocol.NotFound {
				t.Errorf("undone twice: %v", err)
			}
			if _, err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			serves(t, etcd)
			if _, err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTakeOver: a run that does not go on can be named, and then loses the member.
func TestTakeOver(t *testing.T) {
	r := newRig(t, idle(t))
	if _, err := r.client(t, run1).Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		takes string
		want  protocol.Code
	}{{"", protocol.Held}, {"recovery-9", protocol.Held}, {run1, ""}} {
		body := r.action(t, func(a *protocol.Action) { a.Run, a.TakesOver = run2, c.takes })
		if _, why := r.raw(t, "POST", protocol.StopPath, body); why.Code != c.want {
			t.Errorf("takes over %q: %+v", c.takes, why)
		}
	}
	if state, err := r.client(t, run2).Member(t.Context(), false); err != nil || state.Run != run2 {
		t.Errorf("%+v %v", state, err)
	}
}

// TestCopy: the list and the bytes are the directory's, in pieces too; of what was
// set aside as of what is in place.
func TestCopy(t *testing.T) {
	m := idle(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := os.WriteFile(filepath.Join(m.DataDir, "member", "snap", "db"), big, 0o600); err != nil {
		t.Fatal(err)
	}
	m.WALDir = filepath.Join(t.TempDir(), "wal")
	if err := errors.Join(os.MkdirAll(m.WALDir, 0o700), os.WriteFile(filepath.Join(m.WALDir, "0.wal"), []byte("the log"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, m)
	c := r.client(t, run1)
	check := func(of string) {
		t.Helper()
		files, err := c.Files(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]int64{}
		for _, f := range files {
			names[f.Name] = f.Size
		}
		if names["member/snap/db"] != int64(len(big)) || names["wal/0.wal"] != 7 || len(names) != 3 {
			t.Errorf("%s: %v", of, names)
		}
		for _, piece := range [][2]int64{{0, int64(len(big))}, {1000, 500_000}, {int64(len(big)), 0}, {5, 1}} {
			var got bytes.Buffer
			if err := c.Copy(t.Context(), &got, of, "member/snap/db", piece[0], piece[1]); err != nil {
				t.Fatal(err)
			}
			if sha256.Sum256(got.Bytes()) != sha256.Sum256(big[piece[0]:piece[0]+piece[1]]) {
				t.Errorf("%s: piece %v differs", of, piece)
			}
		}
		if err := c.Copy(t.Context(), &bytes.Buffer{}, of, "member/snap/db", 0, int64(len(big))+1); codeOf(err) != protocol.BadRequest {
			t.Errorf("%s: more than there is: %v", of, err)
		}
	}
	check(protocol.Current)
	if _, err := c.Files(t.Context(), protocol.Aside); codeOf(err) != protocol.NotFound {
		t.Errorf("nothing was set aside: %v", err)
	}
	if _, err := c.SetAside(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(protocol.Aside)
	if files, err := c.Files(t.Context(), protocol.Current); err != nil || len(files) > 0 { // a placeholder is no data
		t.Errorf("in its place: %v %v", files, err)
	}
	if lines := r.audit(t); lines[0].Verb != protocol.Copy || lines[0].Event != control.Allowed {
		t.Errorf("the audit says %+v", lines[0])
	}
	if info, err := os.Stat(r.cfg.AuditFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestByHand: a distribution's member is looked at, and nothing else is done.
func TestByHand(t *testing.T) {
	for _, kind := range []config.Kind{config.K3s, config.RKE2, config.Talos} {
		m := idle(t)
		m.Kind, m.Command = kind, config.CommandMember{}
		r := newRig(t, m)
		c := r.client(t, run1)
		state, err := c.Member(t.Context(), false)
		if err != nil || len(state.Manual) < 3 {
			t.Errorf("%s: %+v %v", kind, state, err)
		}
		if _, err := c.SetAside(t.Context()); codeOf(err) != protocol.ByHand || !strings.Contains(err.Error(), "--to-snapshot") {
			t.Errorf("%s: %v", kind, err)
		}
		if _, err := os.Stat(filepath.Join(m.DataDir, "member", "snap", "db")); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
