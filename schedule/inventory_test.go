package schedule

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/serve"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

// What is stored is reported with what verdicts, pins and listings say of it.
func TestStockDescribe(t *testing.T) {
	now := time.Now()
	at := func(hours int) time.Time { return now.Add(time.Duration(hours) * time.Hour).Truncate(time.Second) }
	s := newShelf(t, memory())
	s.log(timelineA, 5, at(-50))
	passed := s.full(timelineA, at(-49))
	s.log(timelineA, 5, at(-40))
	damaged := s.full(timelineA, at(-39))
	s.log(timelineA, 2, at(-39))
	next := s.full(timelineA, at(-38))
	gone := s.full(timelineA, at(-37))
	s.log(timelineA, 7, at(-1))
	s.verdict(passed, report.Structure, report.Passed)
	s.verdict(damaged, "", report.Damaged)
	must(t, s.repo.WritePin(t.Context(), repository.Pin{Timeline: timelineA, Backup: passed.ID, Created: now}))
	must(t, s.sink.Delete(t.Context(), gone.Object.Name))

	var r web.Repository
	inventory := s.inventory()
	inventory.describe(&r)
	if len(r.Backups) != 4 {
		t.Fatalf("%+v", r.Backups)
	}
	first, second, third, fourth := r.Backups[0], r.Backups[1], r.Backups[2], r.Backups[3]
	if first.ID != passed.ID || first.Proved != report.Structure || first.ProvedAt.IsZero() || !first.Pinned || first.Source != "m2" {
		t.Errorf("the proved one: %+v", first)
	}
	if second.ID != damaged.ID || second.Damaged != "bits are flipped (and 1 more)" || second.Failed != report.Checksum || second.Proved != "" || second.Pinned {
		t.Errorf("the damaged one: %+v", second)
	}
	if third.ID != next.ID || third.Damaged != "" {
		t.Errorf("the next one: %+v", third)
	}
	if fourth.ID != gone.ID || fourth.Damaged == "" || !fourth.Time.Equal(at(-37)) {
		t.Errorf("the one whose object is gone: %+v", fourth)
	}
	if r.FullBytes == 0 || r.LogBytes == 0 || len(r.Timelines) != 1 || len(r.Ranges) == 0 || r.ID == "" || r.Listed.IsZero() {
		t.Errorf("%+v", r)
	}
	if m := inventory.newest(); m.ID != next.ID {
		t.Errorf("the newest is %s", m.ID)
	}
	if bytes, entries := inventory.since(inventory.newest()); entries != 7 || bytes == 0 || bytes >= r.LogBytes {
		t.Errorf("since: %d bytes, %d entries", bytes, entries)
	}
	noNull(t, r)
	// Damage that a later proof takes back is none.
	s.verdict(damaged, report.Checksum, report.Passed)
	inventory = s.inventory()
	inventory.describe(&r)
	if r.Backups[1].Damaged != "" || r.Backups[1].Proved != report.Checksum {
		t.Errorf("proved since: %+v", r.Backups[1])
	}
}

// What is in the clear, with older full snapshots that are encrypted, does not count: it
// hides neither that backups failed nor what the newest one is.
func TestStockInTheClear(t *testing.T) {
	s := newShelf(t, memory())
	now := time.Now()
	s.log(timelineA, 5, now)
	own := s.full(timelineA, now.Add(-48*time.Hour))
	encrypted := *own
	encrypted.ID = "20260102T150405Z-3f9a2c"
	encrypted.Object.Name, encrypted.Object.Codecs = repository.SnapshotName(timelineA, encrypted.ID, 1, true), []string{codec.Zstd, codec.Age}
	_, err := sinks.Put(t.Context(), s.sink, encrypted.Object.Name, make([]byte, encrypted.Object.StoredSize), sinks.CreateOptions{})
	must(t, err)
	must(t, s.repo.WriteDocument(t.Context(), repository.ManifestName(timelineA, encrypted.ID), encrypted))
	must(t, s.sink.Delete(t.Context(), repository.ManifestName(timelineA, own.ID)))
	s.ends[timelineA]++
	planted := s.full(timelineA, now.Add(-time.Hour))
	inventory := s.inventory()
	if m := inventory.newest(); m.ID != encrypted.ID {
		t.Errorf("the newest is %s", m.ID)
	}
	if at := inventory.held()[timelineA]; !at.Equal(encrypted.Started) {
		t.Errorf("held up to %s, want %s", at, encrypted.Started)
	}
	var r web.Repository
	inventory.describe(&r)
	for _, b := range r.Backups {
		if (b.Damaged != "") != (b.ID == planted.ID) || b.Damaged != "" && !strings.Contains(b.Damaged, "is not encrypted, though older full snapshots there are") {
			t.Errorf("%+v", b)
		}
	}
}

