package engine

import (
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// BenchmarkEtcdBoot is the same log applied by etcd 3.7 itself when it starts:
// how much longer it takes to serve with all of the log than with a third.
func BenchmarkEtcdBoot(b *testing.B) {
	for name, entries := range loads(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				third := len(entries) / 3
				longer := boot(b, entries) - boot(b, entries[:third])
				b.ReportMetric(float64(len(entries)-third)/longer.Seconds(), "entries/s")
			}
		})
	}
}

// boot is the time from the start until the member serves.
func boot(b *testing.B, entries []raftlog.Entry) time.Duration {
	c := storetest.Start(b, storetest.Options{Version: "3.7", ExtraArgs: []string{"--snapshot-count", "1000000"}})
	c.Kill(0)
	appendToWAL(b, c.Member(0).DataDir, entries)
	start := time.Now()
	c.Restart(b, 0)
	c.WaitReady(b)
	defer c.Kill(0)
	return time.Since(start)
}

// appendToWAL makes the entries follow those that a stopped member's log has.
func appendToWAL(t testing.TB, dataDir string, entries []raftlog.Entry) {
	w, err := wal.Open(zap.NewNop(), filepath.Join(dataDir, "member", "wal"), &walpb.Snapshot{Index: new(uint64), Term: new(uint64)})
	if err != nil {
		t.Fatal(err)
	}
	_, state, old, err := w.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	w.SetUnsafeNoFsync()
	index := old[len(old)-1].GetIndex()
	for len(entries) > 0 {
		n := min(1000, len(entries))
		var some []*raftpb.Entry
		for _, e := range entries[:n] {
			index++
			e.Index, e.Term = index, state.GetTerm()
			some = append(some, e.Raft())
		}
		entries = entries[n:]
		state.Commit = &index
		if err := w.Save(state, some); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
