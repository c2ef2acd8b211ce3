package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// signedKind is a kind of object as those who need it write and read it. n is 1 or 2: the
// timeline, job or number that it is of.
type signedKind struct {
	write func(ctx context.Context, r *repository.Repository, n int) (name string, err error)
	read  func(ctx context.Context, r *repository.Repository, name string) error
}

const foreignBackup = "20260102T150405Z-3f9a2c"

var foreignTime = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func foreignTimeline(n int) repository.TimelineID {
	return repository.TimelineID{ClusterID: 0xab, N: n}
}

func putSegment(ctx context.Context, r *repository.Repository, n, level int) (string, error) {
	b := segment.Batch{Entries: []raftlog.Entry{{Index: 1, Term: 1, Data: []byte("one")}, {Index: 2, Term: 1, Data: []byte("two")}}}
	h, data, err := segment.Encode(ctx, foreignTimeline(n), raftlog.Sum{}, true, b, segment.Meta{Member: 1, Cut: foreignTime}, segment.Options{Tool: "test", Level: level})
	if err != nil {
		return "", err
	}
	return h.Name(), segment.Put(ctx, r, h, data)
}

func readSegment(ctx context.Context, r *repository.Repository, name string) error {
	_, _, err := segment.Read(ctx, r, name)
	return err
}

