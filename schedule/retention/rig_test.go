package retention

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

const day = 24 * time.Hour

var (
	timelineA = repository.TimelineID{ClusterID: 7, N: 1}
	timelineB = repository.TimelineID{ClusterID: 9, N: 1}
	dawn      = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

// rig is a repository at a time that the test sets.
type rig struct {
	testing.TB
	place *place
	repo  *repository.Repository
	ids   int
	sums  map[repository.TimelineID]raftlog.Sum
	// verdicts is how many were written.
	verdicts int
	ends     map[repository.TimelineID]uint64
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{TB: t, place: newPlace(dawn), sums: map[repository.TimelineID]raftlog.Sum{}, ends: map[repository.TimelineID]uint64{}}
	r.reopen()
	r.timeline(timelineA)
	return r
}

func (r *rig) reopen() {
	r.Helper()
	repo, err := repository.Init(r.Context(), r.place, r.place.now)
	r.must(err)
	r.repo = repo
}

// newDays is a rig with a log and n days of full snapshots and log.
func newDays(t *testing.T, n int) *rig {
	r := newRig(t)
	r.log(timelineA, 5)
	r.days(timelineA, n)
	return r
}

// on is the same repository in another place.
func (r *rig) on(p *place) *rig {
	other := *r
	other.place = p
	other.reopen()
	return &other
}

func (r *rig) must(err error) {
	r.Helper()
	require.NoError(r, err)
}

func (r *rig) timeline(t repository.TimelineID) {
	r.Helper()
	r.must(r.repo.OpenTimeline(r.Context(), repository.Timeline{ID: t, Created: r.place.now, Reason: "test"}))
}

func (r *rig) sleep(d time.Duration) { r.place.now = r.place.now.Add(d) }

func (r *rig) put(name, data string) {
	r.Helper()
	_, err := sinks.Put(r.Context(), r.place, name, []byte(data), sinks.CreateOptions{})
	r.must(err)
}

// full takes a backup of what the log has reached.
func (r *rig) full(t repository.TimelineID) *snapshot.Manifest {
	r.Helper()
	return r.fullAt(t, r.ends[t])
}

func (r *rig) fullAt(t repository.TimelineID, index uint64) *snapshot.Manifest {
	r.Helper()
	r.ends[t] = max(r.ends[t], index)
	return r.store(t, index, r.place.now, false)
}

// store puts a full snapshot there: its manifest says when it was taken, and what the log had
// reached.
func (r *rig) store(t repository.TimelineID, index uint64, taken time.Time, encrypted bool) *snapshot.Manifest {
	r.Helper()
	id := r.newID(taken)
	m := snapshot.Manifest{
		Format: 1, Kind: snapshot.KindFull, ID: id, Timeline: t, Tool: "test", Started: taken, Finished: taken,
		Object: snapshot.StoredObject{Name: repository.SnapshotName(t, id, 1, encrypted), Encoding: codec.Encoding{StoredSize: int64(len(id)), StoredSHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(id)))}},
		Facts:  snapshot.Facts{RaftIndex: index, RaftTerm: 2, Revision: int64(index)},
	}
	if encrypted {
		m.Object.Codecs = []string{codec.Zstd, codec.Age}
	}
	r.put(m.Object.Name, id)
	r.must(r.repo.WriteDocument(r.Context(), repository.ManifestName(t, id), m))
	read, err := snapshot.ReadManifest(r.Context(), r.repo, t, id)
	r.must(err)
	return read
}

// newID is the ID of a backup that is begun at a time.
func (r *rig) newID(begun time.Time) string {
	r.ids++
	return fmt.Sprintf("%s-%06x", begun.Format("20060102T150405Z"), r.ids)
}

// log archives n entries behind the end, as one segment with a mark.
func (r *rig) log(t repository.TimelineID, n int) {
	r.Helper()
	first := r.ends[t] + 1
	var b segment.Batch
	for i := range uint64(n) {
		b.Entries = append(b.Entries, raftlog.Entry{Index: first + i, Term: 2, Data: []byte("x")})
	}
	last := first + uint64(n) - 1
	b.Marks = []raftlog.Mark{{Index: last, Term: 2, Time: r.place.now, Member: 1, Revision: int64(last)}}
	r.sums[t], r.ends[t] = logtest.Archive(r, r.repo, t, r.sums[t], b, r.place.now, codec.Options{}).After, last
}

