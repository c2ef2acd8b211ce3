package verify

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
)

// provenWorld is one that a verdict has proved.
func provenWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, onMemory())
	wantKinds(t, w.proves())
	wantKinds(t, w.verify(Request{}))
	return w
}

// proves verifies everything and writes the verdict.
func (w *world) proves() *report.Report {
	w.Helper()
	r := w.verify(Request{})
	_, err := verdict.Write(w.Context(), w.repo, verdict.FromReport(r))
	w.must(err)
	return r
}

// erase deletes all of a backup.
func (w *world) erase(id string) {
	w.Helper()
	w.remove(manifestObject(id))
	w.remove(snapshotObject(id))
}

// Earlier verdicts know what is not there any more: the log's end, a manifest, or
// that something took the place of what was proved.
func TestVerdictsKnow(t *testing.T) {
	for _, c := range []struct {
		name   string
		inject func(*world)
		want   []string
	}{
		{"the log's end is gone", func(w *world) { w.remove(l0(41)) }, []string{"gap log"}},
		{"the whole log is gone", func(w *world) { w.removeAll(worldTimeline.String() + "/l0/") }, []string{"gap log"}},
		{"a full snapshot is after a log that was pruned", func(w *world) {
			w.removeAll(worldTimeline.String() + "/l0/")
			w.backup(thirdBackup, 60)
		}, nil},
		{"the log was rewritten", func(w *world) {
			h, data := w.encodeAfter("b", w.chainAt(40), 41, 50)
			w.put(h.Name(), data)
		}, []string{"fork log"}},
		{"a manifest is gone", func(w *world) { w.remove(manifestObject(oldBackup)) }, []string{"missing full/" + oldBackup}},
		{"a backup was replaced", func(w *world) {
			w.remove(manifestObject(newBackup))
			w.to = nil
			m := w.backup(newBackup, 35)
			reseal(w, manifestObject(m.ID), func(m *snapshot.Manifest) { m.Object.StoredSHA256 = strings.Repeat("0", 64) })
		}, []string{"manifest full/" + newBackup, "object full/" + newBackup + "/snapshot.zst"}},
		{"a manifest was altered and sealed anew", func(w *world) {
			reseal(w, manifestObject(newBackup), func(m *snapshot.Manifest) { m.HashKV.Hash++ })
		}, []string{"manifest full/" + newBackup}},
		{"a backup took another one's place", func(w *world) { w.backupOf(newBackup, 35, database(oldBackup)) }, []string{"manifest full/" + newBackup}},
		{"an old backup was deleted by hand", func(w *world) { w.erase(oldBackup) }, nil},
		{"the newest backup was deleted", func(w *world) { w.erase(newBackup) }, []string{"missing full/" + newBackup}},
		{"the backups of a timeline are gone, another one has a newer backup", func(w *world) {
			w.erase(oldBackup)
			w.backup(thirdBackup, 45)
			w.move(thirdBackup)
			w.erase(newBackup)
		}, nil},
		{"the backups of a timeline are gone, another one has older ones", func(w *world) { w.move(oldBackup); w.erase(newBackup) },
			[]string{"missing full/" + oldBackup, "missing full/" + newBackup}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := provenWorld(t)
			c.inject(w)
			wantKinds(t, w.verify(Request{}), c.want...)
		})
	}
}

// A backup that was replaced is found by every run, not only by the first: the
// verdict that reports it does not prove what took its place.
func TestReplacedStaysFound(t *testing.T) {
	w := provenWorld(t)
	w.backupOf(newBackup, 35, database(oldBackup))
	for range 3 {
		wantKinds(t, w.proves(), "manifest full/"+newBackup)
	}
	m, err := snapshot.ReadManifest(t.Context(), w.repo, worldTimeline, newBackup)
	w.must(err)
	chain, err := verdict.ReadAll(t.Context(), w.repo)
	w.must(err)
	if word, ok := chain.Best(m); ok {
		t.Errorf("it is proved by verdict %d", word.Verdict.Sequence)
	}
	if _, ok := chain.Damaged(m); !ok {
		t.Error("no verdict says that it is damaged")
	}
}

// Nothing of a replaced backup is bound, and a newer verdict that bound it all the
// same, as an earlier version's or another's could, hides no older one.
func TestReplacedIsNotBound(t *testing.T) {
	w := provenWorld(t)
	w.backupOf(newBackup, 35, database(oldBackup))
	r := w.verify(Request{})
	wantKinds(t, r, "manifest full/"+newBackup)
	isNew := func(c report.Check) bool { return c.Object == fullName(worldTimeline, newBackup) }
	if all := bound(r); len(all) != 2 || slices.ContainsFunc(all, isNew) { // the other backup, and the log
		t.Errorf("bound: %+v", all)
	}
	m, err := snapshot.ReadManifest(t.Context(), w.repo, worldTimeline, newBackup)
	w.must(err)
	r.Checks[slices.IndexFunc(r.Checks, isNew)].Objects = verdict.ObjectsOf(m)
	_, err = verdict.Write(t.Context(), w.repo, verdict.FromReport(r))
	w.must(err)
	wantKinds(t, w.verify(Request{}), "manifest full/"+newBackup)
}

