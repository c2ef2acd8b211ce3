package host

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/store/yamlfile"
)

// etcdHost is a host with a stopped member of a real cluster of one, of which the client
// is: shell scripts start and stop it, as an init script does.
func etcdHost(t *testing.T, version string) (*Config, *clientv3.Client) {
	t.Helper()
	m, etcd := killedMember(t, version)
	cfg := quietHost(t)
	cfg.Member.DataDir, cfg.Member.StartTimeout = m.DataDir, yamlfile.Duration(20*time.Second)
	cfg.Member.Command = scripts(t, version, m.DataDir, "--name="+m.Name, "--listen-client-urls="+m.ClientURL, "--advertise-client-urls="+m.ClientURL,
		"--listen-peer-urls=http://127.0.0.1:0", "--initial-advertise-peer-urls="+m.PeerURL, "--initial-cluster="+m.Name+"="+m.PeerURL)
	return cfg, etcd
}

// killedMember is a member with the data of a cluster of one that was killed.
func killedMember(t *testing.T, version string) (*storetest.Member, *clientv3.Client) {
	t.Helper()
	c := storetest.Start(t, storetest.Options{Version: version})
	_, err := c.Client(t).Put(t.Context(), "key", "value")
	require.NoError(t, err)
	c.Kill(0)
	return c.Member(0), c.Client(t)
}

