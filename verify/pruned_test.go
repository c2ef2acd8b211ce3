package verify

import (
	"context"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// between is a sink on which something happens once: after the first listing of
// full snapshots, or before an object is opened.
type between struct {
	sinks.Sink
	opens string // the object's name ends so; empty: the listing
	do    func()
}

func (b *between) happen() {
	if do := b.do; do != nil {
		b.do = nil
		do()
	}
}

func (b *between) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if b.opens != "" && strings.HasSuffix(name, b.opens) {
		b.happen()
	}
	return b.Sink.Open(ctx, name, offset, length)
}

func (b *between) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	return func(yield func(sinks.Object, error) bool) {
		for o, err := range b.Sink.List(ctx, prefix, after) {
			if !yield(o, err) {
				return
			}
		}
		if b.opens == "" && strings.HasSuffix(prefix, "/full/") {
			b.happen()
		}
	}
}

// during verifies everything while something happens.
func (w *world) during(opens string, do func()) *report.Report {
	w.Helper()
	s := &between{Sink: w.sink, opens: opens, do: do}
	repo, err := repository.Open(w.Context(), s)
	w.must(err)
	r := (&world{T: w.T, sink: s, repo: repo}).verify(Request{})
	if s.do != nil {
		w.Fatal("nothing happened meanwhile")
	}
	return r
}

func wantNote(t *testing.T, r *report.Report, want string) {
	t.Helper()
	if !strings.Contains(strings.Join(r.Notes, "\n"), want) {
		t.Errorf("the notes %q do not say %q", r.Notes, want)
	}
}

// Who asks for the newest backup hears of a newer one that was not completed, and
// not of older ones.
func TestNewerIncompleteNoted(t *testing.T) {
	w := newWorld(t, onMemory())
	w.remove(manifestObject(oldBackup))
	w.backup(thirdBackup, 45)
	w.remove(manifestObject(thirdBackup))
	for req, want := range map[string][]string{Latest: {thirdBackup}, newBackup: nil, All: {oldBackup, thirdBackup}} {
		r := w.verify(Request{Backup: req})
		wantKinds(t, r)
		if len(r.Notes) != len(want) {
			t.Errorf("%s: notes: %q", req, r.Notes)
		}
		for _, id := range want {
			wantNote(t, r, id+" has no manifest")
		}
	}
}

// A backup that is pruned between the listing and its reading is no damage, and one
// whose object alone is gone is. So it is where the listing shows that the object
// is damaged.
func TestPrunedMeanwhile(t *testing.T) {
	const before = "/superseded.json" // it is looked for between the two
	for _, opens := range []string{before, oldBackup + "/snapshot.zst"} {
		w := newWorld(t, onMemory())
		r := w.during(opens, func() { w.erase(oldBackup) })
		wantKinds(t, r)
		wantNote(t, r, oldBackup+" was pruned meanwhile")
		w = newWorld(t, onMemory())
		wantKinds(t, w.during(opens, func() { w.remove(snapshotObject(oldBackup)) }), "missing full/"+oldBackup+"/snapshot.zst")
	}
	w := newWorld(t, onMemory())
	w.put(snapshotObject(oldBackup), []byte("cut"))
	wantKinds(t, w.verify(Request{}), "size full/"+oldBackup+"/snapshot.zst")
	r := w.during(before, func() { w.erase(oldBackup) })
	wantKinds(t, r)
	wantNote(t, r, oldBackup+" was pruned meanwhile")
}

// Holes in the log are judged with the full snapshots that are there when the log
// is listed, not with those of the beginning.
func TestHolesJudgedWithFreshSnapshots(t *testing.T) {
	t.Run("a snapshot closed the gap", func(t *testing.T) {
		w := newWorld(t, onMemory())
		for _, first := range []uint64{21, 31, 41} {
			w.remove(l0(first))
		}
		w.gap(21, 40)
		w.segment("a", 41, 41, 50, 0)
		wantKinds(t, w.verify(Request{}), "gap log")
		r := w.during(newBackup+"/snapshot.zst", func() { w.backup(thirdBackup, 45) })
		wantKinds(t, r)
		wantNote(t, r, "a full snapshot was taken after it")
	})
	t.Run("the old ones were pruned", func(t *testing.T) {
		w := newWorld(t, onMemory())
		r := w.during(newBackup+"/snapshot.zst", func() {
			w.erase(oldBackup)
			for _, first := range []uint64{1, 11} {
				w.remove(l0(first))
			}
			w.remove(w.one(worldTimeline.String() + "/l1/"))
		})
		wantKinds(t, r)
	})
}
