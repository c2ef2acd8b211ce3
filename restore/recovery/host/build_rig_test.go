package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/store/yamlfile"
)

const (
	run1, run2 = "recovery-1", "recovery-2"
	token      = "recovered-1"
)

// lost is a cluster of three that was killed, with a repository that has a full
// snapshot of it, from before the last writes.
type lost struct {
	c          *storetest.Cluster
	fill       *storetest.Filled
	repository string
	plan       *sources.Plan
	findings   *sources.Findings
}

func lose(t *testing.T, version string) *lost {
	t.Helper()
	// The databases stay as the snapshot left them: all that comes later is in the logs.
	args := []string{"--backend-batch-interval=10m"}
	l := &lost{c: storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: args}), repository: t.TempDir()}
	l.c.WaitReady(t)
	client := l.c.Client(t)
	_, err := client.Put(t.Context(), "before", "the snapshot")
	require.NoError(t, err)
	place, err := disk.New(l.repository)
	require.NoError(t, err)
	defer place.Close()
	_, err = snapshot.Take(t.Context(), snapshot.Request{Client: storeClient(t, l.c), Sink: place, Tool: "test"})
	require.NoError(t, err)
	l.fill = l.c.Fill(t, storetest.Load{Keys: 1500, ValueSize: 700, Overwrites: 100, Deletes: 50})
	for i := range l.c.Size() { // all of them have all of it
		_, err = l.c.Client(t, i).Put(t.Context(), "last", fmt.Sprint(i))
		require.NoError(t, err)
	}
	for i := range l.c.Size() {
		_, err = l.c.Client(t, i).Get(t.Context(), "last")
		require.NoError(t, err)
	}
	var all sync.WaitGroup
	for i := range l.c.Size() {
		all.Go(func() { l.c.Kill(i) })
	}
	all.Wait()
	return l
}

