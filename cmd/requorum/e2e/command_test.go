package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// short is a count for `make test`, or one for `make soak`.
func short(n, long int) int {
	if storetest.Soak() {
		return long
	}
	return n
}

// user runs the binary as somebody at a shell would, with an environment of
// their own.
type user struct {
	binary string
	env    []string
	dir    string // for relative paths, and everything the test needs
	nobody bool   // with the rights of a user who owns no file, where the tester is root
	keys   string // more of the part repository in the configuration of its agents
}

// run runs a command line in the environment of the test itself.
func run(t testing.TB, args ...string) ended {
	t.Helper()
	return (&user{binary: storetest.Requorum(t)}).run(t, args...)
}

// newUser has nothing of the tester's environment that steers requorum.
func newUser(t testing.TB, env ...string) *user {
	t.Helper()
	dir := t.TempDir()
	return &user{binary: storetest.Requorum(t), dir: dir, env: storetest.Environment(dir, env...)}
}

func (u *user) path(elem ...string) string { return filepath.Join(append([]string{u.dir}, elem...)...) }

// ended is how a command ended.
type ended struct {
	args           []string
	code           int // -1: killed
	stdout, stderr string
	took           time.Duration
	memory         int64 // bytes in memory at most
}

func (e ended) String() string {
	return fmt.Sprintf("requorum %s: exit code %d after %s\n%s%s", strings.Join(e.args, " "), e.code, e.took.Round(time.Millisecond), e.stdout, e.stderr)
}

// run runs a command to its end.
func (u *user) run(t testing.TB, args ...string) ended {
	t.Helper()
	return u.start(t, args...).wait(t)
}

// must wants the exit code.
func (u *user) must(t testing.TB, code int, args ...string) ended {
	t.Helper()
	e := u.run(t, args...)
	if e.code != code {
		t.Fatalf("exit code %d, want %d: %s", e.code, code, e)
	}
	return e
}

// running is a command under way.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	started        time.Time
}

func (u *user) start(t testing.TB, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.Command(u.binary, args...), started: time.Now()}
	r.cmd.Dir, r.cmd.Env = u.dir, u.env
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.cmd.SysProcAttr = storetest.WithParent(syscall.SIGKILL)
	if u.nobody && os.Getuid() == 0 {
		r.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	require.NoError(t, r.cmd.Start())
	return r
}

func (r *running) wait(t testing.TB) ended {
	t.Helper()
	err := r.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	e := ended{args: r.cmd.Args[1:], code: r.cmd.ProcessState.ExitCode(), stdout: r.stdout.String(), stderr: r.stderr.String(), took: time.Since(r.started)}
	if usage, ok := r.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		e.memory = usage.Maxrss << 10
	}
	if strings.Contains(e.stderr, "goroutine ") {
		t.Errorf("it panicked: %s", e)
	}
	return e
}

// killAfter is kill -9 after a while; true when that came before the end.
func (r *running) killAfter(t testing.TB, after time.Duration) bool {
	t.Helper()
	timer := time.AfterFunc(after, func() { _ = r.cmd.Process.Kill() }) // it may have ended
	defer timer.Stop()
	e := r.wait(t)
	if e.code > 0 {
		t.Fatalf("it failed before it was killed: %s", e)
	}
	return e.code < 0
}

// killOnce is kill -9 a while after something has come to be: a moment that
// random times seldom hit.
func (r *running) killOnce(t testing.TB, there func() bool, after time.Duration) bool {
	t.Helper()
	over := make(chan struct{})
	defer close(over)
	go func() {
		for !there() {
			select {
			case <-over:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
		time.Sleep(after)
		_ = r.cmd.Process.Kill() // it may have ended
	}()
	return r.killAfter(t, time.Minute)
}

// decode reads what --output json printed.
func decode[T any](t testing.TB, e ended) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(e.stdout), &v); err != nil {
		t.Fatalf("%v in the output of %s", err, e)
	}
	return v
}

// backup takes a backup to repositories and gives its manifest in each.
func (u *user) backup(t testing.TB, endpoints []string, repos []string, more ...string) []*snapshot.Manifest {
	t.Helper()
	e := u.must(t, exitOK, append(backupArgs(endpoints, repos), more...)...)
	var all []*snapshot.Manifest
	for _, o := range decode[backupReport](t, e).Repositories {
		all = append(all, o.Backup)
	}
	return all
}

func backupArgs(endpoints []string, repos []string) []string {
	args := []string{"backup", "--output", "json", "--endpoints", strings.Join(endpoints, ",")}
	for _, r := range repos {
		args = append(args, "--repo", r)
	}
	return args
}

// list is what `requorum list` shows; nothing where there is no repository.
func (u *user) list(t testing.TB, repo string) catalogReport {
	t.Helper()
	return listed(t, u.run(t, "list", "--output", "json", "--repo", repo))
}

func listed(t testing.TB, e ended) catalogReport {
	t.Helper()
	if e.code == exitFailed && strings.Contains(e.stderr, "no repository there") {
		return catalogReport{}
	}
	if e.code != exitOK {
		t.Fatalf("exit code %d: %s", e.code, e)
	}
	return decode[catalogReport](t, e)
}

// needs skips a test, loudly, for want of something.
func needs(t testing.TB, have bool, what string) {
	t.Helper()
	if !have {
		storetest.Unavailable(t, what)
	}
}

// debianZstd is the zstd that everybody has: a second reader of what requorum
// writes.
func debianZstd(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("zstd")
	needs(t, err == nil, "zstd is not installed (apt-get install zstd)")
	return path
}

// unpack makes a plain snapshot file of a stored one with zstd alone.
func unpack(t testing.TB, stored, plain string) {
	t.Helper()
	if out, err := exec.Command(debianZstd(t), "-q", "-d", stored, "-o", plain).CombinedOutput(); err != nil {
		t.Fatalf("zstd -d %s: %v\n%s", stored, err, out)
	}
}

// tree lists all files and folders below a folder; none where it is not there.
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && path != dir {
			rel, _ := filepath.Rel(dir, path) // path is below dir
			all = append(all, rel)
		}
		return err
	})
	require.NoError(t, err)
	return all
}