// scripts start an etcd and return at once.
func scripts(t *testing.T, version, dataDir string, args ...string) supervisor.CommandMember {
	t.Helper()
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	write := func(name, text string) []string {
		path := filepath.Join(dir, name)
		require.NoError(t, storetest.WriteProgram(path, []byte("#!/bin/sh\nexport ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH+"\n"+text), 0o700))
		return []string{path}
	}
	t.Cleanup(func() {
		if data, err := os.ReadFile(filepath.Join(dir, "log")); err == nil && t.Failed() {
			t.Logf("etcd's output:\n%s", data[max(0, len(data)-3000):])
		}
		killPID(pid)
	})
	etcd := storetest.Binary(t, version, "etcd") + " --data-dir=" + dataDir + " " + strings.Join(args, " ")
	return supervisor.CommandMember{
		Start:  write("start", "setsid "+etcd+" >"+filepath.Join(dir, "log")+" 2>&1 &\necho $! >"+pid+"\n"),
		Stop:   write("stop", "test -f "+pid+" || exit 0\nkill $(cat "+pid+") 2>/dev/null || true\n"),
		Status: write("status", "test -f "+pid+" && kill -0 $(cat "+pid+") 2>/dev/null && exit 0\nexit 3\n"),
	}
}

// killPID ends a process that a script of the test's own started, and wrote down.
func killPID(file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		return // it was not started
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}

func servesKey(t *testing.T, c *clientv3.Client) {
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

// TestStopSetAsideUndoStart: a recovery's way there and back, on a real etcd,
// with each step done twice, also by a host process that was started anew.
func TestStopSetAsideUndoStart(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some("3.5", "3.6", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cfg, etcd := etcdHost(t, version)
			line := lineTo(t, cfg, "test")
			c := line.As(run1)
			_, err := c.Start(t.Context(), nil)
			require.NoError(t, err)
			servesKey(t, etcd)
			state, err := c.Member(t.Context())
			if err != nil || !state.Runs || state.Stopped || state.NotStopped == "" {
				t.Fatalf("%+v %v", state, err)
			}
			// Not while it runs.
			if _, err := c.SetAside(t.Context()); codeOf(err) != Running {
				t.Errorf("set aside while it runs: %v", err)
			}
			if _, err := c.Files(t.Context(), ""); codeOf(err) != Running {
				t.Errorf("listed while it runs: %v", err)
			}
			if err := copyOf(t, c, &bytes.Buffer{}, "", "member/snap/db", 0, 1); codeOf(err) != Running {
				t.Errorf("copied while it runs: %v", err)
			}
			for range 2 {
				_, err := c.Stop(t.Context())
				require.NoError(t, err)
			}
			if c, err := net.Dial("tcp", strings.TrimPrefix(etcd.Endpoints()[0], "http://")); err == nil {
				t.Error("it is said to be stopped, and listens")
				_ = c.Close()
			}
			decide(t, line, run1, 1)
			if _, err := line.As(run2).SetAside(t.Context()); codeOf(err) != Conflict || !strings.Contains(err.Error(), run1) {
				t.Errorf("another run: %v", err)
			}
			var folder string
			for range 2 {
				done, err := c.SetAside(t.Context())
				if err != nil || folder != "" && done.Aside.Folder != folder {
					t.Fatalf("%+v %v", done, err)
				}
				folder = done.Aside.Folder
				line.Close() // the state file knows
				line = lineTo(t, cfg, "test")
				c = line.As(run1)
			}
			if state, err = c.Member(t.Context()); err != nil || len(state.Aside) != 1 || !state.Aside[0].Done || state.Aside[0].Folder != folder {
				t.Errorf("%+v %v", state, err)
			}
			if _, err := c.Start(t.Context(), nil); codeOf(err) != Unstartable {
				t.Errorf("started without its data: %v", err)
			}
			if _, err := line.As(run2).Undo(t.Context()); codeOf(err) != Conflict {
				t.Errorf("undone by another run: %v", err)
			}
			var undone *Undone
			for range 2 {
				done, err := c.Undo(t.Context())
				require.NoError(t, err)
				if undone != nil {
					require.Equal(t, undone, done.Undone, "undone twice")
				}
				undone = done.Undone
				require.Equal(t, cfg.Member.DataDir, undone.PutBack)
			}
			if state, err = c.Member(t.Context()); err != nil || len(state.Aside) > 0 || !slices.Equal(state.Undone, []string{run1}) {
				t.Errorf("%+v %v", state, err)
			}
			_, err = c.Start(t.Context(), nil)
			require.NoError(t, err)
			servesKey(t, etcd)
			_, err = c.Start(t.Context(), nil)
			require.NoError(t, err, "started twice")
			servesKey(t, etcd)
			_, err = c.Stop(t.Context())
			require.NoError(t, err)
		})
	}
}

// decide stores a decision.
func decide(t *testing.T, line *Remote, run string, epoch uint64) {
	t.Helper()
	_, err := line.As(run).Decide(t.Context(), Decision{Run: run, Epoch: epoch, Data: []byte(`{"a":"<b>"}`)})
	require.NoError(t, err)
}

// TestDecide: only a decision that is newer than all before is stored, over a restart as
// well; one whose answer was lost may be sent again. From then on only its run acts, and
// what others decided stays known.
func TestDecide(t *testing.T) {
	t.Parallel()
	cfg := quietHost(t)
	line := lineTo(t, cfg, "test")
	if _, err := line.As(run1).Stop(t.Context()); err != nil { // nothing was decided here
		t.Fatal(err)
	}
	decide(t, line, run1, 3)
	decide(t, line, run1, 3)
	line.Close()
	line = lineTo(t, cfg, "test")
	decide(t, line, run1, 3)
	for what, d := range map[string]Decision{
		"an older one":        {Run: run1, Epoch: 2, Data: []byte(`{"a":"<b>"}`)},
		"another of this one": {Run: run1, Epoch: 3, Data: []byte(`{"a":"c"}`)},
		"another run's":       {Run: run2, Epoch: 3, Data: []byte(`{"a":"<b>"}`)},
	} {
		if _, err := line.As(d.Run).Decide(t.Context(), d); codeOf(err) != Outdated || !strings.Contains(err.Error(), "decision 3 of run "+run1) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := line.As(run1).Decide(t.Context(), Decision{Run: run2, Epoch: 4, Data: []byte(`1`)}); codeOf(err) != BadRequest {
		t.Errorf("of another run: %v", err)
	}
	acts := func(run string, want Code) {
		t.Helper()
		for what, act := range map[string]func(*Client) (*Done, error){
			"stop":    func(c *Client) (*Done, error) { return c.Stop(t.Context()) },
			"quiesce": func(c *Client) (*Done, error) { return c.Quiesce(t.Context(), false) },
			"resume":  func(c *Client) (*Done, error) { return c.Resume(t.Context(), false) },
		} {
			if _, err := act(line.As(run)); codeOf(err) != want || (err == nil) != (want == "") {
				t.Errorf("%s of %s: %v", what, run, err)
			}
		}
	}
	acts(run1, "")
	acts(run2, Conflict)
	decide(t, line, run2, 4)
	acts(run2, "")
	acts(run1, Conflict)
	m, err := line.As("").Member(t.Context())
	if err != nil || len(m.Decisions) != 2 || m.Decisions[0].Run != run1 || m.Decisions[1].Run != run2 || m.Decisions[1].Epoch != 4 {
		t.Errorf("%+v %v", m, err)
	}
	decide(t, line, run1, 9) // which is gone on with
	acts(run1, "")
	// Another coordinator, which has come on a line as new, found the same decision.
	same := Decision{Run: run1, Epoch: 9, Data: []byte(`{"a":"<b>"}`)}
	other := lineTo(t, cfg, "test").As(run1).By("other")
	if _, err := other.Decide(t.Context(), same); codeOf(err) != Outdated {
		t.Errorf("the same of another coordinator: %v", err)
	}
	same.Epoch = 10
	for range 2 {
		_, err := other.Decide(t.Context(), same)
		require.NoError(t, err)
	}
	line.Close() // it connects anew, and then its line is the newest
	acts(run1, Outdated)
	if _, err := other.Stop(t.Context()); codeOf(err) != Outdated { // by its line
		t.Errorf("on an older line: %v", err)
	}
}

// TestCopy: the list and the bytes are the directory's, in pieces too; of what was set
// aside as of what is in place. Nothing else can be named.
func TestCopy(t *testing.T) {
	t.Parallel()
	cfg := quietHost(t)
	m := &cfg.Member
	m.WALDir = filepath.Join(t.TempDir(), "wal")
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	made := append(bytes.Repeat([]byte("log"), 100_000), make([]byte, 1<<20)...) // and not filled yet
	for path, text := range map[string][]byte{
		filepath.Join(m.DataDir, "member", "snap", "db"):   big,
		filepath.Join(m.DataDir, "member", "wal", "0.wal"): []byte("log"),
		filepath.Join(m.DataDir, "member", "wal", "1.wal"): made,
		filepath.Join(m.DataDir, "other"):                  []byte("no file of the member"),
		filepath.Join(m.WALDir, "0.wal"):                   []byte("the log"),
	} {
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)))
	}
	c := lineTo(t, cfg, "test").As(run1)
	check := func(run string) {
		t.Helper()
		files, err := c.Files(t.Context(), run)
		require.NoError(t, err)
		names := map[string]int64{}
		for _, f := range files {
			names[f.Name] = f.Size
		}
		if names["member/snap/db"] != int64(len(big)) || names["wal/0.wal"] != 7 || names["member/wal/0.wal"] != 3 || names["member/wal/1.wal"] != int64(len(made)) || len(names) != 4 {
			t.Errorf("%q: %v", run, names)
		}
		for _, piece := range [][2]int64{{0, int64(len(big))}, {1000, 500_000}, {int64(len(big)), 0}, {5, 1}} {
			var got bytes.Buffer
			require.NoError(t, copyOf(t, c, &got, run, "member/snap/db", piece[0], piece[1]))
			if !bytes.Equal(got.Bytes(), big[piece[0]:piece[0]+piece[1]]) {
				t.Errorf("%q: piece %v differs", run, piece)
			}
		}
		for _, piece := range [][2]int64{{0, int64(len(made))}, {150_000, 900_000}, {400_000, 500_000}, {0, 300_001}} {
			var got bytes.Buffer
			require.NoError(t, copyOf(t, c, &got, run, "member/wal/1.wal", piece[0], piece[1]))
			want := made[piece[0] : piece[0]+piece[1]]
			if filled := len(bytes.TrimRight(want, "\x00")); got.Len() < filled || got.Len() > filled+copyBuffer || !bytes.Equal(got.Bytes(), want[:got.Len()]) {
				t.Errorf("%q: of piece %v, of which %d bytes are filled, came %d", run, piece, filled, got.Len())
			}
		}
		for what, ask := range map[string]struct {
			file           string
			offset, length int64
			want           Code
		}{
			"more than there is":       {"member/snap/db", 0, int64(len(big)) + 1, BadRequest},
			"from behind the end on":   {"member/snap/db", int64(len(big)) + 1, 0, BadRequest},
			"from before the start on": {"member/snap/db", -1, 1, BadRequest},
			"beside the member":        {"other", 0, 1, BadRequest},
			"out of the folder":        {"member/../other", 0, 1, BadRequest},
			"a folder":                 {"member/snap", 0, 1, BadRequest},
			"no such file":             {"member/snap/none", 0, 1, NotFound},
		} {
			var got bytes.Buffer
			if err := copyOf(t, c, &got, run, ask.file, ask.offset, ask.length); codeOf(err) != ask.want || got.Len() > 0 {
				t.Errorf("%q, %s: %q, %v", run, what, got.String(), err)
			}
		}
	}
	check("")
	if _, err := c.Files(t.Context(), run1); codeOf(err) != NotFound {
		t.Errorf("nothing was set aside: %v", err)
	}
	_, err := c.SetAside(t.Context())
	require.NoError(t, err)
	check(run1)
	if files, err := c.Files(t.Context(), ""); err != nil || len(files) > 0 { // a placeholder is no data
		t.Errorf("in its place: %v %v", files, err)
	}
}

