package archive

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// memberFiles is a member's log as etcd writes it, in files of at least a size.
type memberFiles struct {
	t   *testing.T
	dir string
	*wal.WAL
}

func newFiles(t *testing.T, size int64) *memberFiles {
	t.Helper()
	before := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = size
	t.Cleanup(func() { wal.SegmentSizeBytes = before })
	meta, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: proto.Uint64(1), ClusterID: proto.Uint64(testCluster)})
	if err != nil {
		t.Fatal(err)
	}
	f := &memberFiles{t: t, dir: filepath.Join(t.TempDir(), "wal")}
	if f.WAL, err = wal.Create(nil, f.dir, meta); err != nil {
		t.Fatal(err)
	}
	f.SetUnsafeNoFsync()
	t.Cleanup(func() { _ = f.Close() }) // it was only written to be read
	return f
}

// save writes entries of a term, and that they are committed up to an index.
func (f *memberFiles) save(first, last, term, commit uint64) {
	f.t.Helper()
	var entries []*raftpb.Entry
	for i := first; i <= last; i++ {
		entries = append(entries, testEntry(i, term, "saved").Raft())
	}
	if err := f.Save(&raftpb.HardState{Term: &term, Vote: proto.Uint64(1), Commit: &commit}, entries); err != nil {
		f.t.Fatal(err)
	}
}

func (f *memberFiles) open() Log {
	f.t.Helper()
	l, err := openWAL(f.dir, 1, 1<<20)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = l.Close() }) // it was only read
	return l
}

// Design, Pins, and issue 3: entries that the member never had, since a leader's
// snapshot came in their place, are a hole that is told, with both its ends. What
// is before it is handed out first.
func TestPromise2LeadersSnapshotInTheFiles(t *testing.T) {
	f := newFiles(t, 1<<20)
	f.save(1, 10, 1, 10)
	if err := f.SaveSnapshot(&walpb.Snapshot{Index: proto.Uint64(50), Term: proto.Uint64(2), ConfState: &raftpb.ConfState{}}); err != nil {
		t.Fatal(err)
	}
	f.save(51, 55, 2, 55)
	l := f.open()
	if l.Identity() != (Identity{testCluster, 1}) {
		t.Errorf("it is of %s", l.Identity())
	}
	var hole *overtaken
	if err := l.Poll(t.Context()); !errors.As(err, &hole) || hole.After != 10 || hole.Next != 51 {
		t.Fatalf("got %v", err)
	}
	if l.Last() != 10 || len(l.Release(55)) != 10 {
		t.Errorf("%d to %d are before the hole", l.First(), l.Last())
	}
	if err := l.Poll(t.Context()); err != nil || l.First() != 51 || l.Last() != 55 {
		t.Errorf("behind it are %d to %d: %v", l.First(), l.Last(), err)
	}
}

// What a member purged before it was read is a hole as well.
func TestPromise2PurgedFiles(t *testing.T) {
	f := newFiles(t, 4<<10)
	for i := uint64(1); i <= 200; i += 10 {
		f.save(i, i+9, 1, i+9)
	}
	files, err := filepath.Glob(filepath.Join(f.dir, "*.wal"))
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	slices.Sort(files)
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	l := f.open()
	var hole *overtaken
	if err := l.Poll(t.Context()); !errors.As(err, &hole) || hole.After != 0 || hole.Next < 2 {
		t.Fatalf("got %v", err)
	}
	if err := l.Poll(t.Context()); err != nil || l.First() != hole.Next || l.Last() != 200 {
		t.Errorf("behind it are %d to %d, want %d to 200: %v", l.First(), l.Last(), hole.Next, err)
	}
}

// Design, What is committed: what overwrites entries that were released is told,
// and another log in the folder's place begins anew.
func TestPromise1OverwrittenInTheFiles(t *testing.T) {
	f := newFiles(t, 1<<20)
	f.save(1, 10, 1, 10)
	l := f.open()
	if err := l.Poll(t.Context()); err != nil || len(l.Release(10)) != 10 || l.Overwritten() != 0 {
		t.Fatal(err, l.Overwritten())
	}
	f.save(8, 12, 2, 12)
	if err := l.Poll(t.Context()); err != nil || l.Overwritten() != 8 {
		t.Errorf("overwritten at %d: %v", l.Overwritten(), err)
	}
	if err := os.Rename(f.dir, f.dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Poll(t.Context()); !errors.Is(err, errAgain) {
		t.Errorf("another folder: %v", err)
	}
}
