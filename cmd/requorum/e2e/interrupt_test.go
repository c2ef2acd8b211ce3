package e2e

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// silent is a server that takes connections and never answers; it reports each.
func silent(t *testing.T) (address string, connected <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	c := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}()
	return l.Addr().String(), c
}

// interrupt is Ctrl-C once something is under way. It wants 130, this sentence alone
// on standard error, and nothing left in the user's folder.
func interrupt(t *testing.T, u *user, underway func(r *storetest.Running), want string, args ...string) {
	t.Helper()
	r := u.Start(t, args...)
	underway(r)
	r.Signal(syscall.SIGINT)
	e := r.Wait(t)
	lines := strings.Split(strings.TrimSpace(e.Stderr), "\n")
	if e.Code != exitInterrupted || lines[len(lines)-1] != want || strings.Contains(e.Stdout+e.Stderr, "context canceled") {
		t.Errorf("want %q: %s", want, e)
	}
}

const silentBucket = "s3://bucket/prefix?path-style=true&endpoint=http://"

// TestInterruptedSaysWhatWasChanged is Ctrl-C while a command waits for somebody.
func TestInterruptedSaysWhatWasChanged(t *testing.T) {
	u := newUser(t, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_REGION=x")
	for _, c := range []struct {
		want string
		args func(at string) []string
	}{
		{"requorum: interrupted; no backup was stored", func(at string) []string {
			return []string{"backup", "--endpoints", "http://" + at, "--repo", "file://" + u.Path("repo"), "--dial-timeout", "10m", "--command-timeout", "10m"}
		}},
		{"requorum: interrupted; nothing was changed", func(at string) []string {
			return []string{"restore", "--repo", silentBucket + at, "--to-snapshot", "never.db"}
		}},
		{"requorum: interrupted; nothing was changed", func(at string) []string { return []string{"verify", "--repo", silentBucket + at} }},
	} {
		at, connected := silent(t) // its own: a connection of the one before is no sign
		interrupt(t, u, func(*storetest.Running) {
			select {
			case <-connected:
			case <-time.After(5 * time.Minute):
				t.Error("it has not connected after five minutes")
			}
		}, c.want, c.args(at)...)
	}
}

// TestInterruptedRestoreLeavesNothing is Ctrl-C in the middle of a restore: what it
// had built is gone, and it says so.
func TestInterruptedRestoreLeavesNothing(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	putSome(t, c, "/some/", 200)
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	u.Must(t, exitOK, "backup", "--endpoints", c.Endpoints()[0], "--repo", repo)
	require.NoError(t, os.Mkdir(u.Path("new"), 0o700))
	begun := func(*storetest.Running) {
		storetest.Eventually(t, "something is built", func() error {
			there, err := os.ReadDir(u.Path("new"))
			if err == nil && len(there) == 0 {
				err = errors.New("nothing is")
			}
			return err
		})
	}
	interrupt(t, u, begun, "requorum: interrupted; nothing was changed",
		"restore", "--repo", repo, "--limit-download", "1KiB", "--initial-cluster", "m1=http://127.0.0.1:1", "--data-dir", u.Path("new", "{name}"))
	if left, err := os.ReadDir(u.Path("new")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
