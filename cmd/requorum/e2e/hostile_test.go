package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// hostileMemory is what a command of TestHostileRepository has in memory at most.
const hostileMemory = 256 << 20

// TestHostileRepository plants mutated and oversized documents and segments beside
// two good backups: a few hundred in the short form, 12,000 in the long one. No
// command panics or takes memory without bound, and the good backups are listed,
// verified, planned and kept as if nothing else were there.
func TestHostileRepository(t *testing.T) {
	rounds, each := short(2, 20), short(200, 600)
	d := startDamaged(t)
	repo, older, newer := d.repo(t, "repo")
	good := []*snapshot.Manifest{older, newer}
	if e := run(t, "verify", older.ID, "--repo", repo, "--level", "checksum"); e.Code != exitOK { // so that there is a verdict
		t.Fatal(e)
	}
	if e := run(t, "pin", older.ID, "--repo", repo); e.Code != exitOK {
		t.Fatal(e)
	}
	planted, memory := 0, int64(0)
	plant := func(round, n int) (string, *planter) {
		copied := d.u.Path(fmt.Sprintf("copy-%d", round))
		require.NoError(t, os.CopyFS(copied, os.DirFS(repo)))
		h := &planter{TB: t, repo: copied, timeline: newer.Timeline, rnd: rand.New(rand.NewPCG(12, uint64(round)))}
		h.learn()
		for range n {
			h.plant()
		}
		planted += n
		return copied, h
	}
	for round := range rounds {
		copied, h := plant(round, each)
		memory = max(memory, expectUsable(t, copied, good))
		if t.Failed() {
			t.Fatalf("round %d (the seed): see above; the repository has %v", round, h.planted)
		}
		require.NoError(t, os.RemoveAll(copied))
	}
	figure(t, "hostile objects", planted)
	figure(t, "MiB of a command among hostile objects", memory>>20)
	if memory == 0 || memory > hostileMemory {
		t.Errorf("a command took %d MiB, more than %d", memory>>20, hostileMemory>>20)
	}
	copied, _ := plant(rounds, short(200, 3000))
	expectAgentWorks(t, d, copied, good)
}

// expectAgentWorks wants an agent to archive into a repository, and to prove what is
// good there, within the memory that is promised.
func expectAgentWorks(t *testing.T, d *damaged, repo string, good []*snapshot.Manifest) {
	t.Helper()
	a := d.u.agent(t, d.cluster, 0, "file://"+repo, busyJobs)
	storetest.Eventually(t, "the agent archives, and knows the good backups", func() error {
		s, ok := a.status(t)
		if !ok || !s.Writer || s.Archive == nil || s.Archive.Archived == 0 {
			return fmt.Errorf("it archives nothing: %+v", s.Problems)
		}
		for _, m := range good {
			if !slices.ContainsFunc(s.Repository.Backups, func(b web.Backup) bool { return b.ID == m.ID && b.Damaged == "" }) {
				return fmt.Errorf("backup %s is not among what it knows", m.ID)
			}
		}
		return nil
	})
	acked := storetest.StartWriter(t, d.cluster.Client(t), "/planted/")
	acked.WaitFor(t, 20)
	acked.Stop()
	end := applied(t, d.cluster, 0)
	storetest.Eventually(t, "what is written is archived", func() error {
		if s, _ := a.status(t); s.Archive == nil || s.Archive.Archived < end {
			return fmt.Errorf("raft index %d is not archived", end)
		}
		return nil
	})
	peak := a.peak(t)
	figure(t, "MiB of an agent among hostile objects", peak>>20)
	if peak == 0 || peak > agentMemory {
		t.Errorf("the agent took %d MiB", peak>>20)
	}
	a.stop(t)
}

// expectUsable wants good backups to be what they were before, and returns the memory that a
// command took at most.
func expectUsable(t *testing.T, repo string, good []*snapshot.Manifest) (memory int64) {
	t.Helper()
	run := func(t testing.TB, args ...string) ended {
		e := run(t, args...)
		memory = max(memory, e.Memory)
		return e
	}
	e := run(t, "list", "--output", "json", "--repo", repo)
	listed := decode[catalogReport](t, e)
	for _, m := range good {
		i := slices.IndexFunc(listed.Backups, func(b listedBackup) bool { return b.ID == m.ID && b.Timeline == m.Timeline })
		if i < 0 {
			t.Errorf("backup %s is not listed: %s", m.ID, e.Stderr)
			continue
		}
		v := run(t, "verify", m.ID, "--level", "structure", "--no-verdict", "--repo", repo, "--output", "json")
		// What is wrong with verdicts and documents beside it is found as well: 3.
		if passed := strings.Count(v.Stdout, `"passed"`); v.Code != exitOK && v.Code != exitDamaged || passed < 2 {
			t.Errorf("backup %s is not verified: %s", m.ID, v)
		}
		r := run(t, "restore", m.ID, "--dry-run", "--repo", repo, "--initial-cluster", "m1=http://127.0.0.1:2380", "--data-dir", dataDirs(filepath.Join(t.TempDir(), "new")))
		if r.Code != exitOK {
			t.Errorf("backup %s cannot be planned: %s", m.ID, r)
		}
	}
	p := run(t, "prune", "--dry-run", "--keep-within", "10000d", "--repo", repo, "--output", "json")
	if p.Code != exitOK {
		t.Fatalf("nothing can be pruned: %s", p)
	}
	plan := decode[pruneReport](t, p).Plan
	for _, m := range good {
		if slices.ContainsFunc(plan.Delete, func(l retention.Deletion) bool { return l.Backup == m.ID }) {
			t.Errorf("backup %s would go: %s", m.ID, p.Stdout)
		}
	}
	// What an agent reads every few minutes.
	r := openRepo(t, repo)
	inventory, err := walreplay.ReadInventory(t.Context(), r)
	require.NoError(t, err)
	_, err = verdict.ReadAll(t.Context(), r)
	require.NoError(t, err)
	_, err = r.Pins(t.Context())
	require.NoError(t, err)
	_, err = inventory.Ranges(t.Context())
	require.NoError(t, err)
	return memory
}

