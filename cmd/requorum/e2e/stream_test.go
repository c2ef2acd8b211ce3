package e2e

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/requorum/requorum/store/storetest"
)

// TestBrokenStream: what comes of a snapshot stream that breaks, ends early,
// stalls or carries other bytes than the member sent: no backup, whoever is
// alone; the one of another member, where there is one.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	c := startPlain(t, "3.7", 2, 100, 64<<10)
	u := newUser(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	snapshotFrom := func(do func(n int, message []byte) ([]byte, error)) func(string, int, []byte) ([]byte, error) {
		return func(method string, n int, message []byte) ([]byte, error) {
			if !strings.HasSuffix(method, "/Snapshot") {
				return message, nil
			}
			return do(n, message)
		}
	}
	// The messages hold 32 KiB each, and the last one the SHA-256.
	for _, x := range []struct {
		name string
		do   func(n int, message []byte) ([]byte, error)
		says string
	}{
		{"breaks midway", func(n int, m []byte) ([]byte, error) {
			if n == 50 {
				return nil, status.Error(codes.Unavailable, "broken on purpose")
			}
			return m, nil
		}, "broken on purpose"},
		{"ends early as if it were whole", func(n int, m []byte) ([]byte, error) {
			if n == 50 {
				return nil, io.EOF
			}
			return m, nil
		}, "ended"},
		{"ends before its hash", func(_ int, m []byte) ([]byte, error) {
			if len(m) < 1000 {
				return nil, io.EOF
			}
			return m, nil
		}, "SHA-256"},
		{"has a flipped bit", func(n int, m []byte) ([]byte, error) {
			if n == 50 {
				m = slices.Clone(m)
				m[len(m)/2] ^= 1
			}
			return m, nil
		}, "SHA-256"},
		{"stalls", func(n int, m []byte) ([]byte, error) {
			if n == 50 {
				<-hang
				return nil, errors.New("over")
			}
			return m, nil
		}, "stalled"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			follower := 1 - c.Leader(t)
			broken := startSwitch(t, func(string) string { return c.Member(follower).ClientURL })
			broken.tamper = snapshotFrom(x.do)
			repo := filepath.Join(t.TempDir(), "repo")
			e := u.Must(t, exitFailed, append(backupArgs([]string{broken.url}, repo), "--stall-timeout", "8s")...)
			if broken.count("/Snapshot") == 0 || !strings.Contains(e.Stderr, x.says) || !strings.Contains(e.Stderr, broken.url) {
				t.Errorf("want the endpoint and %q: %s", x.says, e)
			}
			expectNone(t, u, repo, e)
			e = u.Must(t, exitOK, append(backupArgs([]string{broken.url, c.Member(1 - follower).ClientURL}, repo), "--stall-timeout", "8s")...)
			// A follower is read first: it may lead by now, as elections come with a busy machine.
			if r := decode[backupReport](t, e); c.Leader(t) != follower && (len(r.Skipped) != 1 || r.Skipped[0].Endpoint != broken.url) {
				t.Errorf("the broken one is not named: %s", e)
			}
			checked := map[string]bool{}
			if expectListedRestore(t, u, repo, checked, x.name); len(checked) != 1 {
				t.Errorf("%d backups are listed", len(checked))
			}
		})
	}
}

// TestInterrupted: SIGINT and SIGTERM end a backup and a restore cleanly at any
// moment: exit code 130 and nothing half-done, or done.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	f := startFaults(t)
	disk := f.u.Path("repo")
	repos := []string{disk, f.server.URL("backups", "etcd")}
	var whole time.Duration
	for _, repo := range repos {
		whole = f.u.Must(t, exitOK, backupArgs(f.cluster.Endpoints(), repo)...).Took
	}
	interrupted := 0
	for i, rounds := 0, short(4, 20); i < rounds; i++ {
		sig := []os.Signal{os.Interrupt, syscall.SIGTERM}[i%2]
		repo := repos[i/2%2]
		before := len(f.u.list(t, repo).Backups)
		command := f.u.Start(t, backupArgs(f.cluster.Endpoints(), repo)...)
		e := interruptAfter(t, command, sig, whole*time.Duration(i+1)/time.Duration(rounds+1))
		least := 0
		if e.Code == exitInterrupted {
			interrupted++
		} else {
			least = 1
		}
		// The manifest may have been written when the signal came.
		r := f.u.list(t, repo)
		if more := len(r.Backups) - before; more < least || more > 1 || len(r.Incomplete) != 0 {
			t.Errorf("listed: %d backups, before %d, incomplete %v; after %s", len(r.Backups), before, r.Incomplete, e)
		}
		if up := f.server.Uploads(t, "backups"); len(up) != 0 {
			t.Errorf("uploads that nobody will complete: %v; after %s", up, e)
		}

		dir := t.TempDir()
		args := []string{"restore", "--repo", disk, "--initial-cluster", "m1=http://127.0.0.1:2380,m2=http://127.0.0.1:2382", "--data-dir", dataDirs(dir)}
		command = f.u.Start(t, args...)
		e = interruptAfter(t, command, sig, whole*time.Duration(i+1)/time.Duration(2*rounds))
		if e.Code == exitInterrupted {
			interrupted++
			if left := tree(t, dir); len(left) != 0 {
				t.Errorf("left %v: %s", left, e)
			}
			f.u.Must(t, exitOK, args...)
		}
	}
	if interrupted == 0 {
		t.Error("no run was interrupted before its end")
	}
	checked := map[string]bool{}
	for _, repo := range repos {
		expectListedRestore(t, f.u, repo, checked, "interrupted")
	}
}

// interruptAfter sends a signal after a while.
func interruptAfter(t testing.TB, r *storetest.Running, sig os.Signal, after time.Duration) ended {
	t.Helper()
	e := r.WaitSignalled(t, sig, after)
	// A signal before the program listens for one ends it at once.
	if e.Code == -1 {
		e.Code = exitInterrupted
	}
	if e.Code != exitOK && e.Code != exitInterrupted {
		t.Errorf("exit code %d after a signal: %s", e.Code, e)
	}
	return e
}