// TestOnlyALog: of a member whose disk with the database is lost, the log on another one is
// listed after it was set aside as it was before.
func TestOnlyALog(t *testing.T) {
	t.Parallel()
	cfg := quietHost(t)
	cfg.Member.WALDir = t.TempDir()
	require.NoError(t, errors.Join(os.RemoveAll(filepath.Join(cfg.Member.DataDir, "member")), os.WriteFile(filepath.Join(cfg.Member.WALDir, "0.wal"), []byte("the log"), 0o600)))
	c := lineTo(t, cfg, "test").As(run1)
	before, err := c.Files(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, before, 1)
	_, err = c.SetAside(t.Context())
	require.NoError(t, err)
	after, err := c.Files(t.Context(), run1)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// TestDirectoriesThatChanged: the word of an old state file moves nothing outside the
// directories that the cluster file names now.
func TestDirectoriesThatChanged(t *testing.T) {
	t.Parallel()
	cfg := quietHost(t)
	_, err := lineTo(t, cfg, "test").As(run1).SetAside(t.Context())
	require.NoError(t, err)
	old := cfg.Member.DataDir
	changed := *cfg
	changed.Member.DataDir = quietHost(t).Member.DataDir
	c := lineTo(t, &changed, "test").As(run1)
	if _, err := c.Undo(t.Context()); codeOf(err) != BadRequest || !strings.Contains(err.Error(), old) {
		t.Errorf("%v", err)
	}
	_, err = os.Stat(filepath.Join(old, "member", "snap", "db"))
	require.ErrorIs(t, err, os.ErrNotExist, "it was moved")
	if _, err := c.Files(t.Context(), run1); codeOf(err) != BadRequest {
		t.Errorf("its files: %v", err)
	}
	if _, err := c.Rebuild(t.Context(), RebuildPlan{}); codeOf(err) != BadRequest {
		t.Errorf("rebuilt: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(changed.Member.DataDir, "member", "snap", "db")); err != nil || string(data) != "database" {
		t.Errorf("%q %v", data, err)
	}
	_, err = lineTo(t, cfg, "test").As(run1).Undo(t.Context())
	require.NoError(t, err, "with the old one")
	if data, err := os.ReadFile(filepath.Join(old, "member", "snap", "db")); err != nil || string(data) != "database" {
		t.Errorf("%q %v", data, err)
	}
}

// TestRebuildBeforeTheSetAside: nothing is built in the place of data that the run has
// not set aside.
func TestRebuildBeforeTheSetAside(t *testing.T) {
	t.Parallel()
	cfg := quietHost(t)
	line := lineTo(t, cfg, "test")
	refused := func(run string) {
		t.Helper()
		_, err := line.As(run).Rebuild(t.Context(), RebuildPlan{})
		if codeOf(err) != BadRequest || !strings.Contains(err.Error(), "has not set the old data aside") {
			t.Errorf("%s: %v", run, err)
		}
	}
	refused(run1)
	if data, err := os.ReadFile(filepath.Join(cfg.Member.DataDir, "member", "snap", "db")); err != nil || string(data) != "database" {
		t.Errorf("%q %v", data, err)
	}
	_, err := line.As(run1).SetAside(t.Context())
	require.NoError(t, err)
	refused(run2) // what another one set aside is not its own
}

// copyOf is a piece of a file, compared with the sender's sum.
func copyOf(t *testing.T, c *Client, w io.Writer, run, file string, offset, length int64) error {
	t.Helper()
	a := DataArguments{Run: run, File: file, Offset: offset, Length: length}
	sum := newSummedWriter(w, length)
	sent, err := c.Data(t.Context(), a, sum)
	if err == nil {
		err = sum.Check(sent)
	}
	return err
}
