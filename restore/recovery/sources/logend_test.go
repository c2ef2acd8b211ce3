package sources

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// Promise 2: a log that was cut short is no witness, though each record that is left
// is good: an interrupted copy cuts between two as well as through one.
func TestPromise2CutLogIsNoWitness(t *testing.T) {
	size := int(wal.SegmentSizeBytes)
	for _, f := range []struct {
		name   string
		file   []byte
		broken bool // beside it lies what etcd cut a torn record off from
		cut    bool
	}{
		{"as a crash leaves it", append(bytes.Repeat([]byte{1}, 100), make([]byte, size-100)...), false, false},
		{"cut short", bytes.Repeat([]byte{1}, 100), false, true},
		{"cut short in the room behind the records", append(bytes.Repeat([]byte{1}, 100), make([]byte, 100)...), false, true},
		{"cut by etcd itself", bytes.Repeat([]byte{1}, 100), true, false},
		{"empty", nil, false, true},
		{"full, and no other follows", bytes.Repeat([]byte{1}, size+100), false, true},
		{"beyond its size, with room", append(bytes.Repeat([]byte{1}, size), make([]byte, 8)...), false, false},
	} {
		path := filepath.Join(t.TempDir(), "0000000000000000-0000000000000000.wal")
		require.NoError(t, os.WriteFile(path, f.file, 0o600))
		if f.broken {
			require.NoError(t, os.WriteFile(path+".broken", f.file, 0o600))
		}
		m := &Remains{Name: "m1", Log: &Log{Torn: &Place{File: path}}, Findings: []Finding{{KindTorn, "torn", ""}}}
		require.NoError(t, (&memberDir{remains: m}).lookAtEnd(path))
		if got := has(m.Findings, KindCutLog); got != f.cut {
			t.Errorf("%s: cut %t, want %t: %v", f.name, got, f.cut, m.Findings)
		}
		if got := memberSource(m).whole(); got == f.cut {
			t.Errorf("%s: whole %t", f.name, got)
		}
	}
}