// A second look costs listings, and reads nothing that was read before.
func TestStockSecondLook(t *testing.T) {
	sink := memory()
	s := newShelf(t, sink)
	for i := range 10 {
		s.log(timelineA, 3, time.Now())
		s.verdict(s.full(timelineA, time.Now().Add(time.Duration(i-20)*time.Hour)), report.Checksum, report.Passed)
	}
	inventory, err := newInventory(t.Context(), rememberDocuments(sink))
	must(t, err)
	look := func() (lists, opens int) {
		t.Helper()
		l, o := sink.Calls(sinktest.List), sink.Calls(sinktest.Open)
		must(t, inventory.look(t.Context(), time.Now()))
		return sink.Calls(sinktest.List) - l, sink.Calls(sinktest.Open) - o
	}
	_, first := look()
	lists, opens := look()
	t.Logf("first look: %d reads; second: %d listings, %d reads", first, lists, opens)
	if first < 30 || opens > 1 || lists != 12 { // requests cost money
		t.Errorf("%d reads at first; then %d listings and %d reads", first, lists, opens)
	}
	s.log(timelineA, 3, time.Now())
	s.full(timelineA, time.Now())
	if _, opens := look(); opens == 0 || opens > 4 {
		t.Errorf("%d reads for one backup and one segment", opens)
	}
	// For what is to be verified the log is not looked at.
	before := sink.Calls(sinktest.Open)
	fresh, err := newInventory(t.Context(), rememberDocuments(sink))
	must(t, err)
	must(t, fresh.lookAtBackups(t.Context()))
	if n := sink.Calls(sinktest.Open) - before; n >= first {
		t.Errorf("%d reads without the log, %d with it", n, first)
	}
	// What is known stays where a look fails.
	sink.Add(sinktest.Fail(sinktest.List, 1, nil).Always())
	require.Error(t, inventory.look(t.Context(), time.Now()), "a look without listings")
	if inventory.newest() == nil {
		t.Error("what was known is forgotten")
	}
	sink.AllFired(t)
}

// Promise 2: the time that restoring takes is measured, or called reckoned.
func TestRTO(t *testing.T) {
	now := time.Now()
	s := newShelf(t, memory())
	inventory := s.inventory()
	if r := inventory.rto(0, now); r.Known || !strings.Contains(r.Text, "nothing to restore") {
		t.Errorf("nothing there: %+v", r)
	}
	m := s.full(timelineA, now.Add(-time.Hour))
	if r := s.inventory().rto(500_000, now); !r.Known || r.Seconds != 17 || !r.Measured.IsZero() || r.Text != "About 17 s, reckoned from the size; a drill would measure it." {
		t.Errorf("reckoned: %+v", r) // 5 s, 200 MiB and half a million entries
	}
	// Looking up what to expect, and clearing away, is no part of a recovery.
	s.verdict(m, report.Drill, report.Passed,
		report.Phase{Name: "build", Took: 40 * time.Second}, report.Phase{Name: "boot", Took: 3 * time.Second},
		report.Phase{Name: serve.PhaseServe, Took: time.Hour}, report.Phase{Name: serve.PhaseRemove, Took: time.Hour}, report.Phase{Name: serve.PhaseExpect, Took: time.Hour})
	s.verdict(m, report.Structure, report.Passed, report.Phase{Name: "structure", Took: time.Hour})
	s.verdict(m, report.Structure, report.Damaged, report.Phase{Name: "build", Took: time.Hour})
	if r := s.inventory().rto(500_000, now.Add(2*time.Hour)); !r.Known || r.Seconds != 43 || r.Measured.IsZero() || !strings.HasPrefix(r.Text, "A drill restored the newest point in 43 s, ") || !strings.HasSuffix(r.Text, " ago.") {
		t.Errorf("measured: %+v", r)
	}
	if r := s.inventory().rto(0, now.Add(drillCounts+time.Hour)); !r.Measured.IsZero() || r.Seconds != 7 {
		t.Errorf("measured long ago: %+v", r)
	}
}

