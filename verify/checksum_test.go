package verify

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// fault is one that is injected, and all that the checksum level says of it.
type fault struct {
	name   string
	inject func(*world)
	want   []string // "kind object"
}

func snapshotObject(id string) string { return repository.SnapshotName(worldTimeline, id, 1, false) }
func manifestObject(id string) string { return repository.ManifestName(worldTimeline, id) }

// checksumFaults are of objects of each kind.
var checksumFaults = []fault{
	{"marker flipped", func(w *world) { w.flip("requorum.json", 100); w.reopen() }, []string{"marker requorum.json"}},
	{"marker gone", func(w *world) { w.remove("requorum.json"); w.reopen() }, []string{"marker requorum.json"}},
	{"descriptor flipped", func(w *world) { w.flip("timelines/"+worldTimeline.String()+".json", -10) },
		[]string{"timeline timelines/" + worldTimeline.String() + ".json"}},
	{"descriptor gone", func(w *world) { w.remove("timelines/" + worldTimeline.String() + ".json") },
		[]string{"timeline timelines/" + worldTimeline.String() + ".json"}},
	{"descriptor of another timeline", func(w *world) {
		reseal(w, "timelines/"+worldTimeline.String()+".json", func(t *repository.Timeline) { t.ID.N++ })
	}, []string{"timeline timelines/" + worldTimeline.String() + ".json"}},
	{"descriptor that names itself as its parent", func(w *world) {
		reseal(w, "timelines/"+worldTimeline.String()+".json", func(t *repository.Timeline) { t.Parent = &repository.Branch{Timeline: worldTimeline} })
	}, []string{"timeline timelines/" + worldTimeline.String() + ".json"}},
	{"log altered before a timeline that branched off", func(w *world) {
		other := repository.TimelineID{ClusterID: worldTimeline.ClusterID, N: 2}
		_, err := w.repo.EnsureTimeline(w.Context(), repository.Timeline{ID: other, Created: worldStart, Reason: "restored",
			Parent: &repository.Branch{Timeline: worldTimeline, RaftIndex: 25, Chain: w.chainAt(24).String()}})
		w.must(err)
	}, []string{"fork timelines/"}},
	{"superseded of another timeline", func(w *world) {
		w.must(w.repo.Supersede(w.Context(), repository.Superseded{Timeline: worldTimeline, By: repository.TimelineID{ClusterID: 7, N: 1}, Created: worldStart}))
		reseal(w, repository.SupersededName(worldTimeline, 1), func(s *repository.Superseded) { s.Timeline.N += 5 })
	}, []string{"mark superseded.json"}},
	{"superseded flipped", func(w *world) {
		w.must(w.repo.Supersede(w.Context(), repository.Superseded{Timeline: worldTimeline, By: repository.TimelineID{ClusterID: 7, N: 1}, Created: worldStart}))
		w.flip(repository.SupersededName(worldTimeline, 1), -10)
	}, []string{"mark superseded.json"}},

	{"manifest flipped", func(w *world) { w.flip(manifestObject(oldBackup), 500) }, []string{"manifest full/" + oldBackup + "/manifest.json"}},
	{"manifest of another backup", func(w *world) { w.put(manifestObject(oldBackup), w.get(manifestObject(newBackup))) },
		[]string{"manifest full/" + oldBackup + "/manifest.json"}},
	{"manifest's sum flipped", func(w *world) { w.flip(manifestObject(oldBackup), 20) }, []string{"manifest full/" + oldBackup + "/manifest.json"}},
	{"manifest cut", func(w *world) {
		d := w.get(manifestObject(oldBackup))
		w.put(manifestObject(oldBackup), d[:len(d)-200])
	},
		[]string{"manifest full/" + oldBackup + "/manifest.json"}},
	{"manifest grown", func(w *world) {
		w.put(manifestObject(oldBackup), append(bytes.Clone(w.get(manifestObject(oldBackup))), "          "...))
	}, []string{"manifest full/" + oldBackup + "/manifest.json"}},
	{"manifest empty", func(w *world) { w.put(manifestObject(oldBackup), nil) }, []string{"manifest full/" + oldBackup + "/manifest.json"}},
	{"manifest of another backup, with its own ID put in", func(w *world) {
		w.put(manifestObject(newBackup), w.get(manifestObject(oldBackup)))
		reseal(w, manifestObject(newBackup), func(m *snapshot.Manifest) { m.ID, m.Object.Name = newBackup, snapshotObject(newBackup) })
	}, []string{"size full/" + newBackup + "/snapshot.zst"}},
	{"manifest of another cluster", func(w *world) {
		reseal(w, manifestObject(newBackup), func(m *snapshot.Manifest) {
			m.Timeline.ClusterID++
			m.Object.Name = repository.SnapshotName(m.Timeline, m.ID, 1, false)
		})
	}, []string{"manifest full/" + newBackup + "/manifest.json"}},
	{"manifest that describes another object", func(w *world) {
		reseal(w, manifestObject(newBackup), func(m *snapshot.Manifest) { m.Object.Name = snapshotObject(oldBackup) })
	}, []string{"manifest full/" + newBackup + "/manifest.json"}},
	{"snapshot empty", func(w *world) { w.put(snapshotObject(newBackup), nil) }, []string{"size full/" + newBackup + "/snapshot.zst"}},
	{"snapshot's first frame flipped", func(w *world) { w.flip(snapshotObject(oldBackup), 20) }, []string{"object full/" + oldBackup + "/snapshot.zst"}},
	{"snapshot's seek table flipped", func(w *world) { w.flip(snapshotObject(newBackup), -30) }, []string{"object full/" + newBackup + "/snapshot.zst"}},
	{"snapshot's last byte flipped", func(w *world) { w.flip(snapshotObject(newBackup), -1) }, []string{"object full/" + newBackup + "/snapshot.zst"}},
	{"snapshot cut", func(w *world) { d := w.get(snapshotObject(newBackup)); w.put(snapshotObject(newBackup), d[:len(d)-1]) },
		[]string{"size full/" + newBackup + "/snapshot.zst"}},
	{"snapshot grown", func(w *world) {
		w.put(snapshotObject(newBackup), append(bytes.Clone(w.get(snapshotObject(newBackup))), 0))
	}, []string{"size full/" + newBackup + "/snapshot.zst"}},
	{"snapshot gone", func(w *world) { w.remove(snapshotObject(newBackup)) }, []string{"missing full/" + newBackup + "/snapshot.zst"}},
	{"database's sum altered and sealed anew", func(w *world) {
		reseal(w, manifestObject(newBackup), func(m *snapshot.Manifest) { m.DatabaseSHA256 = strings.Repeat("0", 64) })
	}, []string{"object full/" + newBackup + "/snapshot.zst"}},
	{"database altered below its own sum", func(w *world) {
		raw := database(newBackup)
		raw[1000] ^= 1
		w.backupOf(newBackup, 35, raw) // every sum is fixed up but etcd's
	}, []string{"object full/" + newBackup + "/snapshot.zst"}},
	{"backup of another history", func(w *world) {
		reseal(w, manifestObject(newBackup), func(m *snapshot.Manifest) { m.Facts.RaftTerm = 9 })
	}, []string{"fork full/" + newBackup}},

	{"segment's header flipped", func(w *world) { w.flip(l0(31), 100) }, []string{"segment l0/000000000000001f"}},
	{"segment's first frame flipped", func(w *world) { w.flip(l0(31), 2) }, []string{"segment l0/000000000000001f"}},
	{"what fills the segment's header up flipped", func(w *world) { w.flip(l0(31), 2040) }, []string{"segment l0/000000000000001f"}},
	{"segment empty", func(w *world) { w.put(l0(31), nil) }, []string{"segment l0/000000000000001f"}},
	{"segments swapped", func(w *world) {
		a, b := w.get(l0(21)), w.get(l0(31))
		w.put(l0(21), b)
		w.put(l0(31), a)
	}, []string{"segment l0/0000000000000015", "segment l0/000000000000001f"}},
	{"segment of another timeline", func(w *world) {
		_, data := w.encodeIn(repository.TimelineID{ClusterID: worldTimeline.ClusterID, N: 2}, "a", w.chainAt(30), 31, 40)
		w.put(l0(31), data)
	}, []string{"segment l0/000000000000001f"}},
	{"segment's body flipped", func(w *world) { w.flip(l0(31), 2060) }, []string{"segment l0/000000000000001f"}},
	{"segment's seek table flipped", func(w *world) { w.flip(l0(31), -5) }, []string{"segment l0/000000000000001f"}},
	{"segment cut", func(w *world) { d := w.get(l0(31)); w.put(l0(31), d[:len(d)-1]) }, []string{"size l0/000000000000001f"}},
	{"segment cut within its header", func(w *world) { w.put(l0(31), w.get(l0(31))[:2000]) }, []string{"segment l0/000000000000001f"}},
	{"segment grown", func(w *world) { w.put(l0(31), append(bytes.Clone(w.get(l0(31))), 0)) }, []string{"size l0/000000000000001f"}},
	{"segment under another name", func(w *world) { w.put(l0(51), w.get(l0(31))) }, []string{"segment l0/0000000000000033"}},
	{"segment in the middle gone", func(w *world) { w.remove(l0(31)) }, []string{"gap log"}},
	{"damaged where a merged one covers it", func(w *world) { w.flip(l0(11), 2060) }, []string{"segment l0/000000000000000b"}},
	{"merged one damaged", func(w *world) { w.flip(w.one(worldTimeline.String()+"/l1/"), 2060) },
		[]string{"segment l1/0000000000000001-0000000000000014"}},
	{"segment of another history", func(w *world) {
		// Whole and joined to what is before it: only what follows contradicts it.
		var before = w.chainAt(30)
		h, data := w.encodeAfter("b", before, 31, 40)
		w.put(h.Name(), data)
	}, []string{"fork log"}},
	{"merged one of another history", func(w *world) {
		w.remove(w.one(worldTimeline.String() + "/l1/"))
		w.segment("b", 1, 1, 20, 1)
	}, []string{"fork l1/0000000000000001-0000000000000014"}},
	{"overlap of another history", func(w *world) { w.segment("b", 45, 45, 55, 0) }, []string{"fork l0/000000000000002d"}},

	{"segment of another history that begins a chain of its own", func(w *world) { w.segment("b", 31, 31, 40, 0) }, []string{"fork log"}},

	{"verdict flipped", func(w *world) { w.proves(); w.flip(w.one("verdicts/"), 400) }, []string{"verdict verdicts/"}},
	{"mark under another name", func(w *world) {
		w.mark(42, termOf(42), 0)
		w.put(w.one(worldTimeline.String()+"/marks/000000000000002a"), w.get(w.one(worldTimeline.String()+"/marks/0000000000000023")))
	}, []string{"mark marks/000000000000002a-"}},
	{"mark flipped", func(w *world) { w.flip(w.one(worldTimeline.String()+"/marks/"), -10) },
		[]string{"mark marks/0000000000000023-"}},
	{"mark of another term", func(w *world) { w.mark(42, 99, 0) }, []string{"mark marks/000000000000002a-"}},
	{"gap's record flipped", func(w *world) { w.gap(60, 70); w.flip(w.one(worldTimeline.String()+"/gaps/"), -10) },
		[]string{"mark gaps/000000000000003c-0000000000000046.json"}},
	{"all at once", func(w *world) {
		w.flip(snapshotObject(oldBackup), 20)
		w.remove(snapshotObject(newBackup))
		w.flip(l0(31), 2060)
		w.flip(l0(21), 2060)
	}, []string{"object full/" + oldBackup + "/snapshot.zst", "missing full/" + newBackup + "/snapshot.zst", "segment l0/000000000000001f",
		"segment l0/0000000000000015"}},
}

// Promise 2: every fault of every kind of object is found and named, and nothing
// else is.
func TestPromise2ChecksumFaults(t *testing.T) {
	wantKinds(t, newWorld(t, onMemory()).verify(Request{}))
	for _, f := range checksumFaults {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t, onMemory())
			f.inject(w)
			r := w.verify(Request{})
			got := kinds(r)
			match := len(got) == len(f.want)
			slices.Sort(f.want)
			for i := range min(len(got), len(f.want)) {
				match = match && strings.HasPrefix(got[i], f.want[i])
			}
			if !match || r.Status() != report.Damaged {
				t.Errorf("found %q, want %q: %+v", got, f.want, r.Findings())
			}
		})
	}
}
