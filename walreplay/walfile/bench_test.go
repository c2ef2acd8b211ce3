package walfile

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkDecode reads a log of two segments of etcd's size. Entries reads it
// twice the first time; Tail once.
func BenchmarkDecode(b *testing.B) {
	for _, size := range []int{256, 1400} {
		dir := filepath.Join(b.TempDir(), "wal")
		w := newWriter(b, dir, testIdentity)
		count := uint64(100 << 20 / (size + 100))
		for i := uint64(1); i <= count; i += 100 {
			w.save(i, entriesOf(i, min(count, i+99), 1, size)...)
		}
		w.close()
		rate := func(b *testing.B) {
			b.ReportMetric(float64(count)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
		}
		b.Run(fmt.Sprintf("Tail/%dB", size), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				tail := openTail(b, dir, TailOptions{})
				n := 0
				for {
					poll(b, tail)
					out := tail.Release(tail.Last())
					if n += len(out); len(out) == 0 {
						break
					}
				}
				if n != int(count) {
					b.Fatal(n)
				}
			}
			rate(b)
		})
		l, err := Open(dir)
		check(b, err)
		b.Run(fmt.Sprintf("Summary/%dB", size), func(b *testing.B) {
			for range b.N {
				l, err := Open(dir)
				check(b, err)
				_, err = l.Summary(b.Context())
				check(b, err)
			}
			rate(b)
		})
		b.Run(fmt.Sprintf("Entries/%dB", size), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				n := 0
				for _, err := range l.Entries(b.Context(), 0) {
					check(b, err)
					n++
				}
				if n != int(count) {
					b.Fatal(n)
				}
			}
			rate(b)
		})
	}
}
