package verify_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// member is a bundled one-member cluster with something in it.
type member struct {
	*testing.T
	cluster *store.LocalCluster
	kv      *clientv3.Client
	dir     string
}

func newMember(t *testing.T) *member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := store.StartCluster(ctx, store.ClusterConfig{
		DataDir: t.TempDir(), Members: 1, FreePorts: true, Settings: store.Settings{LogFile: os.DevNull, SnapshotCount: 50},
	})
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	m := &member{T: t, cluster: c, dir: c.Members()[0].DataDir()}
	m.kv, err = clientv3.New(clientv3.Config{Endpoints: c.Endpoints()})
	require.NoError(t, err)
	t.Cleanup(func() { m.kv.Close() })
	m.load(200)
	return m
}

func (m *member) load(n int) {
	m.Helper()
	for i := range n {
		_, err := m.kv.Put(m.Context(), fmt.Sprintf("key%03d", i%50), strings.Repeat("v", 500))
		require.NoError(m, err)
	}
}

func (m *member) verify(level report.Level) *report.Report {
	m.Helper()
	r, err := verify.DataDir(m.Context(), m.dir, "", verify.Request{Level: level, ScratchDir: m.TempDir()})
	require.NoError(m, err)
	return r
}

func statuses(r *report.Report) string {
	var all []string
	for _, c := range r.Checks {
		all = append(all, fmt.Sprintf("%s %s", c.Level, c.Status))
	}
	return strings.Join(all, ", ")
}

// Promise 3: of a stopped member's files not a byte, name or time changes.
func TestPromise3StoppedMemberIsOnlyRead(t *testing.T) {
	m := newMember(t)
	m.cluster.Kill()
	before := storetest.Fingerprint(m, m.dir)
	r := m.verify(report.Replay)
	if after := storetest.Fingerprint(m, m.dir); !maps.Equal(before, after) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
	if got := statuses(r); !strings.HasPrefix(got, "checksum passed, checksum passed, structure passed, replay passed") || len(r.Findings()) > 0 {
		t.Errorf("%s: %+v", got, r.Checks)
	}
}

// Promise 3: of a running member only the log is read, by somebody who could
// write nothing, while it goes on writing.
func TestPromise3RunningMemberIsNotTouched(t *testing.T) {
	m := newMember(t)
	for above := m.dir; above != os.TempDir(); above = filepath.Dir(above) {
		require.NoError(t, os.Chmod(above, 0o755))
	}
	err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o755)
	})
	require.NoError(t, err)
	for _, pattern := range []string{"member/wal/*", "member/snap/db"} {
		names, _ := filepath.Glob(filepath.Join(m.dir, pattern))
		for _, name := range names {
			require.NoError(t, os.Chmod(name, 0o644))
		}
	}
	scratch := t.TempDir()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.load(300)
	}()
	for range 5 {
		sinktest.AsNobody(t, func() {
			r, err := verify.DataDir(t.Context(), m.dir, "", verify.Request{Level: report.Structure, ScratchDir: scratch})
			if err != nil {
				t.Error(err)
				return
			}
			if got := statuses(r); got != "checksum passed, structure unchecked" || !strings.Contains(strings.Join(r.Notes, " "), "a member runs") {
				t.Errorf("%s: %+v", got, r.Checks)
			}
		})
	}
	<-ended
	m.load(1) // it serves as before
}