// planter plants objects in a repository, as who may only add would.
type planter struct {
	testing.TB
	repo     string
	timeline repository.TimelineID
	rnd      *rand.Rand
	n        int

	documents map[string][]byte // good ones, by the kind that they are of
	segment   []byte
	header    segment.Header
	planted   map[string]int
}

// learn takes good objects to begin from.
func (h *planter) learn() {
	h.Helper()
	h.documents, h.planted = map[string][]byte{}, map[string]int{}
	for _, name := range tree(h, h.repo) {
		data, err := os.ReadFile(filepath.Join(h.repo, name))
		if err != nil {
			continue // a folder
		}
		for kind, part := range map[string]string{"manifest": "/manifest.json", "verdict": "verdicts/", "pin": "pins/", "timeline": "timelines/"} {
			if strings.Contains(name, part) {
				h.documents[kind] = data
			}
		}
	}
	if len(h.documents) != 4 {
		h.Fatalf("%d kinds of documents in %v", len(h.documents), tree(h, h.repo))
	}
	seal := func(kind string, v any) {
		data, err := repository.Seal(v)
		require.NoError(h, err)
		h.documents[kind] = data
	}
	seal("gap", segment.GapRecord{Format: 1, Timeline: h.timeline, First: 1, Last: 2, Reason: "lost", Created: time.Unix(1, 0)})
	seal("pruned", repository.Pruned{Format: 1, Timeline: h.timeline, Reason: "old"})
	seal("mark", segment.Heartbeat{Format: 1, Timeline: h.timeline})
	seal("job", repository.JobRecord{Format: 1, Job: "full", OK: true})
	seal("attempt", repository.JobRecord{Format: 1, Job: "full", Attempt: 1})
	batch := segment.Batch{}
	for i := range uint64(50) {
		batch.Entries = append(batch.Entries, raftlog.Entry{Index: 1_000_000 + i, Term: 2, Data: []byte("x")})
	}
	header, data, err := segment.Encode(h.Context(), h.timeline, raftlog.Sum{}, true, batch, segment.Meta{Member: 1, Cut: time.Unix(2, 0)}, segment.Options{Tool: "test"})
	require.NoError(h, err)
	h.header, h.segment = header, data
}

// name is a new one for an object of a kind.
func (h *planter) name(kind string) string {
	h.n++
	backup := fmt.Sprintf("20200102T%02d%02d%02dZ-%06x", h.n/3600%24, h.n/60%60, h.n%60, h.n)
	other := repository.TimelineID{ClusterID: h.rnd.Uint64(), N: 1}
	index := uint64(2_000_000 + 100*h.n)
	switch kind {
	case "manifest":
		if h.rnd.IntN(4) == 0 {
			return repository.ManifestName(other, backup)
		}
		return repository.ManifestName(h.timeline, backup)
	case "verdict":
		return repository.VerdictName{Timeline: h.timeline, Backup: backup, Finished: time.Unix(int64(h.n), 0)}.String()
	case "pin":
		return repository.PinName(h.timeline, backup)
	case "timeline":
		return "timelines/" + other.String() + ".json"
	case "gap":
		return repository.GapName{Timeline: h.timeline, First: index, Last: index + 1}.String()
	case "pruned":
		return repository.PrunedName(h.timeline, backup)
	case "mark":
		return repository.MarkName{Timeline: h.timeline, Index: index, Time: time.Unix(int64(h.n), 0), Member: 1}.String()
	case "job":
		return repository.JobName{Job: "full", Slot: backup[:16]}.String()
	case "attempt":
		return repository.JobName{Job: "full", Slot: backup[:16], Kind: repository.JobBegun, Attempt: h.n}.String()
	case "segment":
		return repository.SegmentName{Timeline: h.timeline, First: index}.String()
	}
	h.Fatalf("no kind %s", kind)
	return ""
}

