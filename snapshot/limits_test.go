package snapshot_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
)

// planted is a repository in which a test plants manifests.
type planted struct {
	testing.TB
	sink     sinks.Sink
	repo     *repository.Repository
	timeline repository.TimelineID
}

func newPlanted(t testing.TB) *planted {
	p := &planted{TB: t, sink: sinktest.NewMemory(), timeline: repository.TimelineID{ClusterID: 1, N: 1}}
	var err error
	p.repo, err = repository.Init(t.Context(), p.sink, time.Now())
	require.NoError(t, err)
	require.NoError(t, p.repo.OpenTimeline(t.Context(), repository.Timeline{ID: p.timeline, Reason: "test"}))
	return p
}

func (p *planted) put(name string, data []byte) {
	p.Helper()
	_, err := sinks.Put(p.Context(), p.sink, name, data, sinks.CreateOptions{})
	require.NoError(p, err)
}

// backup plants one; change alters its manifest.
func (p *planted) backup(id string, change func(m *snapshot.Manifest)) {
	p.Helper()
	name := repository.SnapshotName(p.timeline, id, 1, false)
	m := &snapshot.Manifest{Format: 1, Kind: snapshot.KindFull, ID: id, Timeline: p.timeline, Object: snapshot.StoredObject{Name: name, Encoding: codec.Encoding{StoredSize: 1}}}
	change(m)
	p.put(name, []byte("x"))
	data, err := repository.Seal(m)
	if err != nil {
		body, errBody := json.Marshal(m)
		if errBody != nil {
			p.Fatal(errBody)
		}
		data = body // larger than Seal makes them: an attacker has another program
	}
	p.put(repository.ManifestName(p.timeline, id), data)
}

func backupID(n int) string {
	return fmt.Sprintf("202601%02dT%02d%02d%02dZ-%06x", 1+n/86400, n/3600%24, n/60%60, n%60, n)
}

