package verify_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
)

// Promise 3: the files in which raft keeps its snapshots are read by hand: a broken
// one is found, and stays under its name. One that is newer than what the log knows
// of is what a crash leaves, and no fault. So is none that is whole.
func TestPromise3SnapFiles(t *testing.T) {
	m := newMember(t)
	m.cluster.Kill()
	folder := filepath.Join(m.dir, "member", "snap")
	snaps, _ := filepath.Glob(filepath.Join(folder, "*.snap"))
	if len(snaps) < 2 {
		t.Fatalf("the member wrote %q", snaps)
	}
	slices.Sort(snaps)
	path := snaps[len(snaps)-1]
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	newer := filepath.Join(folder, "0000000000000002-00000000000fffff.snap")
	for _, c := range []struct {
		name, path string
		data       []byte
		says       string
		note       bool
	}{
		{"whole", path, whole, "", false},
		{"a byte flipped", path, flipped(whole, len(whole)/2), "CRC", false},
		{"cut", path, whole[:len(whole)-5], "decoded", false},
		{"empty", path, nil, "nothing in it", false},
		{"another one's", path, read(t, snaps[0]), "moved or copied", false},
		{"a name that etcd does not give", filepath.Join(folder, "copy.snap"), whole, "moved or copied", false},
		{"cut while it was written", newer, whole[:20], "a crash", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(c.path, c.data, 0o600))
			before := storetest.Fingerprint(m, m.dir)
			r := m.verify(report.Checksum)
			if !maps.Equal(before, storetest.Fingerprint(m, m.dir)) {
				t.Error("files were changed")
			}
			notes, found := strings.Join(r.Notes, "\n"), r.Findings()
			switch {
			case c.note && (len(found) > 0 || !strings.Contains(notes, c.says) || !strings.Contains(notes, c.path)):
				t.Errorf("%v, notes %q", found, notes)
			case c.says == "" && len(found) > 0:
				t.Errorf("%v", found)
			case c.says != "" && !c.note && (len(found) != 1 || found[0].Kind != report.KindObject || found[0].Object != c.path || !strings.Contains(found[0].Text, c.says)):
				t.Errorf("%v, want %q", found, c.says)
			}
			if c.path != path {
				err = os.Remove(c.path)
			} else {
				err = os.WriteFile(path, whole, 0o600)
			}
			require.NoError(t, err)
		})
	}
}

// A database that a leader sent, and that etcd has not taken for its own yet, is
// looked at as the member's own one is.
func TestReceivedDatabase(t *testing.T) {
	m := newMember(t)
	m.cluster.Kill()
	db := read(t, filepath.Join(m.dir, "member", "snap", "db"))
	path := filepath.Join(m.dir, "member", "snap", "0000000000000010.snap.db")
	require.NoError(t, os.WriteFile(path, db, 0o600))
	r := m.verify(report.Structure)
	if got := statuses(r); got != "checksum passed, checksum passed, structure passed, structure passed" || r.Checks[3].Object != path {
		t.Errorf("%s: %+v", got, r.Checks)
	}
	// Of every row of a key the first byte, which names the field.
	rows := bytes.ReplaceAll(db, []byte("\x0a\x06key001"), []byte("\x0b\x06key001"))
	for _, data := range [][]byte{db[:16<<10], rows, []byte("no database")} {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		r = m.verify(report.Structure)
		if found := r.Findings(); len(found) == 0 || found[0].Object != path || !strings.HasSuffix(statuses(r), "structure passed, structure damaged") {
			t.Errorf("%s: %+v", statuses(r), r.Checks)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func flipped(data []byte, at int) []byte {
	data = bytes.Clone(data)
	data[at] ^= 1
	return data
}