var signedKinds = map[string]signedKind{
	"timeline": {
		func(ctx context.Context, r *repository.Repository, n int) (string, error) {
			return repository.TimelineName(foreignTimeline(n)), r.OpenTimeline(ctx, repository.Timeline{ID: foreignTimeline(n), Created: foreignTime, Reason: "test"})
		},
		func(ctx context.Context, r *repository.Repository, name string) error {
			_, err := r.Timeline(ctx, foreignTimeline(1))
			return err
		},
	},
	"manifest": {
		func(ctx context.Context, r *repository.Repository, n int) (string, error) {
			name := repository.ManifestName(foreignTimeline(n), foreignBackup)
			return name, r.WriteDocument(ctx, name, snapshot.Manifest{Format: 1, Kind: snapshot.KindFull, ID: foreignBackup, Timeline: foreignTimeline(n), Tool: "test",
				Object: snapshot.StoredObject{Name: repository.SnapshotName(foreignTimeline(n), foreignBackup, 1, false), Encoding: codec.Encoding{Codecs: []string{codec.Zstd}}}})
		},
		func(ctx context.Context, r *repository.Repository, name string) error {
			_, err := snapshot.ReadManifest(ctx, r, foreignTimeline(1), foreignBackup)
			return err
		},
	},
	"segment": {func(ctx context.Context, r *repository.Repository, n int) (string, error) {
		return putSegment(ctx, r, n, 0)
	}, readSegment},
	"merged": {func(ctx context.Context, r *repository.Repository, n int) (string, error) {
		return putSegment(ctx, r, n, 1)
	}, readSegment},
	"mark": {
		func(ctx context.Context, r *repository.Repository, n int) (string, error) {
			m := raftlog.Mark{Index: 1, Term: 1, Time: foreignTime, Member: 1, Revision: 1}
			return repository.MarkName{Timeline: foreignTimeline(n), Index: 1, Time: foreignTime, Member: 1}.String(), segment.WriteMark(ctx, r, foreignTimeline(n), m)
		},
		func(ctx context.Context, r *repository.Repository, name string) error {
			_, err := segment.ReadMark(ctx, r, repository.MarkName{Timeline: foreignTimeline(1), Index: 1, Time: foreignTime, Member: 1})
			return err
		},
	},
	"gap": {
		func(ctx context.Context, r *repository.Repository, n int) (string, error) {
			return repository.GapName{Timeline: foreignTimeline(n), First: 1, Last: 2}.String(), segment.WriteGap(ctx, r, segment.GapRecord{Timeline: foreignTimeline(n), First: 1, Last: 2, Reason: "test", Created: foreignTime})
		},
		func(ctx context.Context, r *repository.Repository, name string) error {
			_, err := segment.ReadGap(ctx, r, repository.GapName{Timeline: foreignTimeline(1), First: 1, Last: 2})
			return err
		},
	},
	"superseded": {
		func(ctx context.Context, r *repository.Repository, n int) (string, error) {
			return repository.SupersededName(foreignTimeline(n), 1), r.Supersede(ctx, repository.Superseded{Timeline: foreignTimeline(n), By: foreignTimeline(3), Reason: "test", Created: foreignTime})
		},
		func(ctx context.Context, r *repository.Repository, name string) error {
			_, err := r.ReadSuperseded(ctx, name)
			if _, ended, _ := r.Superseded(ctx, foreignTimeline(1)); ended != (err == nil) {
				return errors.Join(err, errors.New("ended, or not, other than the mark says"))
			}
			return err
		},
	},
	"pruned": {
		func(ctx context.Context, r *repository.Repository, n int) (string, error) {
			return repository.PrunedName(foreignTimeline(n), foreignBackup), r.RecordPruned(ctx, repository.Pruned{Timeline: foreignTimeline(n), Backup: foreignBackup, Reason: "test", Created: foreignTime})
		},
		func(ctx context.Context, r *repository.Repository, name string) error {
			_, err := r.ReadPruned(ctx, name)
			return err
		},
	},
	"pin": {
		func(ctx context.Context, r *repository.Repository, n int) (string, error) {
			return repository.PinName(foreignTimeline(n), foreignBackup), r.WritePin(ctx, repository.Pin{Timeline: foreignTimeline(n), Backup: foreignBackup, Reason: "test", Created: foreignTime})
		},
		func(ctx context.Context, r *repository.Repository, name string) error {
			_, err := r.ReadPin(ctx, name)
			return err
		},
	},
	"verdict": {
		func(ctx context.Context, r *repository.Repository, n int) (string, error) {
			err := verdict.Write(ctx, r, []verdict.Verdict{{Started: foreignTime, Finished: foreignTime, Tool: "test", Level: report.Checksum,
				Timeline: foreignTimeline(n), Backup: foreignBackup, Manifest: "x", Status: report.Passed, Reached: report.Checksum}})
			if err != nil {
				return "", err
			}
			for o, err := range r.Sink().List(ctx, "verdicts/", "") {
				return o.Name, err
			}
			return "", errors.New("no verdict")
		},
		func(ctx context.Context, r *repository.Repository, name string) error {
			all, err := verdict.ReadAll(ctx, r)
			for _, e := range all.Entries {
				err = errors.Join(err, e.Err)
			}
			if err == nil && len(all.Entries) == 0 {
				err = repository.ErrAltered // it is passed over
			}
			return err
		},
	},
	"job": {
		func(ctx context.Context, r *repository.Repository, n int) (string, error) {
			name := jobOf(n, repository.JobDone)
			return name.String(), r.WriteJob(ctx, name, repository.JobRecord{Job: name.Job, Slot: name.Slot, Attempt: 1, Holder: "x", Started: foreignTime, Finished: foreignTime, OK: true})
		},
		readJob,
	},
	"attempt": {
		func(ctx context.Context, r *repository.Repository, n int) (string, error) {
			name := jobOf(n, repository.JobBegun)
			return name.String(), r.WriteJob(ctx, name, repository.JobRecord{Job: name.Job, Slot: name.Slot, Attempt: 1, Holder: "x", Started: foreignTime})
		},
		readJob,
	},
}

func jobOf(n int, kind repository.JobKind) repository.JobName {
	name := repository.JobName{Job: "full", Slot: fmt.Sprintf("2026010%dT010000Z", n), Kind: kind}
	if kind == repository.JobBegun {
		name.Attempt = 1
	}
	return name
}

