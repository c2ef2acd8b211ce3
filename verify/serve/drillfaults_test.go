package serve

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// Promises 2 and 3: an image that no etcd can boot, or that it serves as
// something else than what it holds, is damaged, and this process lives on. Each
// fault's bytes have no checksum, or a right one.
func TestPromise2FaultsAreFound(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]struct {
		from  func(*testing.T) *snapshot.File
		alter func(*testing.T, *bbolt.Tx) error
		kind  report.Kind
		says  string
	}{
		"a lease that is none": {plain, func(_ *testing.T, tx *bbolt.Tx) error {
			return tx.Bucket([]byte("lease")).Put([]byte("12345678"), []byte("no lease"))
		}, report.KindBoot, "failed to Unmarshal lease proto item"},
		"a row that is none": {plain, func(_ *testing.T, tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("key"))
			k, _ := b.Cursor().Last()
			return b.Put(bytes.Clone(k), []byte("no row"))
		}, report.KindBoot, "failed to unmarshal mvccpb.KeyValue"},
		"a user that is none": {withAuth, func(_ *testing.T, tx *bbolt.Tx) error {
			return tx.Bucket([]byte("authUsers")).Put([]byte("user0"), []byte("no user"))
		}, report.KindBoot, "failed to unmarshal 'authpb.User'"},
		"nobody is root": {withAuth, func(_ *testing.T, tx *bbolt.Tx) error {
			return tx.Bucket([]byte("authUsers")).Delete([]byte("root"))
		}, report.KindServe, "no user root"},
		"no bucket of keys": {plain, func(_ *testing.T, tx *bbolt.Tx) error {
			return tx.DeleteBucket([]byte("key"))
		}, report.KindBoot, "no bucket key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := f.from(t)
			image := altered(t, from, func(tx *bbolt.Tx) error { return f.alter(t, tx) })
			damaged(t, run(t, image, DrillOptions{Members: 1}), f.kind, f.says)
		})
	}
}

func damaged(t *testing.T, check report.Check, kind report.Kind, says string) {
	t.Helper()
	if check.Status != report.Damaged {
		t.Fatalf("%s: %s %s", check.Status, check.Reason, check.Compared)
	}
	found := false
	for i, f := range check.Findings {
		if i < 5 {
			t.Log(f.Kind, f)
		}
		found = found || f.Kind == kind && strings.Contains(f.String(), says)
	}
	if !found {
		t.Errorf("nothing of kind %s says %q", kind, says)
	}
}

// Promise 2: two rows changed places, with the checksum fixed up: etcd ends its
// whole process, and not this one.
func TestPromise2RowsOutOfOrderEndEtcdAndNotUs(t *testing.T) {
	t.Parallel()
	from := history(t)
	data, err := os.ReadFile(from.Name())
	require.NoError(t, err)
	data = data[:from.Size()]
	facts, err := from.Facts(t.Context())
	require.NoError(t, err)
	// Two rows of the newest revision that has so many.
	row := func(main, sub int64) []byte {
		b := append(binary.BigEndian.AppendUint64(nil, uint64(main)), '_')
		return binary.BigEndian.AppendUint64(b, uint64(sub))
	}
	fired := false
	for main := facts.Revision; main > facts.CompactedRevision && !fired; main-- {
		a, b := row(main, 10), row(main, 40)
		i, j := bytes.Index(data, a), bytes.Index(data, b)
		if i < 0 || j < 0 {
			continue
		}
		fired = true
		mark := bytes.Repeat([]byte{0xff}, len(a))
		data = bytes.ReplaceAll(data, a, mark)
		data = bytes.ReplaceAll(data, b, a)
		data = bytes.ReplaceAll(data, mark, b)
	}
	if !fired {
		t.Fatal("no rows to exchange")
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(t.TempDir(), "swapped")
	require.NoError(t, os.WriteFile(path, append(data, sum[:]...), 0o600))
	damaged(t, run(t, open(t, path), DrillOptions{Members: 1}), report.KindBoot, "etcd ended its process while it booted")
}

// Promise 2: so it is when etcd ends its process over a request. A program that
// stands for it does as etcd does where a row that its index knows is missing.
func TestPromise2PanicWhileServing(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	serving := filepath.Join(t.TempDir(), "serving")
	script := `exec 4<&0; "$0" ` + MembersCommand + ` <&4 & while [ ! -e "$1" ]; do sleep 0.05; done
kill -9 $!; wait $!; rm "$1"; echo '{"level":"fatal","msg":"range failed to find revision pair"}' >&2; exit 1`
	check := run(t, plain(t), DrillOptions{Members: 1, Command: []string{"/bin/sh", "-c", script, self, serving}, Progress: func(phase string, _, _ int64) {
		if phase == PhaseServe {
			if err := os.WriteFile(serving, nil, 0o600); err != nil {
				t.Error(err)
			}
			// Until they are dead: all requests may be done before.
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				if _, err := os.Stat(serving); err != nil {
					return
				}
			}
			t.Error("the members are not dead after a minute")
		}
	}})
	damaged(t, check, report.KindServe, "range failed to find revision pair")
}

// Promise 3: bytes that are not those that were stored are damage at the build.
func TestPromise3DamagedBytes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(plain(t).Name())
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	path := filepath.Join(t.TempDir(), "flipped")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	damaged(t, run(t, open(t, path), DrillOptions{Members: 1}), report.KindBoot, "no cluster can be built from it")
}
