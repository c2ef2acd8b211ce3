package serve

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	etcdlease "go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// BenchmarkDrill reports the seconds of each phase, with three members:
//
//	go test ./verify/serve -run - -bench Drill -benchtime 1x
func BenchmarkDrill(b *testing.B) {
	for _, size := range []struct {
		name string
		keys int
	}{{"1MB", 250}, {"600MB", 100_000}, {"1GiB", 175_000}} {
		b.Run(size.name, func(b *testing.B) {
			path := generate(b, size.keys, 4096)
			image, err := snapshot.OpenFile(path)
			require.NoError(b, err)
			for b.Loop() {
				check, err := Drill(b.Context(), image, DrillOptions{Members: 3, ScratchDir: filepath.Dir(path)})
				if err != nil || check.Status != report.Passed {
					b.Fatal(err, check.Status, check.Reason, check.Findings)
				}
				b.Logf("%d bytes, %s", image.Size(), check.Compared)
				for _, p := range check.Phases {
					b.ReportMetric(p.Took.Seconds(), "s-"+unit(p.Name))
				}
			}
		})
	}
}

func unit(phase string) string {
	if phase == PhaseFirstRead {
		return "first-read"
	}
	return phase
}

// generate writes a database with etcd's own storage code, much faster than a
// server would.
func generate(t testing.TB, keys, valueSize int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	c := backend.DefaultBackendConfig(zap.NewNop())
	c.Path, c.UnsafeNoFsync = path, true
	be := backend.New(c)
	kv := mvcc.NewStore(zap.NewNop(), be, &etcdlease.FakeLessor{}, mvcc.StoreConfig{})
	source := rand.NewChaCha8([32]byte{})
	value := make([]byte, valueSize)
	for i := range keys {
		_, err := source.Read(value)
		require.NoError(t, err)
		kv.Put(fmt.Appendf(nil, "/key/%d/%08d", i%10, i), value, etcdlease.NoLease)
	}
	kv.Commit()
	require.NoError(t, kv.Close())
	tx := be.BatchTx()
	tx.LockOutsideApply()
	for _, b := range schema.AllBuckets {
		tx.UnsafeCreateBucket(b)
	}
	schema.UnsafeUpdateConsistentIndexForce(tx, 1234, 7)
	tx.UnsafePut(schema.Cluster, schema.ClusterClusterVersionKeyName, []byte("3.6.0"))
	tx.Unlock()
	be.ForceCommit()
	require.NoError(t, be.Close())
	cutToPages(t, path)
	return path
}

// cutToPages makes a db file as long as a snapshot of it would be: bbolt
// preallocates 16 MiB.
func cutToPages(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	// The page count and the transaction of both meta pages, which begin behind
	// their headers: see package pages.
	var pages, newest uint64
	pageSize := os.Getpagesize()
	for i := range 2 {
		meta := make([]byte, 64)
		_, err = f.ReadAt(meta, int64(i*pageSize+16))
		require.NoError(t, err)
		if tx := binary.LittleEndian.Uint64(meta[48:]); tx >= newest {
			newest, pages = tx, binary.LittleEndian.Uint64(meta[40:])
		}
	}
	require.NoError(t, f.Truncate(int64(pages)*int64(pageSize)))
}
