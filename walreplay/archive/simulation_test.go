package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// mortal is a place that fails at every call while it is cut off.
type mortal struct {
	sinks.Sink
	off atomic.Bool
}

func (m *mortal) check() error {
	if m.off.Load() {
		return errAway
	}
	return nil
}

func (m *mortal) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	return m.Sink.Create(ctx, name, opts)
}

func (m *mortal) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	return m.Sink.Open(ctx, name, offset, length)
}

func (m *mortal) Stat(ctx context.Context, name string) (sinks.Object, error) {
	if err := m.check(); err != nil {
		return sinks.Object{}, err
	}
	return m.Sink.Stat(ctx, name)
}

func (m *mortal) Delete(ctx context.Context, name string) error {
	if err := m.check(); err != nil {
		return err
	}
	return m.Sink.Delete(ctx, name)
}

func (m *mortal) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	if err := m.check(); err != nil {
		return func(yield func(sinks.Object, error) bool) { yield(sinks.Object{}, err) }
	}
	return m.Sink.List(ctx, prefix, after)
}

// host is one member with its archiver, in a simulation.
type host struct {
	member *fakeMember
	config Config
	run    *running // nil: stopped
	link   *mortal  // to the repository
	disk   *mortal  // its spool
}

// simulation is a cluster of three members with an archiver each, and what happens to
// them at random.
type simulation struct {
	*rig
	rng     *rand.Rand
	hosts   []*host
	purges  bool
	reads   []age.Identity  // of the archive; the archivers have none
	durable map[uint64]bool // ends of the archive, as archivers called them
	said    []string
}

func (s *simulation) note(format string, args ...any) {
	s.said = append(s.said, time.Now().Format("15:04:05.0 ")+fmt.Sprintf(format, args...))
}

func (s *simulation) begin(i int) {
	h := s.hosts[i]
	if h.run != nil {
		return
	}
	s.note("archiver %d starts", i)
	h.link, h.disk = &mortal{Sink: s.sink}, nil
	c := h.config
	c.Sink = h.link
	c.place = func(dir string) (sinks.Sink, error) {
		place, err := s.spoolIn(dir)
		if err != nil {
			return nil, err
		}
		if h.disk == nil {
			h.disk = &mortal{Sink: place}
		}
		return h.disk, nil
	}
	h.run = s.startWith(c)
}

// end stops an archiver, or kills it: then nothing that it does from this moment on has
// any effect, whatever it is at.
func (s *simulation) end(i int, kill bool) {
	h := s.hosts[i]
	if h.run == nil {
		return
	}
	s.note("archiver %d ends, killed: %v", i, kill)
	s.look()
	path := filepath.Join(h.config.SpoolDir, positionFile)
	before, err := os.ReadFile(path)
	if kill {
		h.link.off.Store(true)
		if h.disk != nil {
			h.disk.off.Store(true)
		}
	}
	_ = h.run.stop() // a dead one fails as it likes
	h.run = nil
	if kill && err == nil {
		require.NoError(s, os.WriteFile(path, before, 0o600))
	}
}

// look notes what archivers call durable.
func (s *simulation) look() {
	for _, h := range s.hosts {
		if h.run == nil {
			continue
		}
		if st := h.run.State(); st.Timeline.N == 1 && (st.Role == Writer || st.Role == Follower) {
			s.durable[st.Archived] = true
		}
	}
}

// up has a member that was down hear of what it missed.
func (s *simulation) up(i int) {
	m := s.hosts[i].member
	s.cluster.mu.Lock()
	was := m.down
	m.down = false
	s.cluster.mu.Unlock()
	if !was {
		return
	}
	s.note("member %d is up", i)
	from := s.hosts[(i+1)%len(s.hosts)].member
	if from.first > m.last()+1 { // the leader sent its database
		s.cluster.mu.Lock()
		m.entries, m.first = append([]raftlog.Entry(nil), from.entries...), from.first
		m.applied, m.term, m.revision = from.applied, from.term, from.revision
		s.cluster.mu.Unlock()
		return
	}
	s.cluster.catchUp(i, (i+1)%len(s.hosts))
}

