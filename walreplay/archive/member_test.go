package archive

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

func etcdClient(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func dial(t *testing.T, endpoints ...string) *store.Client {
	t.Helper()
	client, err := store.Dial(t.Context(), store.ClientConfig{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// compareWithWAL reads a timeline's archived log back, and compares it with what
// a member's files hold, from first to last.
func compareWithWAL(t *testing.T, repo *repository.Repository, timeline repository.TimelineID, wal string, last uint64) {
	t.Helper()
	log, err := walfile.Open(wal)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	archived, err := segment.OpenLog(t.Context(), repo, timeline)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(archived.Spans()); n != 1 || len(archived.Damaged()) > 0 {
		t.Fatalf("%d spans, gaps %+v, damaged %v", n, archived.Gaps(), archived.Damaged())
	}
	var want []raftlog.Entry
	for e, err := range log.Entries(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Index <= last {
			want = append(want, e)
		}
	}
	i := 0
	for e, err := range archived.Entries(t.Context(), 1, last) {
		if err != nil {
			t.Fatal(err)
		}
		if !e.Equal(want[i]) {
			t.Fatalf("archived %s, the member has %s", e, want[i])
		}
		i++
	}
	if uint64(i) != last || uint64(len(want)) != last {
		t.Fatalf("%d entries archived, the member has %d; want %d", i, len(want), last)
	}
}

// A real member, and a repository on disk: all that is acknowledged is archived,
// within a second and a half of its acknowledgement.
func TestRealMember(t *testing.T) {
	t.Parallel()
	config := store.MemberConfig{Name: "one", DataDir: filepath.Join(t.TempDir(), "one"), Settings: store.Settings{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), LogLevel: "error", Heartbeat: 20 * time.Millisecond, Election: 200 * time.Millisecond,
	}}
	cluster, err := store.StartCluster(t.Context(), store.ClusterConfig{DataDir: config.DataDir, Members: 1, FreePorts: true, Settings: config.Settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Kill)
	sink, err := disk.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dataDir := filepath.Join(config.DataDir, "m1")
	a, err := New(Config{Client: dial(t, cluster.Endpoints()...), DataDir: dataDir, Sink: sink, SpoolDir: t.TempDir(), Interval: time.Second, Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	client := etcdClient(t, cluster.Endpoints()...)
	var lags []time.Duration
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		for range 200 {
			if _, err := client.Put(t.Context(), "key", strings.Repeat("v", 300)); err != nil {
				t.Fatal(err)
			}
		}
		lags = append(lags, a.State().Behind)
	}
	// Idle: the last entries are archived too, though the log does not record that
	// they are committed.
	status, err := client.Status(t.Context(), cluster.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := time.Now()
	for a.State().Archived < status.RaftAppliedIndex {
		if time.Since(acknowledged) > 5*time.Second {
			t.Fatalf("not archived: %+v", a.State())
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("the last of %d entries took %s; behind at most %s", status.RaftAppliedIndex, time.Since(acknowledged).Round(time.Millisecond), slices.Max(lags).Round(time.Millisecond))
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s := a.State()
	if len(s.Alarms) > 0 || s.LastError != "" || s.Segments == 0 {
		t.Errorf("state %+v", s)
	}
	repo, err := repository.Open(t.Context(), sink)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Kill()
	compareWithWAL(t, repo, s.Timeline, filepath.Join(dataDir, "member", "wal"), s.Archived)
}

// Promise 5: a live archiver proposes nothing, neither at its start nor while it
// runs: on an idle cluster the raft index does not move.
func TestPromise5ProposesNothing(t *testing.T) {
	t.Parallel()
	cluster, err := store.StartCluster(t.Context(), store.ClusterConfig{DataDir: t.TempDir(), Members: 1, FreePorts: true, Settings: store.Settings{
		Logger: slog.New(slog.DiscardHandler), LogLevel: "error", Heartbeat: 20 * time.Millisecond, Election: 200 * time.Millisecond,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Kill)
	client := etcdClient(t, cluster.Endpoints()...)
	if _, err := client.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	index := func() uint64 {
		t.Helper()
		status, err := client.Status(t.Context(), cluster.Endpoints()[0])
		if err != nil {
			t.Fatal(err)
		}
		return status.RaftIndex
	}
	// The member's own first proposals are over when it is quiet for a while.
	before := index()
	for quiet := time.Now(); time.Since(quiet) < time.Second; time.Sleep(20 * time.Millisecond) {
		if now := index(); now != before {
			before, quiet = now, time.Now()
		}
	}
	sink := sinktest.NewMemory()
	const interval = 100 * time.Millisecond
	for round := range 2 { // the second one compares, and stamps
		a, err := New(Config{
			Client: dial(t, cluster.Endpoints()...), DataDir: cluster.Members()[0].Config().DataDir, Sink: sink, SpoolDir: t.TempDir(),
			Interval: interval, Alive: interval, Takeover: 2 * interval, Stamp: interval, Tool: "test",
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		for began := time.Now(); a.State().Archived < before || time.Since(began) < 15*interval; time.Sleep(interval) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("round %d: not archived: %+v", round, a.State())
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if s := a.State(); s.Requests.Puts == 0 {
			t.Errorf("round %d: it did nothing: %+v", round, s)
		}
		if err := a.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := index(); after != before {
		t.Errorf("the raft index moved from %d to %d", before, after)
	}
}

// Three real members under load, three archivers that are stopped in turn: cut
// off from the repository and from their memory at one moment, as a kill does.
// What is read back equals the members' logs.
func TestThreeRealMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real servers")
	}
	t.Parallel()
	cluster := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	place, err := disk.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var archivers [3]*killable
	for i := range archivers {
		archivers[i] = &killable{t: t, dir: t.TempDir(), config: Config{
			Client: dial(t, cluster.Member(i).ClientURL), DataDir: cluster.Member(i).DataDir, Tool: "test",
			Interval: 300 * time.Millisecond, Takeover: time.Second,
		}}
		archivers[i].sink.Sink = place
		archivers[i].start()
	}
	client := cluster.Client(t)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := client.Put(t.Context(), fmt.Sprintf("key-%d-%d", w, i%50), strings.Repeat("v", i%700)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for round := range 4 {
		time.Sleep(time.Second)
		archivers[round%3].kill()
		if round%2 == 0 {
			time.Sleep(500 * time.Millisecond)
		}
		archivers[round%3].start()
	}
	close(stop)
	load.Wait()
	status, err := client.Status(t.Context(), cluster.Member(0).ClientURL)
	if err != nil {
		t.Fatal(err)
	}
	var timeline repository.TimelineID
	for _, a := range archivers {
		for began := time.Now(); a.State().Archived < status.RaftAppliedIndex; time.Sleep(20 * time.Millisecond) {
			if time.Since(began) > 15*time.Second {
				t.Fatalf("index %d is not archived: %+v", status.RaftAppliedIndex, a.State())
			}
		}
		timeline = a.State().Timeline
		if a.gaps > 0 {
			t.Errorf("%d gaps", a.gaps)
		}
	}
	for _, a := range archivers {
		a.kill()
	}
	cluster.StopAll()
	repo, err := repository.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	for i := range archivers {
		compareWithWAL(t, repo, timeline, filepath.Join(cluster.Member(i).DataDir, "member", "wal"), status.RaftAppliedIndex)
	}
}

// killable is an archiver that can be stopped as by SIGKILL.
type killable struct {
	*Archiver
	t      *testing.T
	config Config
	dir    string // its spool, as the next one finds it
	sink   goneSink
	cancel context.CancelFunc
	done   chan error
	gaps   int
}

func (k *killable) start() {
	k.t.Helper()
	config := k.config
	sink := &goneSink{Sink: k.sink.Sink}
	config.SpoolDir, config.Sink = k.dir, sink
	config.OnGap = func(context.Context, Gap) error { k.gaps++; return nil }
	a, err := New(config)
	if err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	k.Archiver, k.done = a, done
	k.cancel = func() {
		sink.away.Store(true)
		cancel()
	}
	go func() { done <- a.Run(ctx) }()
	k.t.Cleanup(k.cancel)
}

// kill keeps of the spool what was on the disk before.
func (k *killable) kill() {
	k.t.Helper()
	next := k.t.TempDir()
	// Files may go while they are copied: what is gone is archived.
	for range 20 {
		if copyTree(k.dir, next) == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	k.cancel()
	if err := <-k.done; err != nil {
		k.t.Error(err)
	}
	k.dir = next
}
