package snapshot_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/structure"
	"github.com/requorum/requorum/walreplay"
)

const (
	fileKeys  = 4200
	fileValue = 8 << 10
)

// local is a cluster of real members whose files are read.
type local struct {
	*storetest.Cluster
	kv     *clientv3.Client
	client *client.Client
}

func newLocal(t *testing.T, o storetest.Options, keys int) *local {
	t.Helper()
	o.ExtraArgs = append(o.ExtraArgs, "--snapshot-count=1000", "--unsafe-no-fsync")
	c := storetest.Start(t, o)
	c.Fill(t, storetest.Load{Keys: keys, ValueSize: fileValue})
	l := &local{Cluster: c, kv: c.Client(t)}
	var err error
	l.client, err = client.Dial(t.Context(), c.ClientConfig())
	require.NoError(t, err)
	t.Cleanup(func() { l.client.Close() })
	return l
}

func (l *local) member(t *testing.T, i int) *snapshot.LocalMember {
	t.Helper()
	m, err := walreplay.LocalMember(l.Member(i).DataDir, "")
	require.NoError(t, err)
	return m
}

// request is for a snapshot out of the member's file. meanwhile is called once, when a
// little of the file was read.
func (l *local) request(of *snapshot.LocalMember, to sinks.Sink, meanwhile func()) snapshot.Request {
	var once sync.Once
	return snapshot.Request{Client: l.client, Local: of, Sink: to, Tool: "test", HashKV: true, Progress: func(p snapshot.Progress) {
		if p.Phase == "file" && meanwhile != nil {
			once.Do(meanwhile)
		}
	}}
}

// rewrite writes keys anew and compacts, again and again: pages that are free then are
// used again.
func (l *local) rewrite(t *testing.T) {
	for range 3 {
		l.Fill(t, storetest.Load{Keys: fileKeys / 4, ValueSize: fileValue})
		head, err := l.kv.Get(t.Context(), "x")
		require.NoError(t, err)
		_, err = l.kv.Compact(t.Context(), head.Header.Revision, clientv3.WithCompactPhysical())
		require.NoError(t, err)
	}
	// Of the revision that was compacted last etcd answers with the hash before that.
	_, err := l.kv.Put(t.Context(), "x", "x")
	require.NoError(t, err)
}

// sound goes through the whole database of a backup.
func sound(t *testing.T, s sinks.Sink, m *snapshot.Manifest) structure.Result {
	t.Helper()
	repo, err := repository.Open(t.Context(), s)
	require.NoError(t, err)
	restorable(t, s, m)
	stored := snapshot.OpenStored(repo, m)
	r, err := stored.ReaderAt(t.Context())
	require.NoError(t, err)
	found, err := structure.Check(t.Context(), r, stored.Size(), structure.Options{Manifest: m})
	require.NoError(t, err)
	if len(found.Findings) > 0 {
		t.Fatalf("backup %s: %+v", m.ID, found.Findings)
	}
	return found
}