func (s *simulation) happens() {
	i := s.rng.IntN(len(s.hosts))
	h := s.hosts[i]
	switch s.rng.IntN(16) {
	case 0, 1:
		s.begin(i)
	case 2:
		s.end(i, false)
	case 3:
		s.end(i, true)
	case 4, 5:
		if h.run != nil {
			off := !h.link.off.Load()
			s.note("archiver %d without its repository: %v", i, off)
			h.link.off.Store(off)
		}
	case 6:
		away := !s.gone.away.Load()
		s.note("the repository is away: %v", away)
		s.gone.away.Store(away)
	case 7:
		for k := range s.hosts {
			s.up(k)
		}
		s.cluster.mu.Lock()
		h.member.down = true
		s.cluster.mu.Unlock()
		s.note("member %d is down", i)
	case 8:
		s.purge(s.hosts[i : i+1+s.rng.IntN(len(s.hosts)-i)])
	case 9:
		switch s.rng.IntN(8) {
		case 0:
			s.merge()
		case 1, 2:
			s.outage()
		}
	default:
		n := 1 + s.rng.IntN(12)
		s.cluster.commit(n, "load")
		s.note("%d entries, up to %d", n, s.last())
	}
}

// purge takes the beginning of some members' logs away, up to one index.
func (s *simulation) purge(hosts []*host) {
	m := hosts[0].member
	if !s.purges || m.last() <= m.first+1 {
		return
	}
	through := m.first + s.rng.Uint64N(m.last()-m.first)
	s.note("%d members purge through %d", len(hosts), through)
	for _, h := range hosts {
		if m := h.member; m.first <= through && through < m.last() {
			m.purge(through)
		}
	}
}

// outage ends all archivers, and lets some members purge what no archiver read.
func (s *simulation) outage() {
	for i := range s.hosts {
		s.end(i, s.rng.IntN(2) == 0)
	}
	s.cluster.commit(5+s.rng.IntN(20), "load")
	s.note("no archiver runs, and entries up to %d come", s.last())
	s.purge(s.hosts[s.rng.IntN(2):])
	s.begin(s.rng.IntN(len(s.hosts)))
}

// merge lets the archive get old while no archiver runs, and merges it.
func (s *simulation) merge() {
	if s.gone.away.Load() {
		return
	}
	for i := range s.hosts {
		s.end(i, s.rng.IntN(2) == 0)
	}
	time.Sleep(time.Duration(1+s.rng.IntN(30)) * time.Hour)
	repo, err := repository.Open(context.Background(), s.memory)
	if errors.Is(err, repository.ErrNoRepository) {
		return
	}
	require.NoError(s, err)
	m := segment.NewMerger(segment.MergeConfig{Repo: repo, Timeline: timelineN(1), Tool: "test", Identities: s.reads, Codec: s.hosts[0].config.Codec})
	r, err := m.Merge(context.Background())
	require.NoError(s, err)
	s.note("merged: %d of %d", len(r.Merged), r.Sources)
}

// last is the last entry that is committed.
func (s *simulation) last() uint64 {
	var last uint64
	for _, h := range s.hosts {
		last = max(last, h.member.last())
	}
	return last
}

