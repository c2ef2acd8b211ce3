package restore

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// startRefused starts a server and wants it to end by itself, without serving.
// It returns what the server said.
func startRefused(t *testing.T, version string, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, storetest.Binary(t, version, "etcd"), flags...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("etcd %s %s runs:\n%s", version, flags, last(out))
	}
	require.Error(t, err, "etcd %s %s ended without an error:\n%s", version, flags, last(out))
	return string(out)
}

func last(b []byte) string {
	s := string(b)
	return s[max(0, len(s)-3000):]
}

// TestPromise1BlockedMemberIsRefused: no etcd starts from a member that is
// blocked, whatever lies beside the blocker, and none gets rid of it.
func TestPromise1BlockedMemberIsRefused(t *testing.T) {
	for _, version := range []string{"3.5", "3.6", "3.7"} {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			req := three(small(t), dir)
			p := plan(t, req)
			res, err := Execute(t.Context(), p, req.Image, ExecOptions{})
			require.NoError(t, err)
			m := res.Members[0]
			wal := filepath.Join(m.DataDir, "member", "wal")
			refused := func(what string) {
				t.Helper()
				require.NoError(t, writeBlocker(wal, newBlocker(p, p.Members[0])))
				out := startRefused(t, version, append(m.Flags, "--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:1", "--listen-peer-urls=http://127.0.0.1:0")...)
				if b, err := readBlocker(wal); err != nil || b == nil || b.Plan != p.ID {
					t.Errorf("%s: the blocker is gone or changed: %v %v\n%s", what, b, err, last([]byte(out)))
				}
				if !strings.Contains(out, "crc mismatch") {
					t.Errorf("%s: refused for another reason than the blocker:\n%s", what, last([]byte(out)))
				}
			}
			refused("beside segment 0")
			segment := filepath.Join(wal, firstSegment)
			later := filepath.Join(wal, "0000000000000005-0000000000000001.wal")
			require.NoError(t, os.Rename(segment, later))
			refused("beside a later segment")
			require.NoError(t, os.Remove(later))
			refused("alone")
			require.NoError(t, os.RemoveAll(filepath.Join(m.DataDir, "member", "snap")))
			refused("alone, without a database")
		})
	}
}
