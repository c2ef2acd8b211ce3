package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
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
	storetest.Operator
	keys     string // more of the part repository in the configuration of its agents
	takeover string // of its agents; 2s where empty
}

type ended = storetest.Ended

// run runs a command line in the environment of the test itself.
func run(t testing.TB, args ...string) ended {
	t.Helper()
	return (&storetest.Operator{Binary: storetest.Requorum(t)}).Run(t, args...)
}

// newUser has nothing of the tester's environment that steers requorum.
func newUser(t testing.TB, env ...string) *user {
	t.Helper()
	return &user{Operator: *storetest.NewOperator(t, env...)}
}

// decode reads what --output json printed.
func decode[T any](t testing.TB, e ended) (v T) {
	t.Helper()
	e.Decode(t, &v)
	return v
}

// backup takes a backup to a repository and returns its manifest.
func (u *user) backup(t testing.TB, endpoints []string, repo string, more ...string) *snapshot.Manifest {
	t.Helper()
	return decode[backupReport](t, u.Must(t, exitOK, append(backupArgs(endpoints, repo), more...)...)).Backup
}

func backupArgs(endpoints []string, repo string) []string {
	return []string{"backup", "--output", "json", "--endpoints", strings.Join(endpoints, ","), "--repo", repo}
}

// list is what `requorum list` shows; nothing where there is no repository.
func (u *user) list(t testing.TB, repo string) catalogReport {
	t.Helper()
	return listed(t, u.Run(t, "list", "--output", "json", "--repo", repo))
}

func listed(t testing.TB, e ended) catalogReport {
	t.Helper()
	if e.Code == exitFailed && strings.Contains(e.Stderr, "no repository there") {
		return catalogReport{}
	}
	if e.Code != exitOK && e.Code != exitDamaged {
		t.Fatalf("exit code %d: %s", e.Code, e)
	}
	report := decode[catalogReport](t, e)
	if open := slices.ContainsFunc(report.Ranges, func(r walreplay.Range) bool { return r.Damage }); open != (e.Code == exitDamaged) {
		t.Fatalf("exit code %d, a gap that is damage: %v: %s", e.Code, open, e)
	}
	return report
}

// needs skips a test, loudly, for want of something.
func needs(t testing.TB, have bool, what string) {
	t.Helper()
	if !have {
		storetest.Unavailable(t, what)
	}
}

// unpack makes a plain snapshot file of a stored one with zstd alone, which everybody has.
func unpack(t testing.TB, stored, plain string) {
	t.Helper()
	if out, err := exec.Command(storetest.Program(t, "zstd"), "-q", "-d", stored, "-o", plain).CombinedOutput(); err != nil {
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