// Whatever archivers, members and the repository do, and in whatever order: what an
// archiver called durable is in the archive, it is what the cluster committed, and what
// is missing was recorded, and is in no spool. Where no member purged anything, nothing
// is missing. REQUORUM_SEEDS=first-count runs more.
func TestSimulation_RandomArchivers(t *testing.T) {
	first, count := uint64(0), uint64(60)
	if testing.Short() {
		count = 12
	}
	if s := os.Getenv("REQUORUM_SEEDS"); s != "" {
		_, err := fmt.Sscanf(s, "%d-%d", &first, &count)
		require.NoError(t, err)
	}
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	spans, gaps, spools, entries := 0, 0, 0, uint64(0)
	for seed := first; seed < first+count; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			inFakeTime(t, 3, func(t *testing.T, r *rig) {
				s := &simulation{rig: r, durable: map[uint64]bool{}, rng: rand.New(rand.NewPCG(seed, 33))} //nolint:gosec // a test
				s.purges = s.rng.IntN(3) > 0
				defer func() {
					if t.Failed() {
						for _, line := range s.said {
							t.Log(line)
						}
					}
				}()
				var c codec.Options
				if s.rng.IntN(4) == 0 {
					c.Recipients, s.reads = []age.Recipient{identity.Recipient()}, []age.Identity{identity}
				}
				for i := range 3 {
					h := &host{member: r.cluster.members[i], config: r.config(i)}
					h.config.Codec = c
					s.hosts = append(s.hosts, h)
				}
				s.cluster.commit(3, "load")
				for range 30 + s.rng.IntN(30) {
					s.happens()
					time.Sleep(time.Duration(s.rng.Int64N(int64(4 * time.Second))))
					s.look()
				}
				for _, p := range s.spools {
					for range p.List(context.Background(), timelineN(1).String()+"/l0/", "") {
						spools++
					}
				}
				s.settle()
				sp, g := s.judge()
				spans, gaps, entries = spans+sp, gaps+g, entries+s.last()
			})
		})
	}
	t.Logf("seeds %d to %d: %d entries, %d runs of log, %d recorded gaps, %d spooled segments at the end", first, first+count-1, entries, spans, gaps, spools)
	if count >= 60 && (gaps == 0 || spools == 0) {
		t.Error("nothing went wrong in any of them")
	}
}

// settle gives everybody what it needs, and the time to go on.
func (s *simulation) settle() {
	s.note("all is well from here on")
	s.gone.away.Store(false)
	for i, h := range s.hosts {
		s.up(i)
		s.begin(i)
		h.link.off.Store(false)
	}
	for range 60 {
		s.cluster.commit(1, "load")
		time.Sleep(5 * time.Second)
		s.look()
		if s.settled() {
			return
		}
	}
	if s.archived() { // a segment whose names are taken stays on the disk
		return
	}
	for _, h := range s.hosts {
		s.Logf("%+v", h.run.State())
	}
	s.Fatal("not all is archived within five minutes")
}

func (s *simulation) settled() bool { return s.archived() && s.spooled() == 0 }

func (s *simulation) archived() bool {
	for _, h := range s.hosts {
		if h.run.State().Archived < s.last() {
			return false
		}
	}
	return true
}

func (s *simulation) spooled() (bytes int64) {
	for _, h := range s.hosts {
		bytes += h.run.State().Spooled
	}
	return bytes
}

func (s *simulation) judge() (spans, gaps int) {
	s.timelines(1)
	log, err := segment.OpenLog(context.Background(), s.repo(), timelineN(1), nil, s.reads...)
	require.NoError(s, err)
	coverage := log.Coverage()
	if len(coverage) == 0 {
		s.Fatal("nothing is archived")
	}
	held := map[uint64]bool{}
	for _, c := range coverage {
		want := c.FirstIndex
		for e, err := range log.Entries(context.Background(), c.FirstIndex, c.LastIndex) {
			require.NoError(s, err)
			require.True(s, e.Equal(testEntry(want, 2, "load")), "entry %d is %s", want, e)
			held[want] = true
			want++
		}
	}
	records, err := s.repo().Gaps(context.Background(), timelineN(1))
	require.NoError(s, err)
	recorded := func(index uint64) bool {
		for _, r := range records {
			if r.First <= index && index <= r.Last {
				return true
			}
		}
		return false
	}
	for index := coverage[0].FirstIndex; index <= s.last(); index++ {
		if !held[index] && s.spooled() > 0 {
			s.Errorf("entry %d is missing, and something is in a spool", index)
		}
		if !held[index] && s.durable[index] {
			s.Errorf("entry %d is missing, and an archiver called it durable", index)
		}
		if !held[index] && !recorded(index) {
			s.Errorf("entry %d is missing, and no gap is recorded", index)
		}
		if !held[index] && !s.purges {
			s.Errorf("entry %d is missing, and nothing was purged", index)
		}
		if s.Failed() {
			return 0, 0
		}
	}
	if !s.purges && len(coverage) > 1 {
		s.Errorf("nothing was purged, and the archive is not of one chain: %+v", coverage)
	}
	return len(coverage), len(records)
}