// plant adds one object.
func (h *planter) plant() {
	h.Helper()
	kinds := []string{"manifest", "manifest", "manifest", "verdict", "pin", "timeline", "gap", "pruned", "mark", "job", "attempt", "segment", "segment"}
	kind := kinds[h.rnd.IntN(len(kinds))]
	name := h.name(kind)
	data, how, sparse := h.document(kind)
	if kind == "segment" {
		data, how = h.badSegment(name)
		sparse = 0
	}
	path := filepath.Join(h.repo, filepath.FromSlash(name))
	if _, err := os.Lstat(path); err == nil {
		return // it is written once
	}
	require.NoError(h, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(h, os.WriteFile(path, data, 0o600))
	if sparse > 0 {
		require.NoError(h, os.Truncate(path, sparse))
	}
	h.planted[kind+", "+how]++
}

// document is a bad one of a kind; sparse is the size to which it is extended.
func (h *planter) document(kind string) (data []byte, how string, sparse int64) {
	data = bytes.Clone(h.documents[kind])
	if kind == "segment" {
		return nil, "", 0
	}
	reseal := func(change func(body map[string]any)) []byte {
		var body map[string]any
		require.NoError(h, repository.Unseal(data, &body))
		change(body)
		text, err := json.Marshal(body)
		require.NoError(h, err)
		return sealedAs(text)
	}
	switch h.rnd.IntN(11) {
	case 0:
		for range 1 + h.rnd.IntN(8) {
			data[h.rnd.IntN(len(data))] ^= 1 << h.rnd.IntN(8)
		}
		return data, "bits flipped", 0
	case 1:
		return data[:h.rnd.IntN(len(data))], "cut", 0
	case 2:
		return data, "a gigabyte", 1 << 30
	case 3:
		return data, "a terabyte", 1 << 40
	case 4:
		at := h.rnd.IntN(len(data))
		return slices.Concat(data[:at], bytes.Repeat([]byte("{["), 30<<10), data[at:]), "nested", 0
	case 5:
		return reseal(func(b map[string]any) {
			labels := map[string]string{}
			for i := range 5000 {
				labels[fmt.Sprint(i)] = "\x1b[2J"
			}
			b["labels"] = labels
		}), "labels", 0
	case 6:
		text := []byte(`{"format":1,"kind":"full","facts":{"members":[` + strings.Repeat("{},", 20<<10) + `{}]},"subjects":[{}],"members":[""]}`)
		return sealedAs(text), "very many members", 0
	case 7:
		return reseal(func(b map[string]any) { b["reason"] = strings.Repeat("x\n\x00", 200<<10) }), "long text", 0
	case 8:
		return reseal(func(b map[string]any) {
			for _, k := range []string{"facts", "object", "timeline", "signed", "created", "members", "id"} {
				if _, is := b[k]; is && h.rnd.IntN(2) == 0 {
					b[k] = []any{nil, map[string]any{}, -1, "", []any{}}[h.rnd.IntN(5)]
				}
			}
		}), "other types", 0
	case 9:
		return reseal(func(b map[string]any) {
			if o, is := b["object"].(map[string]any); is {
				o["frame_size"], o["frames"], o["raw_size"], o["stored_size"] = 64<<20, 1<<20, 1<<46, 1<<40
			}
		}), "claims of a terabyte", 0
	}
	return []byte(strings.Repeat(string(rune(h.rnd.IntN(1<<16))), h.rnd.IntN(1<<18))), "noise", 0
}

// sealedAs is a document with this body, whatever it says.
func sealedAs(body []byte) []byte {
	return fmt.Appendf(nil, "{\"sha256\": %q,\n\"body\":\n%s\n}\n", fmt.Sprintf("%x", sha256.Sum256(body)), body)
}

// badSegment is one with another header, or another body.
func (h *planter) badSegment(name string) ([]byte, string) {
	n, err := repository.ParseSegmentName(name)
	require.NoError(h, err)
	data, header := bytes.Clone(h.segment), h.header
	header.FirstIndex, header.LastIndex = n.First, n.First+uint64(header.Entries)-1
	how := "another header"
	switch h.rnd.IntN(6) {
	case 0:
		for range 1 + h.rnd.IntN(8) {
			data[h.rnd.IntN(len(data))] ^= 1 << h.rnd.IntN(8)
		}
		return data, "bits flipped"
	case 1:
		return data[:h.rnd.IntN(len(data))], "cut"
	case 2:
		header.Entries, header.LastIndex, how = 1<<40, n.First+1<<40-1, "claims 2^40 entries"
	case 3:
		header.Object.FrameSize, header.Object.RawSize, header.Object.Frames, how = 4<<20, 64<<20, 16, "claims 64 MiB"
	case 4:
		header.Object.FrameSize, header.Object.RawSize, how = 64<<20, 1<<40, "claims a terabyte"
	}
	doc, err := repository.Seal(header)
	require.NoError(h, err)
	clear(data[8:segment.HeaderSize])
	for i := range data[8:segment.HeaderSize] {
		data[8+i] = ' '
	}
	copy(data[8:segment.HeaderSize], doc)
	return data, how
}