func readJob(ctx context.Context, r *repository.Repository, name string) error {
	n, err := repository.ParseJobName(name)
	if err != nil {
		return err
	}
	_, err = r.ReadJob(ctx, n)
	return err
}

// Each kind of object, as it is written and read in earnest: what a trusted key signed in
// its place is read, and nothing else.
func TestForeignObjects(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	newKey := func(name string) (path, public string) {
		t.Helper()
		private, pub, err := signing.NewKey()
		path = filepath.Join(dir, name)
		require.NoError(t, errors.Join(err, os.WriteFile(path, private, 0o600)))
		return path, string(pub)
	}
	file := func(name, text string) string {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		return filepath.Join(dir, name)
	}
	keys := func(key, trust string, revoked ...string) signing.Keys {
		t.Helper()
		k, err := signing.Read(key, trust, revoked)
		require.NoError(t, err)
		return k
	}
	key, public := newKey("key")
	stranger, _ := newKey("stranger")
	trust, past, revoked := file("trust", "ops "+public), file("past", `ops valid-before="20200101Z" `+public), file("revoked", public)

	place := sinktest.NewMemory()
	on := func(place sinks.Sink, k signing.Keys) *repository.Repository {
		t.Helper()
		r, err := repository.Init(ctx, repository.WithKeys(place, k), foreignTime)
		require.NoError(t, err)
		return r
	}
	on(place, keys(key, ""))
	// made is an object as somebody with a key writes it there, and nothing of it is left.
	made := func(k signedKind, place sinks.Sink, key string, n int) (name string, data []byte) {
		t.Helper()
		name, err := k.write(ctx, on(place, keys(key, "")), n)
		require.NoError(t, err)
		data, err = sinks.Get(ctx, place, name, 1<<20)
		require.NoError(t, errors.Join(err, place.Delete(ctx, name)))
		return name, data
	}
	good := map[string][]byte{}
	for kind, k := range signedKinds {
		_, good[kind] = made(k, place, key, 1)
	}
	for kind, k := range signedKinds {
		t.Run(kind, func(t *testing.T) {
			name, own := made(k, place, key, 1)
			reads := func(name string, data []byte, keys signing.Keys) error {
				t.Helper()
				_, err := sinks.Put(ctx, place, name, data, sinks.CreateOptions{})
				require.NoError(t, err)
				err = k.read(ctx, on(place, keys), name)
				require.NoError(t, place.Delete(ctx, name))
				return err
			}
			refused := func(what, name string, data []byte, keys signing.Keys) {
				t.Helper()
				switch err := reads(name, data, keys); {
				case err == nil:
					t.Errorf("%s: it is read", what)
				case !errors.Is(err, repository.ErrAltered) && !errors.As(err, new(*snapshot.DamagedError)):
					t.Errorf("%s: %v", what, err)
				}
			}
			trusting := keys("", trust)
			require.NoError(t, reads(name, own, trusting))
			refused("revoked", name, own, keys("", trust, revoked))
			refused("outside its validity", name, own, keys("", past))
			at, other := made(k, place, "", 1)
			require.NoError(t, reads(at, other, signing.Keys{}), "without trust it is read")
			refused("unsigned", at, other, trusting)
			at, other = made(k, place, stranger, 1)
			refused("by a stranger", at, other, trusting)
			at, other = made(k, sinktest.NewMemory(), key, 1)
			refused("moved from another repository", at, other, trusting)
			_, other = made(k, place, key, 2)
			refused("moved from another timeline, number or slot", name, other, trusting)
			for _, from := range slices.Sorted(maps.Keys(good)) {
				if from != kind {
					refused("moved from "+from, name, good[from], trusting)
				}
			}
			for at := range own {
				changed := bytes.Clone(own)
				if changed[at] ^= 1; reads(name, changed, trusting) == nil {
					t.Errorf("byte %d of %d changed: it is read: %q to %q", at, len(own), own[max(0, at-40):min(len(own), at+40)], changed[at])
				}
			}
		})
	}
}
