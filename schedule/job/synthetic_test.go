package job

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// Promise 1: the state at the end of the log, and what it was made from; then
// nothing is new; then the next one goes on from the first one.
func TestPromise1Make(t *testing.T) {
	r := newLog(t)
	r.puts(20)
	real := r.full()
	r.puts(30)
	r.archive(r.entries, 4)
	const id = "20260102T060000Z-0a1b2c"
	o := r.options()
	o.ID = id
	phases := map[string]bool{}
	o.Progress = func(phase string, _, _ int64) { phases[phase] = true }
	p, err := planSynthetic(t.Context(), o)
	if err != nil || p.Base.ID != real.ID || p.Entries != 30 || p.Index != 52 {
		t.Fatalf("plan %+v, %v", p, err)
	}
	m, err := MakeSynthetic(t.Context(), o)
	require.NoError(t, err)
	r.tidy()
	s := m.Synthesis
	if m.ID != id || m.Facts.RaftIndex != 52 || m.Facts.Revision != 51 || m.Barrier != nil || m.Source.Version != "3.6.0" || m.Source.MemberID != 0 ||
		s == nil || s.Base != real.ID || s.BaseIndex != 22 || s.BaseDatabaseSHA256 != real.DatabaseSHA256 || s.Entries != 30 || s.Origin != real.ID || s.Generation != 1 ||
		len(s.ArchiveChain) != 64 || m.HashKV.Hash == 0 || m.HashKV.Revision != 51 || m.Keys.Count == nil || *m.Keys.Count != 7 {
		t.Errorf("manifest %+v, synthesis %+v", m, s)
	}
	if m.MadeFrom() != "synthetic from "+real.ID {
		t.Error(m.MadeFrom())
	}
	for _, phase := range []string{"base", "replay", "prove", "structure", "store", "check"} {
		if !phases[phase] {
			t.Errorf("no progress of %q: %v", phase, phases)
		}
	}
	read, err := snapshot.ReadManifest(t.Context(), r.repo, r.id, id)
	if err != nil || *read.Synthesis != *s {
		t.Errorf("read back %+v, %v", read, err)
	}
	if got := r.catalog(); len(got.Manifests) != 2 || got.Newest(r.id).ID != id || len(got.Damaged)+len(got.Incomplete) > 0 {
		t.Errorf("catalog %+v", got)
	}
	o.ID = ""
	_, err = MakeSynthetic(t.Context(), o)
	require.ErrorIs(t, err, ErrNothingNew, "made again")
	r.puts(5)
	require.NoError(t, os.RemoveAll(filepath.Join(r.dir, r.id.String(), "l0")))
	r.archive(r.entries, 4)
	next, err := MakeSynthetic(t.Context(), o)
	require.NoError(t, err)
	if s := next.Synthesis; s.Base != id || s.Origin != real.ID || s.Generation != 2 || s.Entries != 5 {
		t.Errorf("synthesis %+v", s)
	}
	// What a member would have sent there is the same, row by row.
	truth := r.full()
	check, others, err := replaying.Check(t.Context(), r.repo, r.catalog(), truth, r.unpacked(truth))
	if err != nil || check.Status != report.Passed || len(others) > 0 || !strings.Contains(check.Compared, "what backup "+real.ID+" ") {
		t.Errorf("check %+v, %v, %v", check, others, err)
	}
	for _, m := range []*snapshot.Manifest{m, next} {
		check, _, err := replaying.Check(t.Context(), r.repo, r.catalog(), m, r.unpacked(m))
		if err != nil || check.Status != report.Passed || !strings.Contains(check.Compared, "what backup "+real.ID+" ") {
			t.Errorf("check %+v, %v", check, err)
		}
	}
}

// unpacked are the options to prove a backup by a replay.
func (r *rig) unpacked(m *snapshot.Manifest) replaying.Options {
	r.t.Helper()
	in, err := snapshot.OpenStored(r.repo, m).Open(r.t.Context())
	require.NoError(r.t, err)
	defer in.Close()
	raw, err := io.ReadAll(in)
	require.NoError(r.t, err)
	path := filepath.Join(r.t.TempDir(), "db")
	require.NoError(r.t, os.WriteFile(path, raw, 0o600))
	f, err := snapshot.OpenFile(path)
	require.NoError(r.t, err)
	return replaying.Options{ScratchDir: r.scratch, Unpacked: map[string]*snapshot.File{m.ID: f}}
}