// A repository of which nothing is left, or no backup, never passes: not at all
// before anything was proved, and as damage after.
func TestNothingLeft(t *testing.T) {
	both := []string{"missing full/" + newBackup, "missing full/" + oldBackup}
	for _, c := range []struct {
		name   string
		inject func(*world)
		want   []string // nil: no such backup
	}{
		{"all objects of the timeline", func(w *world) { w.removeAll(worldTimeline.String()); w.removeAll("timelines/") }, both},
		{"the backups", func(w *world) { w.erase(oldBackup); w.erase(newBackup) }, both},
		{"the manifests", func(w *world) { w.remove(manifestObject(oldBackup)); w.remove(manifestObject(newBackup)) }, both},
		{"all that is not the marker", func(w *world) {
			w.removeAll(worldTimeline.String())
			w.removeAll("timelines/")
			w.removeAll("verdicts/")
		}, nil},
		{"the backups, and the verdicts", func(w *world) { w.erase(oldBackup); w.erase(newBackup); w.removeAll("verdicts/") }, nil},
		{"all was pruned", func(w *world) {
			for _, id := range []string{oldBackup, newBackup} {
				w.must(w.repo.RecordPruned(w.Context(), repository.Pruned{Timeline: worldTimeline, Backup: id}))
				w.erase(id)
			}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := provenWorld(t)
			c.inject(w)
			if c.want != nil {
				for _, req := range nothingLeft {
					w.wantWithin(w.verify(req), c.want...)
				}
				return
			}
			for _, req := range nothingLeft {
				if r, err := Repository(t.Context(), w.repo, req); !errors.Is(err, snapshot.ErrNoBackup) {
					t.Errorf("%+v: %+v, %v", req, r, err)
				}
			}
		})
	}
}

// nothingLeft are requests that have to find out that nothing is left.
var nothingLeft = []Request{
	{Backup: All}, {Backup: Latest}, {Backup: All, Timeline: worldTimeline.String()}, {Backup: Latest, Timeline: worldTimeline.String()},
}

// Where the newest backup is gone with all others of its timeline, the newest one of
// an older timeline does not pass in its place; nor does that of a newer timeline
// fail for what an older one has lost.
func TestNewestTimelineGone(t *testing.T) {
	lose := func(w *world) {
		w.removeAll("timelines/" + worldTimeline.String())
		w.removeAll(worldTimeline.String())
	}
	t.Run("the newer one", func(t *testing.T) {
		w := newWorld(t, onMemory())
		w.move(oldBackup)
		w.proves()
		lose(w)
		for _, req := range []Request{{Backup: Latest}, {Backup: All}} {
			w.wantWithin(w.verify(req), "missing full/"+newBackup)
		}
	})
	t.Run("the older one", func(t *testing.T) {
		w := newWorld(t, onMemory())
		w.move(newBackup)
		w.proves()
		lose(w)
		wantKinds(t, w.verify(Request{Backup: Latest}))
	})
	t.Run("it was pruned", func(t *testing.T) {
		w := newWorld(t, onMemory())
		w.move(oldBackup)
		w.proves()
		w.must(w.repo.RecordPruned(t.Context(), repository.Pruned{Timeline: worldTimeline, Backup: newBackup}))
		lose(w)
		wantKinds(t, w.verify(Request{Backup: Latest}))
	})
}

// wantWithin wants these among the findings: the log has its own.
func (w *world) wantWithin(r *report.Report, want ...string) {
	w.Helper()
	got := kinds(r)
	for _, one := range want {
		if !slices.Contains(got, one) {
			w.Errorf("%q is not among %q", one, got)
		}
	}
}

func (w *world) removeAll(prefix string) {
	w.Helper()
	var names []string
	for o, err := range w.sink.List(w.Context(), prefix, "") {
		w.must(err)
		names = append(names, o.Name)
	}
	if len(names) == 0 {
		w.Fatalf("nothing begins with %s", prefix)
	}
	for _, name := range names {
		w.remove(name)
	}
}

// A backup that was finished and proved while a run begins is not missing.
func TestProvedMeanwhile(t *testing.T) {
	w := newWorld(t, onMemory())
	manifest := w.get(manifestObject(newBackup))
	w.remove(manifestObject(newBackup))
	// The manifest comes, and the verdict on it, between the two things that a run
	// reads first.
	s := &between{Sink: w.sink}
	s.do = func() {
		w.put(manifestObject(newBackup), manifest)
		wantKinds(t, w.proves())
	}
	repo, err := repository.Open(t.Context(), s)
	w.must(err)
	wantKinds(t, (&world{T: t, sink: s, repo: repo}).verify(Request{}))
	if s.do != nil {
		t.Fatal("nothing happened meanwhile")
	}
}

// Where the verdicts cannot be read nothing is bound: it could be what took the
// place of something that they proved.
func TestVerdictsUnread(t *testing.T) {
	w := provenWorld(t)
	faulty := sinktest.NewFaulty(w.sink, sinktest.Fail(sinktest.Open, 1, sinks.ErrDenied).Of("verdicts/"))
	repo, err := repository.Open(t.Context(), faulty)
	w.must(err)
	r := (&world{T: t, sink: faulty, repo: repo}).verify(Request{})
	faulty.AllFired(t)
	if r.Status() != report.Unchecked || len(bound(r)) > 0 {
		t.Errorf("%s, and %+v is bound", r.Status(), bound(r))
	}
}

// A verdict binds the segments that were read: of the newest backup those of the log
// after it, of everything all of them.
func TestVerdictBindsWhatWasRead(t *testing.T) {
	w := newWorld(t, onMemory())
	for backup, want := range map[string]struct{ first, objects int }{All: {1, 6}, Latest: {31, 2}} {
		all := bound(w.verify(Request{Backup: backup}))
		log := all[len(all)-1].Log
		if len(log) != 1 || log[0].First != uint64(want.first) || log[0].Last != 50 || log[0].Objects != want.objects || log[0].After != w.chainAt(50).String() {
			t.Errorf("%s: %+v, want %+v", backup, log, want)
		}
	}
}
