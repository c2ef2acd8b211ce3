package verify

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/report"
)

// Two objects that changed places are found, whether or not their sizes differ.
func TestSwapped(t *testing.T) {
	w := newWorld(t, onMemory())
	a, b := w.get(snapshotObject(oldBackup)), w.get(snapshotObject(newBackup))
	w.put(snapshotObject(oldBackup), b)
	w.put(snapshotObject(newBackup), a)
	r := w.verify(Request{})
	if n := len(r.Findings()); n != 2 || r.Status() != report.Damaged {
		t.Errorf("%d findings: %+v", n, r.Findings())
	}
}

// A hole that was recorded, and behind which a full snapshot was taken, is
// history. One that was not recorded, or only a part of it, is damage; so is one
// behind which nothing can be restored.
func TestHoles(t *testing.T) {
	cut := func(w *world, from uint64) { // 21 to 30 are gone, the chain begins anew at from
		w.remove(l0(21))
		w.remove(l0(31))
		w.remove(l0(41))
		w.segment("a", from, from, 40, 0)
		w.segment("a", from, 41, 50, 0)
	}
	for _, c := range []struct {
		name   string
		inject func(*world)
		want   []string
		note   string
	}{
		{"recorded and closed", func(w *world) { cut(w, 31); w.gap(21, 30) }, nil, "no entries 21 to 30: purged; a full snapshot was taken after it"},
		{"recorded in parts", func(w *world) { cut(w, 31); w.gap(21, 25); w.gap(26, 30) }, nil, "a full snapshot was taken after it"},
		{"the record lost, but its writer knew", func(w *world) { cut(w, 31) }, nil, "a full snapshot was taken after it"},
		{"partly recorded", func(w *world) { cut(w, 31); w.gap(25, 30) }, []string{"gap log"}, ""},
		{"recorded, but the chain goes on", func(w *world) { w.remove(l0(21)); w.gap(21, 30) }, nil, ""},
		{"not closed", func(w *world) { cut(w, 37); w.gap(21, 36) }, []string{"gap log"}, ""},
		{"chain start without a hole", func(w *world) { w.remove(l0(31)); w.segment("a", 31, 31, 40, 0); w.remove(l0(41)) }, nil, "it is not known whether the log"},
		{"before the first full snapshot", func(w *world) {
			w.remove(manifestObject(oldBackup))
			w.remove(snapshotObject(oldBackup))
			w.remove(l0(11))
			w.remove(w.one(worldTimeline.String() + "/l1/"))
		}, nil, "before its first full snapshot"},
		{"old segments pruned", func(w *world) {
			w.remove(l0(1))
			w.remove(l0(11))
			w.remove(w.one(worldTimeline.String() + "/l1/"))
			w.remove(l0(21))
		}, nil, ""},
		{"no full snapshot", func(w *world) {
			w.move(oldBackup)
			w.move(newBackup)
		}, nil, "no full snapshot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, onMemory())
			c.inject(w)
			r := w.verify(Request{})
			wantKinds(t, r, c.want...)
			if !strings.Contains(strings.Join(r.Notes, "\n"), c.note) {
				t.Errorf("notes %q do not say %q", r.Notes, c.note)
			}
		})
	}
}

// Overlaps are legal: of one chain, and of chains that begin at different places
// but hold equal entries.
func TestOverlapsAreNoForks(t *testing.T) {
	w := newWorld(t, onMemory())
	w.segment("a", 1, 25, 34, 0)
	w.segment("a", 38, 38, 45, 0)
	w.segment("a", 38, 46, 60, 0)
	wantKinds(t, w.verify(Request{}))
}

// Without an identity the stored bytes of encrypted objects are compared, and the
// check says that nothing else was; above, nothing is proved.
func TestPromise1Encrypted(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	w := newWorld(t, onMemory(), key.Recipient())
	r := w.verify(Request{})
	wantKinds(t, r)
	for _, c := range r.Checks {
		if strings.Contains(c.Object, "/full/") && !strings.Contains(c.Compared, "not decrypted") {
			t.Errorf("%s: %q does not say that it was not decrypted", c.Object, c.Compared)
		}
	}
	r = w.verify(Request{Level: report.Structure})
	if r.Status() != report.Unchecked {
		t.Errorf("status %s, want unchecked", r.Status())
	}
	name := repository.SnapshotName(worldTimeline, newBackup, 1, true)
	for _, at := range []int{20, 300, -1} {
		w.flip(name, at)
		wantKinds(t, w.verify(Request{}), "object full/"+newBackup+"/snapshot.zst.age")
		w.keys = []age.Identity{key}
		wantKinds(t, w.verify(Request{}), "object full/"+newBackup+"/snapshot.zst.age")
		w.keys = nil
		w.flip(name, at)
	}
	w.flip(l0(31), -1)
	wantKinds(t, w.verify(Request{}), "segment l0/000000000000001f")
	w.keys = []age.Identity{key}
	wantKinds(t, w.verify(Request{}), "segment l0/000000000000001f")
	w.flip(l0(31), -1)
	wantKinds(t, w.verify(Request{}))
}