// Faults in a member's log, and in what the log and the database say of each
// other.
func TestMemberFaults(t *testing.T) {
	m := newMember(t)
	m.cluster.Kill()
	wals, _ := filepath.Glob(filepath.Join(m.dir, "member", "wal", "*.wal"))
	slices.Sort(wals)
	whole, err := os.ReadFile(wals[0])
	require.NoError(t, err)
	used := len(whole) // up to where records are
	for used > 0 && whole[used-1] == 0 {
		used--
	}
	// In a value: of what lies between records no sum says anything.
	value := used/2 + bytes.Index(whole[used/2:used], []byte("vvvv"))
	for _, c := range []struct {
		name string
		data func() []byte
		want report.Kind
	}{
		{"a record flipped", func() []byte { d := slices.Clone(whole); d[value] ^= 1; return d }, report.KindLogCorrupt},
		{"the end cut off", func() []byte { return whole[:recordAt(whole, used/2)] }, report.KindLogCut},
		{"all gone", nil, report.KindMissing},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.data == nil {
				err = os.Remove(wals[0])
			} else {
				err = os.WriteFile(wals[0], c.data(), 0o600)
			}
			require.NoError(t, err)
			defer os.WriteFile(wals[0], whole, 0o600)
			r := m.verify(report.Checksum)
			found := r.Findings()
			if len(found) == 0 || found[0].Kind != c.want {
				t.Errorf("%s: %+v", statuses(r), r.Checks)
			}
		})
	}
}

// Without the log's folder each check that is reported is of something.
func TestMemberWithoutLogFolder(t *testing.T) {
	m := newMember(t)
	m.cluster.Kill()
	require.NoError(t, os.RemoveAll(filepath.Join(m.dir, "member", "wal")))
	r := m.verify(report.Replay)
	if got := statuses(r); !strings.HasPrefix(got, "checksum damaged,") || !strings.HasSuffix(got, ", replay unchecked") {
		t.Errorf("%s: %+v", got, r.Checks)
	}
	for _, c := range r.Checks {
		if c.Level == "" || c.Status == "" || c.Object == "" {
			t.Errorf("a check of nothing: %+v", c)
		}
	}
}

// recordAt is where the first record behind a place begins: each has its length
// before it, in eight bytes, of which the uppermost one gives the padding.
func recordAt(wal []byte, behind int) int {
	at := 0
	for at < behind {
		length := binary.LittleEndian.Uint64(wal[at:])
		pad := 0
		if length>>63 != 0 {
			pad = int(length >> 56 & 7)
		}
		at += 8 + int(length&(1<<56-1)) + pad
	}
	return at
}

// A file of etcdctl, and a bare copy of a database: the second has no checksum.
func TestFile(t *testing.T) {
	m := newMember(t)
	m.cluster.Kill()
	db, err := os.ReadFile(filepath.Join(m.dir, "member", "snap", "db"))
	require.NoError(t, err)
	sum := sha256.Sum256(db)
	path := filepath.Join(t.TempDir(), "snapshot.db")
	check := func(data []byte, level report.Level, want string) *report.Report {
		t.Helper()
		require.NoError(t, os.WriteFile(path, data, 0o600))
		r, err := verify.File(t.Context(), path, verify.Request{Level: level, ScratchDir: t.TempDir()})
		require.NoError(t, err)
		if got := statuses(r); got != want {
			t.Errorf("%s, want %s: %+v", got, want, r.Checks)
		}
		return r
	}
	whole := append(slices.Clone(db), sum[:]...)
	check(whole, report.Structure, "checksum passed, structure passed")
	check(whole, report.Replay, "checksum passed, structure passed")
	check(db, report.Structure, "checksum unchecked, structure passed")
	flipped := slices.Clone(whole)
	flipped[len(db)/2] ^= 1
	check(flipped, report.Structure, "checksum damaged, structure unchecked")
	check(flipped, report.Drill, "checksum damaged, structure unchecked, drill unchecked")
	// What is wrong with its pages is reported beside what its sum says.
	broken := slices.Clone(whole)
	broken[16+16] ^= 1 // in the first meta page, which has a sum of its own
	if r := check(broken, report.Structure, "checksum damaged, structure damaged"); len(r.Findings()) != 2 || r.Findings()[1].Where != "page 0" {
		t.Errorf("%+v", r.Findings())
	}
	if r := check(whole[:len(whole)-1], report.Checksum, "checksum damaged"); r.Findings()[0].Kind != report.KindSize {
		t.Errorf("%+v", r.Findings())
	}
	check([]byte("nothing"), report.Checksum, "checksum damaged")
	_, err = verify.File(t.Context(), path+"x", verify.Request{})
	require.Error(t, err, "a file that is not there")
}
