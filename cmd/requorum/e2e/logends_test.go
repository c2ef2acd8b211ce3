package e2e

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLogEnds damages the end of a killed member's log in the ways that people meet.
// verify, restore and recover report the same fact in the same words, and none of them
// calls a record unacknowledged that may have been acknowledged.
func TestLogEnds(t *testing.T) {
	t.Parallel()
	m := newMixer(t, "3.7")
	dir := m.dir(m.copied("m", m.write("half", "", "/a/", 50), "/b/", 50))
	segment := filepath.Join(dir, "member", "wal", "0000000000000000-0000000000000000.wal")
	whole, err := os.ReadFile(segment)
	require.NoError(t, err)
	used := len(bytes.TrimRight(whole, "\x00"))
	zeroed := func(from int) []byte {
		return append(bytes.Clone(whole[:from]), make([]byte, len(whole)-from)...)
	}
	middle := recordBefore(whole, used/2)
	for _, c := range []struct {
		name   string
		log    []byte
		behind bool // the database does not reach what is missing
		says   string
		codes  [3]int // verify, restore, recover
	}{
		{"as the crash left it", whole, false, "", [3]int{exitOK, exitOK, exitOK}},
		{"shorter than etcd allocates", whole[:used+4096], false, "its end was cut off", [3]int{exitDamaged, exitDamaged, exitUnproven}},
		{"cut through a record", whole[:middle+20], false, "was rolled back or cut off", [3]int{exitDamaged, exitDamaged, exitUnproven}},
		{"rolled back and zeros behind it", zeroed(middle), false, "was rolled back or cut off", [3]int{exitDamaged, exitDamaged, exitUnproven}},
		{"a torn record with zeros behind it", zeroed(recordBefore(whole, used-20) + 12), true, "incomplete record, as a crash during a write leaves it", [3]int{exitOK, exitOK, exitOK}},
		{"a byte flipped in the middle", flippedAt(whole, bytes.Index(whole[used/2:], []byte("m 2"))+used/2), false, "damaged", [3]int{exitDamaged, exitDamaged, exitUnproven}},
	} {
		t.Run(c.name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "m1")
			require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
			require.NoError(t, os.WriteFile(filepath.Join(copied, "member", "wal", filepath.Base(segment)), c.log, 0o600))
			if c.behind {
				db, err := os.ReadFile(filepath.Join(m.dir("half"), "member", "snap", "db"))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(copied, "member", "snap", "db"), db, 0o600))
			}
			for i, args := range m.commands(copied, filepath.Join(t.TempDir(), "out")) {
				e := m.user.Run(t, args...)
				out := strings.Join(strings.Fields(e.Stdout+e.Stderr), " ")
				if e.Code != c.codes[i] || !strings.Contains(out, c.says) || strings.Contains(out, "never acknowledged") {
					t.Errorf("%s: want exit code %d and %q: %s", args[0], c.codes[i], c.says, e)
				}
			}
		})
	}
}

// recordBefore returns where the last record of a log that begins before a place begins.
func recordBefore(log []byte, place int) int {
	at := 0
	for {
		word := binary.LittleEndian.Uint64(log[at:])
		next := at + 8 + int(word&(1<<56-1))
		if word>>63 == 1 {
			next += int(word >> 56 & 7)
		}
		if next >= place {
			return at
		}
		at = next
	}
}

func flippedAt(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}