// What is asked for is what is read: a backup alone does not read the log, and
// the latest not the older backups.
func TestSelection(t *testing.T) {
	w := newWorld(t, onMemory())
	w.flip(snapshotObject(oldBackup), 20)
	w.flip(l0(1), 2060)
	w.flip(l0(41), 2060)
	wantKinds(t, w.verify(Request{Backup: Latest}), "segment l0/0000000000000029")
	wantKinds(t, w.verify(Request{Backup: newBackup}))
	wantKinds(t, w.verify(Request{Backup: "20260102T03"}), "object full/"+oldBackup+"/snapshot.zst")
	wantKinds(t, w.verify(Request{Timeline: worldTimeline.String()}), "object full/"+oldBackup+"/snapshot.zst",
		"segment l0/0000000000000001", "segment l0/0000000000000029")
	for _, req := range []Request{{Backup: "2020"}, {Backup: All, Timeline: "0000000000000001-1"}} {
		_, err := Repository(t.Context(), w.repo, req)
		require.ErrorIs(t, err, snapshot.ErrNoBackup, "%+v", req)
	}
	w.flip(manifestObject(newBackup), 300)
	wantKinds(t, w.verify(Request{Backup: Latest}), "manifest full/"+newBackup+"/manifest.json", "segment l0/0000000000000001", "segment l0/0000000000000029")
}

// A repository that fails is no damage: what could not be read is Unchecked, with
// the reason, and all else is looked at.
func TestFailingSinkIsNoDamage(t *testing.T) {
	m := onMemory()
	newWorld(t, m)
	faulty := sinktest.NewFaulty(m, sinktest.Fail(sinktest.Open, 1, sinks.ErrDenied).Of(newBackup+"/snapshot"))
	repo, err := repository.Open(t.Context(), faulty)
	require.NoError(t, err)
	w := &world{T: t, sink: faulty, repo: repo}
	r := w.verify(Request{})
	faulty.AllFired(t)
	if r.Status() != report.Unchecked || len(r.Findings()) > 0 {
		t.Errorf("status %s, %+v", r.Status(), r.Findings())
	}
	i := slices.IndexFunc(r.Checks, func(c report.Check) bool { return c.Status == report.Unchecked })
	if c := r.Checks[i]; !strings.Contains(c.Object, newBackup) || !strings.Contains(c.Reason, sinks.ErrDenied.Error()) {
		t.Errorf("%+v", c)
	}
}

// Segments that are merged away while they are read are no damage.
func TestMergedMeanwhile(t *testing.T) {
	m := onMemory()
	w := newWorld(t, m)
	faulty := sinktest.NewFaulty(m)
	repo, err := repository.Open(t.Context(), faulty)
	w.must(err)
	// The header is read, then the object goes, and one that holds its entries is
	// there.
	faulty.Add(sinktest.Fail(sinktest.Open, 2, sinks.ErrNotFound).Of(l0(31)))
	w.segment("a", 1, 31, 50, 1)
	w2 := &world{T: t, sink: faulty, repo: repo}
	wantKinds(t, w2.verify(Request{}))
	faulty.AllFired(t)
}

// The end of the context is an error, and never a report.
func TestCancelled(t *testing.T) {
	w := newWorld(t, onMemory())
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	r, err := Repository(ctx, w.repo, Request{Backup: All, Level: report.Checksum, Progress: func(string, int64, int64) { cancel(stop) }})
	if r != nil || !errors.Is(err, stop) {
		t.Errorf("%v, %v", r, err)
	}
}

// Promise 5: the scratch folder is removed, however it ends, and what a killed
// run left is removed by the next.
func TestPromise5ScratchIsRemoved(t *testing.T) {
	w := newWorld(t, onMemory())
	scratch := t.TempDir()
	left := filepath.Join(scratch, ".requorum-scratch-0123456789ab")
	w.must(os.Mkdir(left, 0o700))
	w.must(os.WriteFile(filepath.Join(left, safedir.LockName), nil, 0o600))
	w.must(os.WriteFile(filepath.Join(left, "x.db"), []byte("left"), 0o600))
	empty := func(when string) {
		t.Helper()
		list, err := os.ReadDir(scratch)
		if err != nil || len(list) > 0 {
			t.Errorf("%s: %v, %v", when, list, err)
		}
	}
	unpacked := false
	req := Request{ScratchDir: scratch, Progress: func(phase string, _, _ int64) {
		files, _ := filepath.Glob(filepath.Join(scratch, ".*", "*.db"))
		unpacked = unpacked || len(files) == 1
	}}
	r, err := Repository(t.Context(), w.repo, req)
	w.must(err)
	empty("after a run")
	if !unpacked || r.Status() != report.Damaged { // its pages are no database
		t.Errorf("unpacked %v, %s", unpacked, r.Status())
	}
	ctx, cancel := context.WithCancel(t.Context())
	req.Progress = func(string, int64, int64) { cancel() }
	_, err = Repository(ctx, w.repo, req)
	require.ErrorIs(t, err, context.Canceled)
	empty("after an interruption")
}

// Without room to unpack a database its bytes are still proved, and what is above
// is Unchecked.
func TestNoScratch(t *testing.T) {
	w := newWorld(t, onMemory())
	file := filepath.Join(t.TempDir(), "file")
	w.must(os.WriteFile(file, nil, 0o600))
	r, err := Repository(t.Context(), w.repo, Request{Backup: newBackup, ScratchDir: filepath.Join(file, "x")})
	w.must(err)
	var got []string
	for _, c := range r.Checks {
		if strings.HasSuffix(c.Object, newBackup) {
			got = append(got, string(c.Level)+" "+string(c.Status))
			if c.Status == report.Unchecked && !strings.Contains(c.Reason, "--scratch-dir") {
				t.Errorf("%q names no next step", c.Reason)
			}
		}
	}
	if !slices.Equal(got, []string{"checksum passed", "structure unchecked"}) {
		t.Errorf("%q", got)
	}
}

// Requests that are not supported are refused.
func TestRequestRefused(t *testing.T) {
	w := newWorld(t, onMemory())
	_, err := Repository(t.Context(), w.repo, Request{Level: "highest"})
	require.Error(t, err, "a level that is none was not refused")
}
