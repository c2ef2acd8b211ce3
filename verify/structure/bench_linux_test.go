package structure

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// benchFile makes a database of REQUORUM_BENCH_MIB MiB, 256 unless set
// otherwise, with values of 256 bytes to 4 KiB, a fifth of them changes of keys
// that are there; or it is the one that REQUORUM_BENCH_DB names.
func benchFile(b *testing.B) string {
	if path := os.Getenv("REQUORUM_BENCH_DB"); path != "" {
		return path
	}
	size := int64(256)
	if s := os.Getenv("REQUORUM_BENCH_MIB"); s != "" {
		var err error
		size, err = strconv.ParseInt(s, 10, 64)
		must(b, err)
	}
	size <<= 20
	m := newMade(b)
	value := make([]byte, 4<<10)
	for i := range value {
		value[i] = byte(i * 7)
	}
	written := int64(0)
	for i := 0; written < size*9/10; {
		m.txn(func(tx mvcc.TxnWrite) {
			for range 10 {
				n := 256 << (i % 5)
				key := i
				if i%5 == 4 && i > 100 {
					key = i / 2
				}
				tx.Put(fmt.Appendf(nil, "/registry/pods/namespace-%d/pod-%08d", key%50, key), value[:n], 0)
				written += int64(n) + 90
				i++
			}
		})
	}
	m.compact(m.kv.Rev() / 2)
	path := filepath.Join(b.TempDir(), "snapshot.db")
	must(b, os.WriteFile(path, m.close(), 0o600))
	return path
}

// The structure level beside `etcdutl snapshot status` and `etcdutl hashkv`,
// which together say less, on the same file: cold, with the file dropped from
// the page cache before each run, and warm.
//
//	REQUORUM_BENCH_MIB=1024 go test ./verify/structure -run '^$' -bench . -benchtime 3x
func BenchmarkStructure(b *testing.B) {
	path := benchFile(b)
	info, err := os.Stat(path)
	must(b, err)
	copied := filepath.Join(b.TempDir(), "copy.db")
	copyFile(b, path, copied) // hashkv changes the file that it reads
	for _, cold := range []bool{true, false} {
		temperature := map[bool]string{true: "cold", false: "warm"}[cold]
		b.Run("structure/"+temperature, func(b *testing.B) {
			b.SetBytes(info.Size())
			for b.Loop() {
				prepare(b, path, cold)
				f, err := os.Open(path)
				must(b, err)
				r, err := Check(b.Context(), f, info.Size(), Options{})
				must(b, err)
				must(b, f.Close())
				if len(r.Findings) > 0 {
					b.Fatal(r.Findings[0])
				}
				b.ReportMetric(float64(r.Revisions), "rows")
			}
		})
		b.Run("etcdutl/"+temperature, func(b *testing.B) {
			b.SetBytes(info.Size())
			for b.Loop() {
				prepare(b, path, cold)
				_, err := snapshot.NewV3(zap.NewNop()).Status(path)
				must(b, err)
				prepare(b, copied, cold)
				be := backend.NewDefaultBackend(zap.NewNop(), copied)
				kv := mvcc.NewStore(zap.NewNop(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
				_, _, err = kv.HashStorage().HashByRev(0)
				must(b, err)
				must(b, kv.Close())
				must(b, be.Close())
			}
		})
	}
}

// prepare drops a file from the page cache, or brings it in. It is not timed.
func prepare(b *testing.B, path string, cold bool) {
	b.StopTimer()
	defer b.StartTimer()
	f, err := os.Open(path)
	must(b, err)
	defer f.Close()
	if cold {
		must(b, f.Sync())
		must(b, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		return
	}
	_, err = io.Copy(io.Discard, f)
	must(b, err)
}

func copyFile(b *testing.B, from, to string) {
	src, err := os.Open(from)
	must(b, err)
	defer src.Close()
	dst, err := os.Create(to)
	must(b, err)
	_, err = io.Copy(dst, src)
	must(b, err)
	must(b, dst.Close())
}