// gap loses n entries.
func (r *rig) gap(t repository.TimelineID, n int) {
	r.Helper()
	first := r.ends[t] + 1
	r.ends[t] += uint64(n)
	r.sums[t] = raftlog.Sum{}
	r.must(segment.WriteGap(r.Context(), r.repo, segment.GapRecord{Timeline: t, First: first, Last: r.ends[t], Reason: "test", Created: r.place.now}))
}

func (r *rig) mark(t repository.TimelineID) {
	r.Helper()
	r.must(segment.WriteMark(r.Context(), r.repo, t, raftlog.Mark{Index: r.ends[t], Term: 2, Time: r.place.now, Member: 1, Revision: 1}))
}

// verdict says of backups that they passed structure, or were damaged.
func (r *rig) verdict(status report.Status, all ...*snapshot.Manifest) {
	r.Helper()
	var run []verdict.Verdict
	for _, m := range all {
		r.verdicts++ // each is newer than those before, though the clock may stand
		at := r.place.now.Add(time.Duration(r.verdicts))
		v := verdict.Verdict{Started: at, Finished: at, Tool: "test", Level: report.Structure, Timeline: m.Timeline, Backup: m.ID, Manifest: m.Stored.SHA256, Status: status}
		if status == report.Passed {
			v.Reached = report.Structure
		}
		run = append(run, v)
	}
	r.must(verdict.Write(r.Context(), r.repo, run))
}

func (r *rig) pin(m *snapshot.Manifest) {
	r.Helper()
	r.must(r.repo.WritePin(r.Context(), repository.Pin{Timeline: m.Timeline, Backup: m.ID, Reason: "test", Created: r.place.now}))
}

func (r *rig) read() *Inventory {
	r.Helper()
	inv, err := Read(r.Context(), r.repo, r.place.now)
	r.must(err)
	return inv
}

func (r *rig) plan(p Policy) *Plan {
	r.Helper()
	plan := NewPlan(r.read(), p, r.place.now)
	if plan.Refused != "" {
		r.Fatal(plan.Refused)
	}
	return plan
}

// prune plans and carries out.
func (r *rig) prune(p Policy) Result {
	r.Helper()
	plan := r.plan(p)
	result, err := Execute(r.Context(), r.repo, plan, Options{Confirm: plan.Confirm})
	r.must(err)
	return result
}

// ranges are what can be restored, by the code that restores.
func (r *rig) ranges() []walreplay.Range {
	r.Helper()
	c, err := walreplay.ReadInventory(r.Context(), r.repo)
	r.must(err)
	all, err := c.Ranges(r.Context())
	r.must(err)
	return slices.DeleteFunc(all, func(one walreplay.Range) bool { return one.Gap })
}

// points are all indexes of a timeline that can be restored.
func (r *rig) points(t repository.TimelineID) map[uint64]bool {
	r.Helper()
	all := map[uint64]bool{}
	for _, one := range r.ranges() {
		for i := one.FirstIndex; one.Timeline == t && i <= one.LastIndex; i++ {
			all[i] = true
		}
	}
	return all
}

// backups are the IDs of listed backups; each of them must be whole.
func (r *rig) backups(t repository.TimelineID) []string {
	r.Helper()
	c, err := snapshot.ReadBackups(r.Context(), r.repo, t)
	r.must(err)
	for _, d := range c.Damaged {
		r.Errorf("backup %s is listed and cannot be restored: %v", d.ID, d.Err)
	}
	var ids []string
	for _, m := range c.Manifests {
		ids = append(ids, m.ID)
	}
	return ids
}

// names are all objects' that contain a text.
func (r *rig) names(part string) []string {
	r.Helper()
	var all []string
	for o, err := range r.place.Memory.List(r.Context(), "", "") {
		r.must(err)
		if strings.Contains(o.Name, part) {
			all = append(all, o.Name)
		}
	}
	return all
}
