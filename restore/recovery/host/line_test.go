package host

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/verify/replaying"
)

// quietHost is a host whose member never ran, with a database to set aside.
func quietHost(t *testing.T) *Config {
	t.Helper()
	dir := t.TempDir()
	cfg := &Config{StateDir: filepath.Join(dir, "state"), Member: supervisor.MemberConfig{
		Name: "m1", DataDir: filepath.Join(dir, "etcd"),
		ServiceConfig: supervisor.ServiceConfig{
			Kind: supervisor.Command, Command: supervisor.CommandMember{Start: []string{"/bin/false"}, Stop: []string{"/bin/true"}},
			StopTimeout: yamlfile.Duration(20 * time.Second), StartTimeout: yamlfile.Duration(time.Second),
		},
	}}
	path := filepath.Join(cfg.Member.DataDir, "member", "snap", "db")
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Mkdir(filepath.Join(cfg.Member.DataDir, "member", "wal"), 0o700), os.WriteFile(path, []byte("database"), 0o600)))
	return cfg
}

func lineTo(t *testing.T, cfg *Config, version string, command ...string) *Remote {
	t.Helper()
	if command == nil {
		command = hostCommand(3*time.Second, 8<<20, false)
	}
	l := NewRemote(RemoteOptions{Member: "m1", Command: command, Config: cfg, Version: version})
	t.Cleanup(l.Close)
	return l
}

// TestLineDrops: a host process that is killed, and one whose line is cut, in the middle
// of an action, leaves what the next one goes on with. What an older line still asks for
// is refused, and so is another run.
func TestLineDrops(t *testing.T) {
	t.Parallel()
	cfg := quietHost(t)
	stopping, end := filepath.Join(t.TempDir(), "stopping"), filepath.Join(t.TempDir(), "end")
	script := filepath.Join(t.TempDir(), "stop")
	// What reads the member's database keeps it from being stopped, until it is asked to end.
	text := fmt.Sprintf("#!/bin/sh\ntouch %s\nwhile [ ! -e %s ]; do sleep 0.02; done\n", stopping, end)
	require.NoError(t, storetest.WriteProgram(script, []byte(text), 0o700))
	hold := holdOpen(t, filepath.Join(cfg.Member.DataDir, "member", "snap", "db"), end)
	cfg.Member.Command.Stop = []string{script}
	first := lineTo(t, cfg, "test")
	decide(t, first, run1, 1)
	old := first.As(run1)
	ended := make(chan error, 1)
	go func() { _, err := old.Stop(t.Context()); ended <- err }()
	for _, err := os.Stat(stopping); err != nil; _, err = os.Stat(stopping) {
		select {
		case err := <-ended:
			t.Fatalf("it was stopped before it could be: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	// Another line, while the first one acts: it can look, and has to wait.
	second := lineTo(t, cfg, "test")
	if m, err := second.As(run1).Member(t.Context()); err != nil || len(m.Decisions) != 1 {
		t.Errorf("looked at while another acts: %+v, %v", m, err)
	}
	if _, err := second.As(run1).SetAside(t.Context()); codeOf(err) != Busy {
		t.Errorf("while another acts: %v", err)
	}
	require.NoError(t, syscall.Kill(-first.PID(), syscall.SIGKILL))
	var line *LineError
	if err := <-ended; !errors.As(err, &line) || line.Answered || !strings.Contains(err.Error(), "killed") {
		t.Errorf("killed in the middle: %v", err)
	}
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	hold()
	_, err := second.As(run1).Stop(t.Context())
	require.NoError(t, err, "the next one goes on")
	if _, err := second.As(run2).SetAside(t.Context()); codeOf(err) != Conflict || !strings.Contains(err.Error(), run1) {
		t.Errorf("another run: %v", err)
	}
	third := lineTo(t, cfg, "test").As(run1)
	done, err := third.SetAside(t.Context())
	if err != nil || done.Aside == nil {
		t.Fatal(err)
	}
	if _, err := second.As(run1).Undo(t.Context()); codeOf(err) != Outdated {
		t.Errorf("of an older line: %v", err)
	}
	if again, err := third.SetAside(t.Context()); err != nil || again.Aside.Folder != done.Aside.Folder {
		t.Errorf("done twice: %+v, %v", again, err)
	}
	// Cut, not killed: the action is still done.
	cut := lineTo(t, cfg, "test")
	_, err = cut.As(run1).Member(t.Context())
	require.NoError(t, err)
	known, err := readState(cfg.StateDir)
	if err != nil || known.Epoch < 2 {
		t.Errorf("%+v, %v", known, err)
	}
	decide(t, cut, run2, 2)
	if _, err := cut.As(run2).Undo(t.Context()); codeOf(err) != NotFound {
		t.Errorf("with nothing of its own: %v", err)
	}
	decide(t, cut, run1, 3)
	_, err = cut.As(run1).Undo(t.Context())
	require.NoError(t, err, "undone")
}

// holdOpen has a process keep a file open until another one is there; the caller waits
// for its end.
func holdOpen(t *testing.T, path, end string) (wait func()) {
	t.Helper()
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", `exec 3<>"$0"; while [ ! -e "$1" ]; do sleep 0.02; done`, path, end}, &os.ProcAttr{Files: []*os.File{nil, nil, os.Stderr}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Kill() })
	return func() { _, _ = p.Wait() }
}

// TestStrange: what is no host process, or another version, or cannot be reached, is
// distinguished, with what the command printed last.
func TestStrange(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLine+10)
	big := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(big, []byte(long), 0o600))
	for _, c := range []struct {
		name     string
		command  []string
		version  string
		answered bool
		want     []string
	}{
		{"another version", nil, "another", true, []string{"requorum there is test, and this one is another"}},
		{"no such program", []string{"/none/ssh", "host"}, "test", false, []string{"/none/ssh", "no such file"}},
		{"unreachable", []string{"sh", "-c", "echo 'ssh: connect to host h port 22: No route to host' >&2; exit 255"}, "test", false, []string{"No route to host", "exit status 255"}},
		{"not let in", []string{"sh", "-c", "echo 'root@h: Permission denied (publickey).' >&2; exit 255"}, "test", true, []string{"Permission denied (publickey)"}},
		{"no binary there", []string{"sh", "-c", "none-such host"}, "test", true, []string{"exit status 127", "not found"}},
		{"another requorum there", []string{"sh", "-c", `echo 'requorum: unknown command "host" for "requorum"' >&2; exit 2`}, "test", true, []string{"exit status 2", "unknown command"}},
		{"a banner", []string{"sh", "-c", "echo Welcome; cat"}, "test", true, []string{`begins with "Welcome"`, "profile"}},
		{"a line without an end", []string{"cat", big}, "test", true, []string{"a line of more than"}},
		{"then garbage", []string{"sh", "-c", `echo '{"requorum":"test"}'; echo garbage`}, "test", true, []string{`cannot be read came: "garbage"`}},
		{"then too much", []string{"sh", "-c", `echo '{"requorum":"test"}'; cat "$0"`, big}, "test", true, []string{"a line of more than"}},
		{"it sends terminal codes", []string{"sh", "-c", `printf '\033[31mred\n' >&2; exit 1`}, "test", false, []string{": [31mred"}},
	} {
		_, err := lineTo(t, quietHost(t), c.version, c.command...).As(run1).Member(t.Context())
		var line *LineError
		if !errors.As(err, &line) || line.Answered != c.answered || len(err.Error()) > 4096 {
			t.Errorf("%s: answered %t: %v", c.name, line != nil && line.Answered, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", c.name, err, w)
			}
		}
	}
}

// TestStrangeCoordinator: what is sent to a host process and is no line of a coordinator
// ends it, and does nothing.
func TestStrangeCoordinator(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"garbage":          {"garbage\n", "cannot be read"},
		"an unknown field": {`{"id":1,"action":"stop","shell":"rm"}` + "\n", "cannot be read"},
		"too long":         {strings.Repeat("x", maxLine+10), "a line of more than"},
		"without an end":   {`{"id":1`, "without its end"},
	} {
		var out bytes.Buffer
		err := Serve(t.Context(), strings.NewReader(c.in), &out, Options{Version: "test", CheckBase: replaying.CheckBase})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// Nothing is done before it is configured, and the end of its input is no error.
	var out bytes.Buffer
	require.NoError(t, Serve(t.Context(), strings.NewReader(`{"id":1,"action":"stop","value":{}}`+"\n"+`{"id":2,"action":"dance","value":{}}`+"\n"), &out, Options{Version: "test", CheckBase: replaying.CheckBase}))
	for _, want := range []string{`{"requorum":"test"}`, "it is not configured yet", "nothing that a host does"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says %s, want %q", out.String(), want)
		}
	}
}