// Another attempt's backup stays, whether it was there before or came meanwhile.
func TestTaken(t *testing.T) {
	const id = "20260102T060000Z-0a1b2c"
	r := newLog(t)
	r.puts(20)
	r.full()
	r.puts(10)
	r.archive(r.entries, 4)
	o := r.options()
	o.ID = id
	late := o
	var first *snapshot.Manifest
	late.Progress = func(phase string, _, _ int64) {
		if phase != "store" || first != nil {
			return
		}
		second := o
		second.Attempt = 2
		second.ScratchDir = t.TempDir()
		var err error
		if first, err = MakeSynthetic(t.Context(), second); err != nil {
			t.Error(err)
		}
	}
	if m, err := MakeSynthetic(t.Context(), late); !errors.Is(err, snapshot.ErrTaken) || m != nil {
		t.Fatalf("%+v, %v", m, err)
	}
	if first == nil || !strings.HasSuffix(first.Object.Name, "/snapshot-2.zst") {
		t.Fatalf("the second attempt made %+v", first)
	}
	if all := r.objects(); strings.Contains(all, id+"/snapshot.zst") || !strings.Contains(all, first.Object.Name) {
		t.Errorf("objects:\n%s", all)
	}
	_, err := MakeSynthetic(t.Context(), o)
	require.ErrorIs(t, err, snapshot.ErrTaken, "a third attempt")
	r.tidy()
}

// Promise 2: a gap, damage, an end that a base does not join: nothing is made.
func TestPromise2LogDoesNotLeadOn(t *testing.T) {
	tests := []struct {
		name    string
		archive func(r *rig)
		damaged bool
	}{
		{name: "gap after the base", archive: func(r *rig) { r.archive(r.entries[40:], 4) }},
		{name: "gap on the way", archive: func(r *rig) {
			r.archive(r.entries[:30], 4)
			r.archive(r.entries[40:], 4)
		}},
		{name: "damaged segment", damaged: true, archive: func(r *rig) {
			r.archive(r.entries, 4)
			r.damage("l0/0000000000000021", -30)
		}},
		{name: "damaged header", damaged: true, archive: func(r *rig) {
			r.archive(r.entries, 4)
			r.damage("l0/0000000000000021", 60)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newLog(t)
			r.puts(20)
			r.full()
			r.puts(30)
			test.archive(r)
			before := r.objects()
			m, err := MakeSynthetic(t.Context(), r.options())
			var damaged *snapshot.DamagedError
			if err == nil || m != nil || errors.Is(err, ErrNothingNew) || errors.As(err, &damaged) != test.damaged || !test.damaged && !errors.Is(err, ErrLogEnds) {
				t.Errorf("%v, %v", m, err)
			}
			t.Log(err)
			if after := r.objects(); after != before {
				t.Errorf("objects:\n%s", after)
			}
			r.tidy()
		})
	}
}

// damage flips a bit of an object, at an offset from its end where that is negative.
func (r *rig) damage(name string, at int) {
	r.t.Helper()
	path := filepath.Join(r.dir, r.id.String(), filepath.FromSlash(name))
	data, err := os.ReadFile(path)
	require.NoError(r.t, err)
	if at < 0 {
		at += len(data)
	}
	data[at] ^= 1
	require.NoError(r.t, os.Chmod(path, 0o600))
	require.NoError(r.t, os.WriteFile(path, data, 0o600))
}

// Promise 2: a backup that a verdict found damaged is not begun from, nor one
// whose object is gone.
func TestPromise2BadBackups(t *testing.T) {
	r := newLog(t)
	r.puts(10)
	good := r.full()
	r.puts(10)
	bad := r.full()
	r.puts(10)
	gone := r.full()
	r.puts(10)
	r.archive(r.entries, 4)
	rep := &report.Report{Tool: "test", Level: report.Checksum, Started: rigBegan, Finished: rigBegan, Checks: []report.Check{
		{Level: report.Checksum, Status: report.Damaged, Object: replaying.ObjectOf(bad), Objects: verdict.ObjectsOf(bad), Findings: []report.Finding{{Kind: report.KindObject, Text: "a bit"}}}}}
	_, err := verdict.Write(t.Context(), r.repo, verdict.FromReport(rep))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(r.dir, filepath.FromSlash(gone.Object.Name))))
	p, err := planSynthetic(t.Context(), r.options())
	if err != nil || p.Base.ID != good.ID || len(p.Skipped) != 2 || p.Entries != 30 {
		t.Fatalf("plan %+v, %v", p, err)
	}
	m, err := MakeSynthetic(t.Context(), r.options())
	if err != nil || m.Synthesis.Base != good.ID {
		t.Errorf("%+v, %v", m, err)
	}
	empty := newLog(t)
	_, err = MakeSynthetic(t.Context(), empty.options())
	require.ErrorIs(t, err, ErrNoBase, "without a backup")
}

