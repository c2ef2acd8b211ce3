package archive

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// rig is a fake cluster, a repository in memory, and archivers, in fake time.
type rig struct {
	*testing.T
	cluster *fakeCluster
	memory  *sinktest.Memory
	sink    *sinktest.Faulty // counts, and fails by a script
	gone    *goneSink        // beneath it
	spools  map[string]*sinktest.Memory
}

func inFakeTime(t *testing.T, members int, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := sinktest.NewMemory()
		r := &rig{T: t, cluster: newFakeCluster(members), memory: memory, gone: &goneSink{Sink: memory}, spools: map[string]*sinktest.Memory{}}
		r.sink = sinktest.NewFaulty(r.gone)
		test(t, r)
		r.sink.AllFired(t)
		synctest.Wait()
		r.namesSayTheSame()
	})
}

// running is one archiver that runs.
type running struct {
	*Archiver
	rig    *rig
	config Config
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error
	mu     sync.Mutex
	gaps   []Gap
	events []Event
}

func (r *rig) config(member int) Config {
	m := r.cluster.members[member]
	return Config{
		Sink: r.sink, SpoolDir: r.TempDir(), Tool: "requorum test", Interval: time.Second, Takeover: 5 * time.Second,
		open: m.open, cluster: asked{m}, place: r.spoolIn,
	}
}

// spoolIn is a spool's place in memory, the same for one folder.
func (r *rig) spoolIn(dir string) (sinks.Sink, error) {
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	if r.spools[dir] == nil {
		r.spools[dir] = sinktest.NewMemory()
	}
	return r.spools[dir], nil
}

// onDisk has segments spooled to real files.
func onDisk(c *Config) { c.place = func(dir string) (sinks.Sink, error) { return disk.New(dir) } }

// start runs the archiver of one member until the test ends.
func (r *rig) start(member int, change ...func(*Config)) *running {
	r.Helper()
	return r.startWith(r.config(member), change...)
}

func (r *rig) startWith(config Config, change ...func(*Config)) *running {
	r.Helper()
	for _, f := range change {
		f(&config)
	}
	a := &running{rig: r, config: config, done: make(chan error, 1)}
	if config.OnGap == nil {
		config.OnGap = func(_ context.Context, g Gap) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.gaps = append(a.gaps, g)
			return nil
		}
	}
	config.Events = func(e Event) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.events = append(a.events, e)
	}
	var err error
	a.Archiver, err = New(config)
	require.NoError(r, err)
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	go func() { a.done <- a.Run(ctx) }()
	r.Cleanup(func() { a.stop() })
	return a
}

// archived runs the archiver of the first member, and archives four entries for each of
// some seconds.
func (r *rig) archived(seconds int, change ...func(*Config)) *running {
	r.Helper()
	a := r.start(0, change...)
	r.load(seconds)
	r.waitArchived(a, r.cluster.members[0].last(), 10*time.Second)
	return a
}

// stop ends the archiver as SIGTERM does.
func (a *running) stop() error {
	a.cancel()
	a.once.Do(func() { a.err = <-a.done })
	return a.err
}

func (a *running) snapshots() []Gap {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.gaps)
}

// raised reports whether an alarm ever was.
func (a *running) raised(name Alarm) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.events, func(e Event) bool { return e.Alarm == name && e.Raised })
}

func (a *running) has(name Alarm) bool {
	return slices.ContainsFunc(a.State().Alarms, func(r RaisedAlarm) bool { return r.Alarm == name })
}

// waitFor lets fake time pass until the condition holds.
func (r *rig) waitFor(what string, limit time.Duration, is func() bool) {
	r.Helper()
	for began := time.Now(); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > limit {
			r.Fatalf("%s: not within %s", what, limit)
		}
	}
}

func (r *rig) waitArchived(a *running, index uint64, limit time.Duration) {
	r.Helper()
	defer func() {
		if r.Failed() {
			r.Logf("state: %+v", a.State())
		}
	}()
	r.waitFor("archived", limit, func() bool { return a.State().Archived >= index })
}

func (r *rig) waitAll(index uint64, limit time.Duration, all ...*running) {
	r.Helper()
	for _, a := range all {
		r.waitArchived(a, index, limit)
	}
}

// oneSpan wants the archived log of timeline 1 to be one, in one chain.
func (r *rig) oneSpan() {
	r.Helper()
	require.Len(r, r.openLog(1).Coverage(), 1)
}