// TestMoreThanAsked: a host that sends more than was asked for, or something else, is
// found out, and no more than the length is passed on.
func TestMoreThanAsked(t *testing.T) {
	t.Parallel()
	in, toUs := io.Pipe()
	fromUs, out := io.Pipe()
	c := newConversation(in, out, nil)
	go func() { _ = c.Serve(context.Background()) }()
	go func() {
		requests := bufio.NewReader(fromUs)
		for id := 1; ; id++ {
			line, err := readLine(requests, maxLine)
			if err != nil {
				return
			}
			if bytes.Contains(line, []byte("cancel")) {
				id--
				continue
			}
			fmt.Fprintf(toUs, `{"id":%d,"raw":5}`+"\nhello"+`{"id":%d,"raw":5}`+"\nhello"+`{"id":%d,"done":true,"value":{"sha256":"x"}}`+"\n", id, id, id)
		}
	}()
	for _, limit := range []int64{7, 10, 12} {
		var got bytes.Buffer
		sum := newSummedWriter(&got, limit)
		var sent Sent
		err := c.Call(t.Context(), Header{}, verbData, nil, &sent, sum)
		if err == nil {
			err = sum.Check(&sent)
		}
		if err == nil || int64(got.Len()) > limit {
			t.Errorf("limit %d: %d bytes passed on, %v", limit, got.Len(), err)
		}
	}
}

// TestLinkedFolder: a member folder that is a link, which the etcd user can make, leads
// to no other folder.
func TestLinkedFolder(t *testing.T) {
	t.Parallel()
	cfg := quietHost(t)
	secret := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(secret, "shadow"), []byte("root"), 0o600),
		os.RemoveAll(filepath.Join(cfg.Member.DataDir, "member")), os.Symlink(secret, filepath.Join(cfg.Member.DataDir, "member"))); err != nil {
		t.Fatal(err)
	}
	c := lineTo(t, cfg, "test").As(run1)
	var got bytes.Buffer
	if err := copyOf(t, c, &got, "", "member/shadow", 0, 4); err == nil || got.Len() > 0 {
		t.Errorf("a file of another folder was sent: %q, %v", got.String(), err)
	}
	if files, err := c.Files(t.Context(), ""); err == nil {
		t.Errorf("another folder was listed: %v", files)
	}
}

// PID is the process of the command that runs now; 0 where there is none.
func (h *Remote) PID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.line == nil {
		return 0
	}
	return h.line.cmd.Process.Pid
}