// Promise 2, for what is read from a member's file: whatever happens to the member while
// it is read, the backup is of one revision and whole, or it is streamed, or there is none.
func TestMemberFile(t *testing.T) {
	t.Parallel()
	l := newLocal(t, storetest.Options{Version: "3.7", Members: 1}, fileKeys)
	one := l.member(t, 0)

	t.Run("written to", func(t *testing.T) {
		s := newDisk(t)
		want, err := l.kv.HashKV(t.Context(), l.Member(0).ClientURL, 0)
		require.NoError(t, err)
		result, err := snapshot.Take(t.Context(), l.request(one, s, func() { l.rewrite(t) }))
		require.NoError(t, err)
		require.Empty(t, result.Streamed)
		m := result.Manifest
		if found := sound(t, s, m); found.HashKV.Hash != want.Hash || m.Facts.Revision != want.HashRevision {
			t.Errorf("HashKV %+v at revision %d, want %+v", found.HashKV, m.Facts.Revision, want)
		}
	})
	t.Run("defragmented", func(t *testing.T) {
		s := newDisk(t)
		done := make(chan error, 1)
		result, err := snapshot.Take(t.Context(), l.request(one, s, func() {
			await := l.AwaitLog(t, 0, `"defragmenting"`)
			go func() {
				_, err := l.kv.Defragment(context.Background(), l.Member(0).ClientURL)
				done <- err
			}()
			await(nil)
		}))
		require.NoError(t, err)
		require.Empty(t, result.Streamed)
		sound(t, s, result.Manifest)
		require.NoError(t, <-done) // it has waited for the stream's end, and goes on
		result, err = snapshot.Take(t.Context(), l.request(one, s, nil))
		require.NoError(t, err)
		require.Empty(t, result.Streamed, "the new file is read")
		sound(t, s, result.Manifest)
	})
	t.Run("another file", func(t *testing.T) {
		dir := t.TempDir()
		old := filepath.Join(dir, "old")
		l.CopyData(t, 0, old)
		l.Fill(t, storetest.Load{Keys: 100})
		l.WriteOut(t, 0)
		link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "folder")
		require.NoError(t, os.Symlink(one.Database, link))
		require.NoError(t, os.Mkdir(fifo, 0o700))
		for path, want := range map[string]string{
			filepath.Join(old, "member", "snap", "db"): "not the file that the member writes to",
			filepath.Join(dir, "none"):                 "no such file",
			fifo:                                       "no regular file",
		} {
			s := newDisk(t)
			result, err := snapshot.Take(t.Context(), l.request(&snapshot.LocalMember{ClusterID: one.ClusterID, MemberID: one.MemberID, Database: path}, s, nil))
			require.NoError(t, err)
			if !strings.Contains(result.Streamed, want) {
				t.Errorf("%s: %q, want %q", path, result.Streamed, want)
			}
			sound(t, s, result.Manifest)
		}
		s := newDisk(t)
		result, err := snapshot.Take(t.Context(), l.request(&snapshot.LocalMember{ClusterID: one.ClusterID, MemberID: one.MemberID + 1, Database: one.Database}, s, nil))
		require.NoError(t, err)
		require.Contains(t, result.Streamed, "no endpoint leads")
		sound(t, s, result.Manifest)
	})
	t.Run("killed and started", func(t *testing.T) {
		s := newDisk(t)
		result, err := snapshot.Take(t.Context(), l.request(one, s, func() {
			l.Kill(0)
			l.Restart(t, 0)
			l.WaitReady(t)
			l.rewrite(t)
		}))
		require.NoError(t, err)
		require.Contains(t, result.Streamed, "kept its read transaction open")
		sound(t, s, result.Manifest)
	})
	t.Run("killed", func(t *testing.T) {
		s := newDisk(t)
		_, err := snapshot.Take(t.Context(), l.request(one, s, func() { l.Kill(0) }))
		require.Error(t, err)
		require.Zero(t, snapshotObjects(t, s))
	})
}

// A small database is streamed; and the file of a member of another cluster is not read,
// whatever identity it is said to have.
func TestMemberFileSmallAndForeign(t *testing.T) {
	t.Parallel()
	small := newLocal(t, storetest.Options{Version: "3.6", Members: 1}, 100)
	s := newDisk(t)
	result, err := snapshot.Take(t.Context(), small.request(small.member(t, 0), s, nil))
	require.NoError(t, err)
	require.Contains(t, result.Streamed, "a stream is as good")
	sound(t, s, result.Manifest)

	// With TLS and authentication.
	secured := newLocal(t, storetest.Options{Version: "3.5", Members: 3, TLS: true, Auth: true}, fileKeys)
	survey, err := secured.client.Survey(t.Context())
	require.NoError(t, err)
	for i := range 3 { // the leader is read first too
		of := secured.member(t, i)
		if leads := survey.Members[i].IsLeader; !leads || survey.Members[i].MemberID != of.MemberID {
			continue
		}
		s := newDisk(t)
		result, err := snapshot.Take(t.Context(), secured.request(of, s, nil))
		require.NoError(t, err)
		require.Empty(t, result.Streamed)
		m := result.Manifest
		require.True(t, m.Source.IsLeader)
		sound(t, s, m)

		of.Database = small.member(t, 0).Database
		result, err = snapshot.Take(t.Context(), secured.request(of, s, nil))
		require.NoError(t, err)
		require.Contains(t, result.Streamed, "not the file that the member writes to")
		return
	}
	t.Fatal("no member leads")
}