// Sixty manifests of several megabytes are not read, and take no memory; what is
// beside them is listed.
func TestCatalogWithLargeManifests(t *testing.T) {
	p := newPlanted(t)
	good := func(*snapshot.Manifest) {}
	p.backup(backupID(0), good)
	labels := map[string]string{}
	for i := range 60_000 {
		labels[fmt.Sprint(i)] = strings.Repeat("x", 100)
	}
	const large = 8 // 56 MiB, and several times that once decoded
	for i := range large {
		p.backup(backupID(1+i), func(m *snapshot.Manifest) { m.Labels = labels })
	}
	p.backup(backupID(1+large), good)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := snapshot.ReadCatalog(t.Context(), p.repo)
	runtime.ReadMemStats(&after)
	if err != nil || len(c.Manifests) != 2 || len(c.Damaged) != large || len(c.Unread) > 0 {
		t.Fatalf("%d good, %d damaged, %v", len(c.Manifests), len(c.Damaged), err)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 64 {
		t.Errorf("it took %d MiB", took)
	}
}

// Of more backups than a catalogue holds those that were stored first and last are
// read, and the others are named.
func TestCatalogBudget(t *testing.T) {
	p := newPlanted(t)
	const more = 300
	for n := range repository.MaxBackups + more {
		p.backup(backupID(n), func(*snapshot.Manifest) {})
	}
	c, err := snapshot.ReadCatalog(t.Context(), p.repo)
	if err != nil || len(c.Manifests) != repository.MaxBackups || len(c.Unread) != 1 || c.Unread[0].Unread != more || !strings.Contains(c.Unread[0].Err.Error(), "300 of its backups were not read") {
		t.Fatalf("%d manifests, %+v, %v", len(c.Manifests), c.Unread, err)
	}
	there := map[string]bool{}
	for _, m := range c.Manifests {
		there[m.ID] = true
	}
	for _, n := range []int{0, repository.MaxBackups/2 - 1, repository.MaxBackups/2 + more, repository.MaxBackups + more - 1} {
		if !there[backupID(n)] {
			t.Errorf("backup %d of %d was not read", n, repository.MaxBackups+more)
		}
	}
}

// However many backups somebody else adds, and attempts at some: who checks signatures
// reads those that count.
func TestCatalogBudgetOfForeign(t *testing.T) {
	p := &planted{TB: t, sink: sinktest.NewMemory(), timeline: repository.TimelineID{ClusterID: 1, N: 1}}
	var err error
	p.repo, err = repository.Init(t.Context(), repository.WithKeys(p.sink, sinktest.NewKeys(t)), time.Now())
	require.NoError(t, err)
	require.NoError(t, p.repo.OpenTimeline(t.Context(), repository.Timeline{ID: p.timeline, Reason: "test"}))
	own := backupID(repository.MaxBackups / 2)
	for n := range repository.MaxBackups + 300 {
		switch id := backupID(n); {
		case id == own:
			name := repository.SnapshotName(p.timeline, id, 1, false)
			p.put(name, []byte("x"))
			m := &snapshot.Manifest{Format: 1, Kind: snapshot.KindFull, ID: id, Timeline: p.timeline, Object: snapshot.StoredObject{Name: name, Encoding: codec.Encoding{StoredSize: 1}}}
			require.NoError(t, p.repo.WriteDocument(t.Context(), repository.ManifestName(p.timeline, id), m))
		case n%2 == 0:
			p.put(repository.SnapshotName(p.timeline, id, 1, false), []byte("x"))
		default:
			p.backup(id, func(*snapshot.Manifest) {})
		}
	}
	c, err := snapshot.ReadCatalog(t.Context(), p.repo)
	if err != nil || len(c.Manifests) != 1 || c.Manifests[0].ID != own || len(c.Unread) > 0 {
		t.Fatalf("%d manifests, %+v, %v", len(c.Manifests), c.Unread, err)
	}
}

// A catalogue is read with as many requests a timeline, however many there are; and what
// is encrypted is found then: asking it of a full snapshot goes through no others.
func TestEncryptedAmongMany(t *testing.T) {
	requests := func(timelines int) int {
		p := newPlanted(t)
		for n := range timelines {
			p.timeline.N = 1 + n
			p.backup(backupID(1), func(m *snapshot.Manifest) { m.Facts.RaftIndex = 1 })
			p.backup(backupID(2), func(m *snapshot.Manifest) {
				m.Facts.RaftIndex, m.Object.Codecs = 2, []string{codec.Zstd, codec.Age}
				m.Object.Name = repository.SnapshotName(p.timeline, m.ID, 1, true)
				p.put(m.Object.Name, []byte("x"))
			})
			p.backup(backupID(3), func(m *snapshot.Manifest) { m.Facts.RaftIndex = 3 })
		}
		counted := sinktest.NewFaulty(p.sink)
		repo, err := repository.Open(t.Context(), counted)
		require.NoError(t, err)
		c, err := snapshot.ReadCatalog(t.Context(), repo)
		require.NoError(t, err)
		require.Len(t, c.Manifests, 3*timelines)
		took := counted.Calls(sinktest.Open) + counted.Calls(sinktest.List)
		all := c.Manifests
		c.Manifests = nil
		for i, m := range all {
			var plain *snapshot.PlainError
			require.Equal(t, i%3 == 2, errors.As(c.CheckEncrypted(m), &plain), m.ID)
		}
		require.Equal(t, took, counted.Calls(sinktest.Open)+counted.Calls(sinktest.List))
		return took
	}
	require.Equal(t, 10*(requests(11)-requests(1)), requests(101)-requests(1))
}

// A full snapshot whose object is gone or cut short is no state to begin with, nor one
// whose manifest is damaged. But its log had reached it: what was encrypted was.
func TestRecentStates(t *testing.T) {
	p := newPlanted(t)
	for n := range 4 {
		p.backup(backupID(n), func(m *snapshot.Manifest) { m.Facts.RaftIndex = 10 - uint64(n) })
	}
	p.backup(backupID(4), func(m *snapshot.Manifest) {
		m.Object.Codecs = []string{codec.Zstd, codec.Age}
		m.Object.Name = repository.SnapshotName(p.timeline, m.ID, 2, true)
	})
	p.backup(backupID(5), func(m *snapshot.Manifest) { m.Object.StoredSize = 2 })
	p.put(repository.ManifestName(p.timeline, backupID(6)), []byte("damaged"))
	recent, err := snapshot.RecentStates(t.Context(), p.repo, p.timeline)
	require.NoError(t, err)
	require.Len(t, recent, 4)
	require.Equal(t, backupID(3), recent[0].ID)
	require.ErrorAs(t, snapshot.CheckPlain(t.Context(), p.repo, p.timeline), new(*snapshot.MustEncryptError))
}

// What a manifest lists and says is bounded, when it is read as well.
func TestManifestBounds(t *testing.T) {
	for what, change := range map[string]func(m *snapshot.Manifest){
		"labels":      func(m *snapshot.Manifest) { m.Labels = many(65) },
		"a long key":  func(m *snapshot.Manifest) { m.Labels = map[string]string{strings.Repeat("k", 129): ""} },
		"no key":      func(m *snapshot.Manifest) { m.Labels = map[string]string{"": "x"} },
		"a long one":  func(m *snapshot.Manifest) { m.Labels = map[string]string{"k": strings.Repeat("v", 1025)} },
		"all labels":  func(m *snapshot.Manifest) { m.Labels = longValues(9) },
		"a terminal":  func(m *snapshot.Manifest) { m.Labels = map[string]string{"k": "\x1b[2J"} },
		"members":     func(m *snapshot.Manifest) { m.Facts.Members = make([]snapshot.Member, 257) },
		"recipients":  func(m *snapshot.Manifest) { m.Object.Recipients = make([]string, 257) },
		"an index":    func(m *snapshot.Manifest) { m.Facts.RaftIndex = 1<<64 - 1 },
		"a revision":  func(m *snapshot.Manifest) { m.Facts.Revision = -1 },
		"a size":      func(m *snapshot.Manifest) { m.Object.StoredSize = 1 << 60 },
		"many values": func(m *snapshot.Manifest) { m.Object.Recipients = make([]string, 5000) },
	} {
		p := newPlanted(t)
		p.backup(backupID(1), change)
		p.backup(backupID(2), func(m *snapshot.Manifest) { m.Labels = many(64) })
		c, err := snapshot.ReadCatalog(t.Context(), p.repo)
		if err != nil || len(c.Manifests) != 1 || len(c.Damaged) != 1 {
			t.Errorf("%s: %d good, %d damaged, %v", what, len(c.Manifests), len(c.Damaged), err)
		}
	}
}

func many(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprint(i)] = "ä value"
	}
	return labels
}

func longValues(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprint(i)] = strings.Repeat("v", 1000)
	}
	return labels
}