// shorten takes most of what etcd allocated for later from the end of a stopped member's
// log: each copy of it would be 64 MB of zeros. A survey takes it for cut off.
func shorten(t *testing.T, dataDir string) {
	t.Helper()
	const size = 2 << 20
	files, err := filepath.Glob(filepath.Join(dataDir, "member", "wal", "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the log's files: %v %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	require.NoError(t, err)
	if len(bytes.Trim(data[size:], "\x00")) > 0 {
		t.Fatalf("%s holds more than %d bytes", files[0], size)
	}
	require.NoError(t, os.Truncate(files[0], size))
}

// testHost is a host with one member.
type testHost struct {
	t      *testing.T
	lost   *lost
	cfg    *Config
	name   string
	client string // URL of its member
	lines  []*Remote
	stall  time.Duration // how long a copy may stand still there
	held   bool          // its builds do not end
	piece  int64
	// through is what comes between this host, where it sends, and the one that fetches.
	through func(context.Context, io.Writer) (io.Writer, error)

	// hold keeps back what is asked of this host, until who asked gives up.
	hold func(FetchArguments) bool

	read *sync.Mutex
	from *Remote
}

// copied makes a host with a copy of a member's data.
func (l *lost) copied(t *testing.T, i int) *testHost {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	l.c.CopyData(t, i, dir)
	return l.host(t, i, dir, "")
}

// host makes a host; listen and initialCluster may be empty where its member is not
// started.
func (l *lost) host(t *testing.T, i int, dir, initialCluster string) *testHost {
	t.Helper()
	m := l.c.Member(i)
	h := &testHost{t: t, lost: l, name: m.Name, client: m.ClientURL, stall: time.Minute, piece: 512 << 10, read: &sync.Mutex{}}
	cfg := &Config{}
	cfg.StateDir = filepath.Join(t.TempDir(), "state")
	cfg.Member = supervisor.MemberConfig{Name: m.Name, DataDir: dir}
	cfg.Member.Kind, cfg.Member.Command = supervisor.Command, h.command(initialCluster, dir)
	cfg.Member.StopTimeout, cfg.Member.StartTimeout = yamlfile.Duration(20*time.Second), yamlfile.Duration(20*time.Second)
	h.cfg = cfg
	t.Cleanup(h.end)
	return h
}

// command starts an etcd as an init script does.
func (h *testHost) command(initialCluster, dir string) supervisor.CommandMember {
	t := h.t
	t.Helper()
	scripts := t.TempDir()
	pid := filepath.Join(scripts, "pid")
	write := func(name, text string) []string {
		path := filepath.Join(scripts, name)
		require.NoError(t, storetest.WriteProgram(path, []byte("#!/bin/sh\nexport ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH+"\n"+text), 0o700))
		return []string{path}
	}
	peer := ""
	for part := range strings.SplitSeq(initialCluster, ",") {
		if name, url, _ := strings.Cut(part, "="); name == h.name {
			peer = url
		}
	}
	etcd := fmt.Sprintf("%s --name %s --data-dir %s --listen-client-urls %s --advertise-client-urls %s --listen-peer-urls %s --initial-advertise-peer-urls %s --initial-cluster-state existing",
		storetest.Binary(t, h.lost.c.Version(), "etcd"), h.name, dir, h.client, h.client, peer, peer)
	stop := write("stop", "test -f "+pid+" || exit 0\nkill $(cat "+pid+")\n")
	t.Cleanup(func() {
		if data, err := os.ReadFile(filepath.Join(scripts, "log")); err == nil && t.Failed() {
			t.Logf("the output of %s:\n%s", h.name, data[max(0, len(data)-3000):])
		}
		killPID(pid) // what still wrote would keep its folder from being removed
	})
	return supervisor.CommandMember{
		Start:  write("start", "setsid "+etcd+" >"+filepath.Join(scripts, "log")+" 2>&1 &\necho $! >"+pid+"\n"),
		Stop:   stop,
		Status: write("status", "test -f "+pid+" && kill -0 $(cat "+pid+") 2>/dev/null && exit 0\nexit 3\n"),
	}
}

// end ends the host's processes; the next request starts another one.
func (h *testHost) end() {
	for _, line := range h.lines {
		line.Close()
	}
	h.lines = nil
}

// operator asks the host, which may fetch from owners.
func (h *testHost) operator(run string, owners ...*testHost) *Client {
	h.t.Helper()
	fetch := func(ctx context.Context, a FetchArguments, w io.Writer) (*Sent, error) {
		for _, o := range owners {
			if o.name != a.Member {
				continue
			}
			if o.through != nil && a.File != "" {
				var err error
				if w, err = o.through(ctx, w); err != nil {
					return nil, err
				}
			}
			if o.hold != nil && o.hold(a) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if o.lost == nil {
				return nil, errors.New("it is away")
			}
			return o.reader().As(a.Run).Data(ctx, a.DataArguments, w)
		}
		return nil, fmt.Errorf("there is no host of member %q", a.Member)
	}
	return h.line(fetch).As(run)
}

func (h *testHost) line(fetch func(context.Context, FetchArguments, io.Writer) (*Sent, error)) *Remote {
	line := NewRemote(RemoteOptions{Member: h.name, Command: hostCommand(h.stall, h.piece, h.held), Config: h.cfg, Version: "test", Fetch: fetch})
	h.lines = append(h.lines, line)
	h.t.Cleanup(line.Close)
	return line
}

// reader is where others fetch from: one line for all.
func (h *testHost) reader() *Remote {
	h.read.Lock()
	defer h.read.Unlock()
	if h.from == nil {
		h.from = NewRemote(RemoteOptions{Member: h.name, Command: hostCommand(h.stall, h.piece, h.held), Config: h.cfg, Version: "test"})
		h.t.Cleanup(h.from.Close)
	}
	return h.from
}

// hostCommand runs this program as a host process, which can be held in the middle of
// its build.
func hostCommand(stall time.Duration, piece int64, held bool) []string {
	return []string{"env", fmt.Sprintf("REQUORUM_TEST_HOST=%d,%d,%t", stall, piece, held), os.Args[0]}
}

func (h *testHost) setAside(run string) *testHost {
	h.t.Helper()
	_, err := h.operator(run).SetAside(h.t.Context())
	require.NoError(h.t, err)
	return h
}

func (h *testHost) rebuild(plan RebuildPlan, owners ...*testHost) (*Rebuilt, error) {
	return h.operator(run1, owners...).Rebuild(h.t.Context(), plan)
}

// leftovers are what a rebuild gathered and did not remove.
func (h *testHost) leftovers() []string {
	found, err := filepath.Glob(filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+"*"))
	require.NoError(h.t, err)
	return found
}

// survey surveys the hosts from afar.
func (l *lost) survey(t *testing.T, run string, hosts ...*testHost) {
	t.Helper()
	var summaries []sources.Summary
	for _, h := range hosts {
		var out bytes.Buffer
		require.NoError(t, h.operator(run1).Survey(t.Context(), &out, run))
		summaries = append(summaries, sources.Summary{Name: h.name, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(out.Bytes())), nil
		}})
	}
	repo := l.open(t)
	var err error
	l.findings, err = sources.Survey(t.Context(), sources.SurveyRequest{Summaries: summaries, Repos: []*repository.Repository{repo}})
	require.NoError(t, err)
	l.plan, err = sources.Decide(l.findings, sources.DecideRequest{})
	require.NoError(t, err)
}

func (l *lost) open(t *testing.T) *repository.Repository {
	t.Helper()
	place, err := disk.New(l.repository)
	require.NoError(t, err)
	t.Cleanup(func() { _ = place.Close() })
	repo, err := repository.Open(t.Context(), place)
	require.NoError(t, err)
	return repo
}

// lastCommon is the last entry that all survivors have.
func (l *lost) lastCommon() (index, term uint64) {
	for _, s := range l.findings.Survivors {
		if index == 0 || s.Log.LastIndex < index {
			index, term = s.Log.LastIndex, s.Log.LastTerm
		}
	}
	return index, term
}

// from is the way that takes a member's own database and log.
func (l *lost) from(t *testing.T, name string) sources.Source {
	t.Helper()
	i := slices.IndexFunc(l.findings.Survivors, func(r sources.Remains) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("%s was not surveyed", name)
	}
	last, term := l.lastCommon()
	db := l.findings.Survivors[i].Databases[0]
	s := sources.Source{
		Base:  sources.Base{Owner: name, Path: db.Path, Index: db.Index, Term: db.Term, Revision: db.Revision},
		Index: last, Term: term,
	}
	if db.Index >= last {
		t.Fatalf("nothing of the log of %s is needed: the database is at %d, and the log ends at %d", name, db.Index, last)
	}
	s.Log = []sources.Piece{{Owner: name, First: db.Index + 1, Last: last}}
	return s
}

// planned is a plan to rebuild the cluster of three.
func (l *lost) planned(t *testing.T, source sources.Source) RebuildPlan {
	t.Helper()
	members := l.c.InitialCluster()
	id, err := restore.ClusterID(members, token)
	require.NoError(t, err)
	return RebuildPlan{
		ID: "plan-1", Old: l.plan.ClusterID, New: id, Source: source, InitialCluster: members, ClusterToken: token,
		Bump: restore.BumpRequest{Mode: restore.BumpOff},
	}
}

// limited is a writer that lets so many bytes through, and then does something else.
type limited struct {
	w    io.Writer
	left *atomic.Int64
	then func([]byte) (int, error)
}

func (l limited) Write(p []byte) (int, error) {
	if l.left.Add(-int64(len(p))) >= 0 {
		return l.w.Write(p)
	}
	return l.then(p)
}

// after is a copy of the host from which, after so many bytes, something else comes:
// of each piece, or of all together.
func (h *testHost) after(bytes int64, each bool, then func(context.Context, io.Writer, []byte) (int, error)) *testHost {
	bad := *h
	left := &atomic.Int64{}
	left.Store(bytes)
	bad.through = func(ctx context.Context, w io.Writer) (io.Writer, error) {
		left := left
		if each {
			left = &atomic.Int64{}
			left.Store(bytes)
		}
		return limited{w, left, func(p []byte) (int, error) { return then(ctx, w, p) }}, nil
	}
	return &bad
}