// timelines wants the repository to have n.
func (r *rig) timelines(n int) {
	r.Helper()
	ids, err := r.repo().TimelineIDs(context.Background())
	require.NoError(r, err)
	require.Len(r, ids, n)
}

// commits writes n entries a second.
func (r *rig) commits(seconds, n int) {
	for range seconds {
		r.cluster.commit(n, "load")
		time.Sleep(time.Second)
	}
}

// load commits a little for a while.
func (r *rig) load(seconds int) { r.commits(seconds, 4) }

func timelineN(n int) repository.TimelineID {
	return repository.TimelineID{ClusterID: testCluster, N: n}
}

func (r *rig) repo() *repository.Repository {
	r.Helper()
	repo, err := repository.Open(context.Background(), r.memory)
	require.NoError(r, err)
	return repo
}

func (r *rig) openLog(n int, identities ...age.Identity) *segment.Log {
	r.Helper()
	l, err := segment.OpenLog(context.Background(), r.repo(), timelineN(n), nil, identities...)
	require.NoError(r, err)
	return l
}

// namesSayTheSame: what an archiver left is the same log by names and by all headers, and
// each part that they call whole can be read.
func (r *rig) namesSayTheSame() {
	r.Helper()
	repo, err := repository.Open(context.Background(), r.memory)
	if r.Failed() || errors.Is(err, repository.ErrNoRepository) {
		return
	}
	require.NoError(r, err)
	ids, err := repo.TimelineIDs(context.Background())
	require.NoError(r, err)
	for _, id := range ids {
		all, err := segment.OpenLog(context.Background(), repo, id, nil)
		require.NoError(r, err)
		if len(all.Damaged()) > 0 {
			continue // by names it shows when it is read
		}
		byNames, err := segment.OpenNames(context.Background(), repo, id, nil)
		require.NoError(r, err)
		want, got := all.Coverage(), byNames.Coverage()
		require.Len(r, got, len(want), "timeline %s by names: %+v", id, got)
		for i, c := range want {
			require.Equal(r, [2]uint64{c.FirstIndex, c.LastIndex}, [2]uint64{got[i].FirstIndex, got[i].LastIndex})
			for _, err := range all.Entries(context.Background(), c.FirstIndex, c.LastIndex) {
				var locked *codec.IdentityError
				if err != nil && !errors.As(err, &locked) {
					r.Errorf("timeline %s, entries %d to %d: %v", id, c.FirstIndex, c.LastIndex, err)
				}
			}
		}
	}
}

// sameAs reads the archived log of a timeline back, and compares it with what a
// member has.
func (r *rig) sameAs(n int, want []raftlog.Entry) {
	r.Helper()
	if len(want) == 0 {
		r.Fatal("nothing to compare")
	}
	i := 0
	for e, err := range r.openLog(n).Entries(context.Background(), want[0].Index, want[len(want)-1].Index) {
		require.NoError(r, err)
		if i >= len(want) || !e.Equal(want[i]) {
			r.Fatalf("archived %s (%q), want %s (%q)", e, e.Data, want[i], want[i].Data)
		}
		i++
	}
	if i != len(want) {
		r.Fatalf("%d entries archived of %d", i, len(want))
	}
}

func (r *rig) names() []string {
	var names []string
	for o, err := range r.memory.List(context.Background(), "", "") {
		require.NoError(r, err)
		names = append(names, o.Name)
	}
	return names
}

var errAway = sinktest.ErrInjected

// goneSink is a repository that can be cut off.
type goneSink struct {
	sinks.Sink
	away   atomic.Bool
	full   atomic.Bool            // gives, and takes nothing
	refuse atomic.Pointer[string] // takes no object with this in its name
	tried  atomic.Int64
}

var errFull = errors.New("no space left on device")

func (g *goneSink) check() error {
	if !g.away.Load() {
		return nil
	}
	g.tried.Add(1)
	return errAway
}

func (g *goneSink) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	if part := g.refuse.Load(); g.full.Load() || part != nil && strings.Contains(name, *part) {
		g.tried.Add(1)
		return nil, errFull
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Sink.Create(ctx, name, opts)
}

func (g *goneSink) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Sink.Open(ctx, name, offset, length)
}

func (g *goneSink) Stat(ctx context.Context, name string) (sinks.Object, error) {
	if err := g.check(); err != nil {
		return sinks.Object{}, err
	}
	return g.Sink.Stat(ctx, name)
}

func (g *goneSink) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	if err := g.check(); err != nil {
		return func(yield func(sinks.Object, error) bool) { yield(sinks.Object{}, err) }
	}
	return g.Sink.List(ctx, prefix, after)
}
