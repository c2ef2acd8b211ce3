package job

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

// takeFrom takes a full snapshot of a cluster into a sink, with a live HashKV.
func takeFrom(t *testing.T, c *storetest.Cluster, s sinks.Sink) (m *snapshot.Manifest) {
	t.Helper()
	config := c.ClientConfig()
	config.User, config.Password = storetest.RootUser, storetest.RootPassword
	// Leaders, authentication and members come and go in a mixed load.
	storetest.Eventually(t, "a backup is taken", func() error {
		client, err := client.Dial(t.Context(), config)
		if err != nil {
			return err
		}
		r, err := snapshot.Take(t.Context(), snapshot.Request{Client: client, Sinks: []sinks.Sink{s}, Tool: "test", HashKV: true})
		if err := errors.Join(err, client.Close()); err != nil {
			return err
		}
		m = r.Outcomes[0].Manifest
		return nil
	})
	return m
}

// logOf is the log of a stopped member, up to an index.
func logOf(t *testing.T, dataDir string, last uint64) (all []raftlog.Entry) {
	t.Helper()
	log, err := walfile.Open(filepath.Join(dataDir, "member", "wal"))
	require.NoError(t, err)
	for e, err := range log.Entries(t.Context(), 0) {
		require.NoError(t, err)
		if e.Index <= last {
			e.Data = bytes.Clone(e.Data)
			all = append(all, e)
		}
	}
	return all
}

// Promise 1 with real members under a load of every kind of operation: HashKV is
// the live members', every bucket is that of a snapshot that a member sent at the
// same point, etcd's own tools take the object, a cluster that was restored from it
// serves it, and the replay level passes on both.
func TestPromise1RealMembers(t *testing.T) {
	for _, version := range storetest.Some("3.5", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cluster := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: storetest.MixedArgs()})
			r := newRig(t)
			elsewhere, err := disk.New(filepath.Join(t.TempDir(), "elsewhere"))
			require.NoError(t, err)
			t.Cleanup(func() { elsewhere.Close() })
			mixed := storetest.StartMixed(t, cluster, storetest.MixedOptions{Ops: 500, Seed: 11, Observations: 4})
			mixed.WaitFor(t, 0.3)
			base := takeFrom(t, cluster, r.repo.Sink())
			r.id = base.Timeline
			mixed.Wait(t)
			_, err = cluster.Client(t).Put(t.Context(), "/last", "one")
			require.NoError(t, err)
			real := takeFrom(t, cluster, elsewhere)
			if real.HashKV.Revision == 0 || real.Facts.RaftIndex <= base.Facts.RaftIndex {
				t.Fatalf("%+v", real)
			}
			cluster.WriteOut(t, 0) // it may have been behind the member that was read
			cluster.StopAll()
			r.entries = logOf(t, cluster.Member(0).DataDir, real.Facts.RaftIndex)
			r.archive(r.entries, 300)
			last := r.entries[len(r.entries)-1]
			if err := segment.WriteMark(t.Context(), r.repo, r.id, raftlog.Mark{Index: last.Index, Term: last.Term, Time: time.Now(), Member: uint64(real.Source.MemberID), Revision: real.HashKV.Revision},
				&segment.CheckpointHash{Hash: real.HashKV.Hash, HashRevision: real.HashKV.Revision, CompactedRevision: real.HashKV.CompactedRevision}); err != nil {
				t.Fatal(err)
			}

			m, err := MakeSynthetic(t.Context(), r.options())
			require.NoError(t, err)
			r.tidy()
			if m.Synthesis.CheckpointHashesEqual == 0 || m.HashKV.Hash != real.HashKV.Hash || m.HashKV.Revision != real.HashKV.Revision || m.HashKV.CompactedRevision != real.HashKV.CompactedRevision {
				t.Errorf("HashKV %+v, live %+v; %+v", m.HashKV, real.HashKV, m.Synthesis)
			}
			if m.Facts.RaftIndex != real.Facts.RaftIndex || m.Facts.RaftTerm != real.Facts.RaftTerm || fmt.Sprint(m.Facts.Members) != fmt.Sprint(real.Facts.Members) {
				t.Errorf("facts %+v, of the member %+v", m.Facts, real.Facts)
			}
			t.Logf("%d entries; %d bytes, the member sent %d", m.Synthesis.Entries, m.Object.RawSize, real.Object.RawSize)

			db := byHand(t, r, m)
			sameBuckets(t, db, filepath.Join(elsewhere.String()[len("file://"):], filepath.FromSlash(real.Object.Name)))
			if out := storetest.Etcdutl(t, version, "snapshot", "status", db, "-w", "json"); !strings.Contains(out, fmt.Sprintf(`"revision":%d`, m.Facts.Revision)) {
				t.Errorf("etcdutl snapshot status: %s", out)
			}
			storetest.Etcdutl(t, version, "snapshot", "restore", db, "--data-dir", filepath.Join(t.TempDir(), "restored"))
			r.passes(t, m.ID, report.Drill)

			// The member's snapshot comes to the same repository: it is proved from
			// the one before it that a member sent as well, not from this one.
			r.adopt(t, elsewhere, real)
			r.passes(t, real.ID, report.Replay, "what backup "+base.ID+" ")
			r.passes(t, m.ID, report.Replay, "what backup "+base.ID+" ")
			r.passes(t, verify.All, report.Drill)
		})
	}
}

