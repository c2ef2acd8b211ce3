package codec

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
)

// benchmarkBytes are those of a database named by the environment, or ones
// made here: objects that share their structure and differ in their values.
func benchmarkBytes(b *testing.B) []byte {
	path := os.Getenv("REQUORUM_BENCH_DB")
	if path == "" {
		return objects(64 << 20)
	}
	data, err := os.ReadFile(path)
	require.NoError(b, err)
	return data
}

// BenchmarkFrameSize is what DefaultFrameSize and DefaultLevel were chosen by.
func BenchmarkFrameSize(b *testing.B) {
	data := benchmarkBytes(b)
	for _, level := range []Level{LevelFastest, LevelDefault, LevelBetter, LevelBest} {
		for _, size := range []int{256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", level, size>>10), func(b *testing.B) {
				benchmarkWriter(b, data, Options{Level: level, FrameSize: size})
			})
		}
	}
}

// BenchmarkWriter is the whole pipeline: both hashes, compression, encryption.
func BenchmarkWriter(b *testing.B) {
	data := benchmarkBytes(b)
	identity, err := age.GenerateX25519Identity()
	require.NoError(b, err)
	b.Run("plain", func(b *testing.B) { benchmarkWriter(b, data, Options{}) })
	b.Run("age", func(b *testing.B) {
		benchmarkWriter(b, data, Options{Recipients: []age.Recipient{identity.Recipient()}})
	})
}

func benchmarkWriter(b *testing.B, data []byte, opts Options) {
	b.SetBytes(int64(len(data)))
	var e Encoding
	for b.Loop() {
		w, err := NewWriter(b.Context(), io.Discard, opts)
		require.NoError(b, err)
		// As it comes from etcd: in messages of 32 KiB.
		for p := data; len(p) > 0; p = p[min(len(p), 32<<10):] {
			_, err = w.Write(p[:min(len(p), 32<<10)])
			require.NoError(b, err)
		}
		require.NoError(b, w.Close())
		e = w.Description()
	}
	b.ReportMetric(float64(e.StoredSize)/float64(e.RawSize), "ratio")
}

// BenchmarkReader reads, checks and throws away.
func BenchmarkReader(b *testing.B) {
	data := benchmarkBytes(b)
	identity, err := age.GenerateX25519Identity()
	require.NoError(b, err)
	for name, opts := range map[string]Options{"plain": {}, "age": {Recipients: []age.Recipient{identity.Recipient()}}} {
		var stored bytes.Buffer
		w, err := NewWriter(b.Context(), &stored, opts)
		require.NoError(b, err)
		_, err = w.Write(data)
		require.NoError(b, err)
		require.NoError(b, w.Close())
		runtime.GC()
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				r, err := NewReader(b.Context(), bytes.NewReader(stored.Bytes()), w.Description(), identity)
				require.NoError(b, err)
				_, err = io.Copy(io.Discard, struct{ io.Reader }{r})
				require.NoError(b, err)
				require.NoError(b, r.Close())
			}
		})
	}
}