// Promise 3: what a live member served otherwise is not stored.
func TestPromise3Stamps(t *testing.T) {
	for _, test := range []struct {
		name  string
		wrong uint32
	}{{"equal", 0}, {"another one", 1}} {
		t.Run(test.name, func(t *testing.T) {
			r := newLog(t)
			r.puts(10)
			r.full()
			r.puts(10)
			truth := newLog(t)
			truth.entries = slices.Clone(r.entries)
			hash := hashOf(t, truth.repo, truth.full())
			last := r.entries[len(r.entries)-1]
			seen := rigBegan.Add(time.Hour)
			if err := segment.WriteMark(t.Context(), r.repo, r.id, raftlog.Mark{Index: last.Index, Term: last.Term, Time: seen, Member: 1, Revision: hash.Revision},
				&segment.CheckpointHash{Hash: hash.Hash + test.wrong, HashRevision: hash.Revision, CompactedRevision: hash.CompactedRevision}); err != nil {
				t.Fatal(err)
			}
			r.archive(r.entries, 4)
			m, err := MakeSynthetic(t.Context(), r.options())
			var stamp *walreplay.CheckpointHashError
			switch {
			case test.wrong == 0 && (err != nil || m.Synthesis.CheckpointHashesEqual != 1 || m.Synthesis.CheckpointHashesPassed != 0 || !m.Synthesis.Observed.Equal(seen)):
				t.Errorf("%+v, %v", m, err)
			case test.wrong != 0 && (!errors.As(err, &stamp) || len(r.catalog().Manifests) != 1):
				t.Errorf("%+v, %v", m, err)
			}
			r.tidy()
		})
	}
}

// Promise 4: not in the clear, whichever of the two is encrypted; and with
// recipients encrypted. Log in the clear after a backup that is encrypted may be
// anybody's, and nothing is made of it.
func TestPromise4Encrypted(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	keys := []age.Recipient{identity.Recipient()}
	for _, test := range []struct {
		name      string
		full, log []age.Recipient
	}{{"backup", keys, nil}, {"log", nil, keys}, {"both", keys, keys}} {
		t.Run(test.name, func(t *testing.T) {
			r := newLog(t)
			r.puts(10)
			r.keys = test.full
			r.full()
			r.puts(10)
			r.keys = test.log
			r.archive(r.entries, 4)
			r.keys = nil
			o := r.options()
			o.Identities = []age.Identity{identity}
			foreign := test.full != nil && test.log == nil
			if m, err := MakeSynthetic(t.Context(), o); errors.Is(err, ErrPlain) == foreign || err == nil || len(r.catalog().Manifests) != 1 {
				t.Fatalf("%+v, %v", m, err)
			}
			r.keys = keys
			o = r.options()
			if foreign {
				o.Identities = []age.Identity{identity}
				if m, err := MakeSynthetic(t.Context(), o); !errors.As(err, new(*snapshot.PlainError)) || len(r.catalog().Manifests) != 1 {
					t.Errorf("%+v, %v", m, err)
				}
				r.tidy()
				return
			}
			if _, err := MakeSynthetic(t.Context(), o); err == nil || !strings.Contains(err.Error(), "identit") {
				t.Errorf("without an identity: %v", err)
			}
			o.Identities = []age.Identity{identity}
			m, err := MakeSynthetic(t.Context(), o)
			if err != nil || !m.Object.Encrypted() || m.Facts.RaftIndex != 22 {
				t.Errorf("%+v, %v", m, err)
			}
			r.tidy()
		})
	}
}

// Promise 5: ended in any phase, nothing is left.
func TestPromise5Cancelled(t *testing.T) {
	for _, phase := range []string{"base", "replay", "prove", "structure", "store", "check"} {
		t.Run(phase, func(t *testing.T) {
			r := newLog(t)
			r.puts(20)
			r.full()
			r.puts(30)
			r.archive(r.entries, 4)
			before := r.objects()
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := errors.New("stopped by the test")
			o := r.options()
			fired := false
			o.Progress = func(p string, _, _ int64) {
				if p == phase {
					fired = true
					cancel(stopped)
				}
			}
			m, err := MakeSynthetic(ctx, o)
			if !fired {
				t.Fatal("the phase never came")
			}
			if err == nil || !errors.Is(err, stopped) && !errors.Is(err, context.Canceled) {
				t.Errorf("%+v, %v", m, err)
			}
			if after := r.objects(); after != before {
				t.Errorf("objects:\n%s", after)
			}
			r.tidy()
		})
	}
}

// hashOf is HashKV of a stored backup.
func hashOf(t *testing.T, repo *repository.Repository, m *snapshot.Manifest) snapshot.HashKV {
	t.Helper()
	pages, err := snapshot.OpenStored(repo, m).ReaderAt(t.Context())
	require.NoError(t, err)
	hash, err := snapshot.ReadHashKV(t.Context(), pages, snapshot.OpenStored(repo, m).Size())
	require.NoError(t, err)
	return hash
}