// byHand is the snapshot in a file, as docs/format.md has it.
func byHand(t *testing.T, r *rig, m *snapshot.Manifest) string {
	t.Helper()
	db := filepath.Join(t.TempDir(), "snapshot.db")
	unpackDatabase(t, filepath.Join(r.dir, filepath.FromSlash(m.Object.Name)), db)
	return db
}

func unpackDatabase(t *testing.T, object, db string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), storetest.Program(t, "zstd"), "-q", "-d", object, "-o", db).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// sameBuckets wants every bucket of two databases to be equal.
func sameBuckets(t *testing.T, made, object string) {
	t.Helper()
	sent := filepath.Join(t.TempDir(), "sent.db")
	unpackDatabase(t, object, sent)
	var sides []replaying.Database
	for _, path := range []string{made, sent} {
		image, err := snapshot.OpenFile(path)
		require.NoError(t, err)
		if !image.HasHash() {
			t.Errorf("%s has no SHA-256 at its end", path)
		}
		sides = append(sides, replaying.Database{Name: filepath.Base(path), File: image})
	}
	result, err := replaying.Compare(t.Context(), sides[0], sides[1], nil)
	if err != nil || len(result.Findings) > 0 || len(result.Compared) == 0 {
		t.Errorf("%v, %v", result.Findings, err)
	}
	t.Log(result.Compared)
}

// adopt copies a backup from another repository.
func (r *rig) adopt(t *testing.T, from sinks.Sink, m *snapshot.Manifest) {
	t.Helper()
	for o, err := range from.List(t.Context(), m.Timeline.String()+"/full/", "") {
		require.NoError(t, err)
		in, err := from.Open(t.Context(), o.Name, 0, -1)
		require.NoError(t, err)
		var data bytes.Buffer
		_, err = io.Copy(&data, in)
		require.NoError(t, err)
		in.Close()
		_, err = sinks.Put(t.Context(), r.repo.Sink(), o.Name, data.Bytes(), sinks.CreateOptions{})
		require.NoError(t, err)
	}
}

// passes proves a backup, or all, up to a level.
func (r *rig) passes(t *testing.T, backup string, level report.Level, compared ...string) {
	t.Helper()
	rep, err := verify.Repository(t.Context(), r.repo, verify.Request{Backup: backup, Level: level, ScratchDir: r.scratch, Tool: "test"})
	require.NoError(t, err)
	reached := false
	for _, c := range rep.Checks {
		if c.Status != report.Passed {
			t.Errorf("%s of %s: %s %s %v", c.Level, c.Object, c.Status, c.Reason, c.Findings)
		}
		reached = reached || c.Level == level
		for _, text := range compared {
			if c.Level == report.Replay && !strings.Contains(c.Compared, text) {
				t.Errorf("the replay compared %s; want %q", c.Compared, text)
			}
		}
	}
	if !reached {
		t.Errorf("level %s was not reached: %+v", level, rep)
	}
	r.tidy()
}