// What would be lost is reported with a text, whatever is known.
func TestRPO(t *testing.T) {
	now := time.Now()
	sink := memory()
	s := newShelf(t, sink)
	session := termOn(t, verifier, sink)
	rpo := func() web.RPO {
		st := session.describe(now)
		noNull(t, st)
		data, err := json.Marshal(st)
		if err != nil || !strings.Contains(string(data), `"members":[]`) {
			t.Errorf("%s, %v", data, err)
		}
		return st.RPO
	}
	if r := rpo(); r.Known || !strings.Contains(r.Text, "was not listed yet") {
		t.Errorf("at first: %+v", r)
	}
	var known *inventory
	look := func() { t.Helper(); must(t, session.lookAtInventory(t.Context(), &known)) }
	look()
	if r := rpo(); r.Known || r.Text != "Everything would be lost: there is no full snapshot." {
		t.Errorf("no backup: %+v", r)
	}
	s.log(timelineA, 5, now.Add(-3*time.Hour))
	s.full(timelineA, now.Add(-2*time.Hour))
	look()
	if r := rpo(); !r.Known || r.Seconds != 7200 || !strings.HasPrefix(r.Text, "At most what was written in the last 2 h would be lost, ") {
		t.Errorf("a backup: %+v", r)
	}
	// An agent that archives nothing sees in the listing what others archive.
	s.log(timelineA, 5, now.Add(-90*time.Second))
	look()
	if r := rpo(); !r.Known || r.Seconds != 90 || !strings.HasPrefix(r.Text, "At most what was written in the last 90 s would be lost, ") {
		t.Errorf("a log: %+v", r)
	}
	// One that is damaged holds nothing.
	s.ends[timelineA] += 3 // which only the snapshot holds
	bad := s.full(timelineA, now.Add(-30*time.Second))
	s.verdict(bad, "", report.Damaged)
	look()
	if r := rpo(); r.Seconds != 90 {
		t.Errorf("a damaged full: %+v", r)
	}
	// A host whose clock is ahead makes nothing look better than it is.
	s.full(timelineA, now.Add(5*time.Hour))
	look()
	if r := rpo(); !r.Known || r.Until.After(time.Now()) {
		t.Errorf("a backup of the future: %+v", r)
	}
}

func TestInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1 s", 1400 * time.Millisecond: "2 s", 119 * time.Second: "119 s", 10 * time.Minute: "10 min", 5 * time.Hour: "5 h", 80 * time.Hour: "3 days",
	} {
		if got := inWords(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

// While the archiver cannot begin, a full snapshot says what would be lost; of
// another timeline than the archived one it says nothing.
func TestRPOWithoutALog(t *testing.T) {
	now := time.Now()
	session := termOn(t, beside, memory())
	newest := &snapshot.Manifest{ID: "x", Timeline: timelineA}
	seen := observations{newest: newest, sight: sight{at: now, until: now}, held: map[repository.TimelineID]time.Time{timelineA: now.Add(-time.Hour)}}
	for _, c := range []struct {
		archived repository.TimelineID
		known    bool
	}{{repository.TimelineID{}, true}, {timelineA, true}, {repository.TimelineID{ClusterID: 9, N: 1}, false}} {
		r := session.rpo(now, &web.Status{Archive: &archive.State{Timeline: c.archived}, Repository: web.Repository{Listed: now}}, seen)
		if r.Known != c.known || c.known && r.Seconds != 3600 {
			t.Errorf("archived in %s: %+v", c.archived, r)
		}
	}
}

// What would be lost is said of what was last seen in the repository, and is not known
// while that does not answer.
func TestRPOAsSeen(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d).UTC() }
	away := errors.New("no route to host")
	for name, c := range map[string]struct {
		sight     sight
		confirmed time.Time // by the archiver here; zero after a restart
		want      web.RPO   // less the text
	}{
		"after a restart":      {sight{at: now, until: now}, time.Time{}, web.RPO{Known: true, Until: ago(2 * time.Minute), Seconds: 120}},
		"archived":             {sight{at: now, until: now}, ago(time.Second), web.RPO{Known: true, Until: ago(time.Second), Seconds: 1}},
		"archived, not seen":   {sight{at: ago(3 * time.Second), until: ago(4 * time.Second)}, ago(time.Second), web.RPO{Known: true, Until: ago(4 * time.Second), Seconds: 4}},
		"away":                 {sight{at: ago(time.Minute), until: ago(70 * time.Second), err: away}, ago(time.Second), web.RPO{Unknown: ago(time.Minute), Until: ago(70 * time.Second)}},
		"away since the start": {sight{err: away}, ago(time.Second), web.RPO{Unknown: ago(time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			session := termOn(t, beside, memory())
			session.started = ago(time.Hour)
			session.point.confirm(7, c.confirmed)
			session.point.durable("a", 7)
			newest := &snapshot.Manifest{ID: "x", Timeline: timelineA, Facts: snapshot.Facts{RaftIndex: 3}}
			seen := observations{newest: newest, sight: c.sight, held: map[repository.TimelineID]time.Time{timelineA: ago(90 * time.Minute)}}
			got := session.rpo(now, &web.Status{
				Archive:    &archive.State{Timeline: timelineA},
				Repository: web.Repository{Listed: now, Ranges: []walreplay.Range{{Timeline: timelineA, FirstIndex: 3, LastIndex: 7, To: ago(2 * time.Minute)}}},
			}, seen)
			if (got.Text == "") || strings.Contains(got.Text, "not known") == c.want.Known {
				t.Errorf("%q", got.Text)
			}
			got.Text = ""
			require.Equal(t, c.want, got)
		})
	}
}

// A listing that shows less than was archived counts at once.
func TestShortOf(t *testing.T) {
	before := archive.State{Timeline: timelineA, Role: archive.Writer, Recoverable: 20}
	ranges := func(last uint64) []walreplay.Range {
		return []walreplay.Range{{Timeline: timelineA, FirstIndex: 3, LastIndex: last}, {Timeline: timelineB, FirstIndex: 3, LastIndex: 90}}
	}
	gap := append(ranges(11), walreplay.Range{Timeline: timelineA, FirstIndex: 12, LastIndex: 30, Gap: true, Reason: "gone"})
	starting := before
	starting.Role = archive.Starting
	for name, c := range map[string]struct {
		before archive.State
		ranges []walreplay.Range
		want   *reach
	}{
		"as far":            {before, ranges(20), nil},
		"further":           {before, ranges(21), nil},
		"its end is gone":   {before, ranges(15), &reach{timelineA, 15, "objects were deleted"}},
		"a gap":             {before, gap, &reach{timelineA, 11, "gone"}},
		"all is gone":       {before, nil, &reach{timelineA, 0, "objects were deleted"}},
		"it has not looked": {starting, nil, nil},
	} {
		got := shortOf(c.before, c.ranges)
		require.Equal(t, c.want, got, name)
		if c.want != nil {
			require.Equal(t, c.want.index, got.least(timelineA, 20), name)
			require.Equal(t, uint64(20), got.least(timelineB, 20), name)
		}
	}
}
