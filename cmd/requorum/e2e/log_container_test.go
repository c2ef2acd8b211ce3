package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// boxed runs a command in a root folder that holds the binary and nothing else,
// with the data directory mounted read-only and the other folders to be written
// to, as docs/agent.md has it for containers. The network is the host's.
const boxed = `set -e
root=$1 data=$2 out=$3; shift 3
mount --make-rprivate /
mount --bind "$data" "$root/data"
mount -o remount,ro,bind "$data" "$root/data"
mount --bind "$out" "$root/out"
exec chroot "$root" /requorum "$@"
`

// TestLogInAContainer: beside a running member an archiver needs no more than the
// static binary, the member's directory for reading, and a folder for its spool.
func TestLogInAContainer(t *testing.T) {
	storetest.NeedRoot(t) // to mount in a namespace of its own
	for _, tool := range []string{"unshare", "mount", "chroot"} {
		storetest.Program(t, tool)
	}
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	u := newUser(t)
	root, out := u.Path("root"), u.Path("out")
	for _, dir := range []string{out, filepath.Join(root, "data"), filepath.Join(root, "out")} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}
	data, err := os.ReadFile(u.Binary)
	require.NoError(t, err)
	require.NoError(t, storetest.WriteProgram(filepath.Join(root, "requorum"), data, 0o700))
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		needs(t, false, "no mount namespace can be made: "+string(out))
	}
	inside := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", boxed, "sh", root, c.Member(0).DataDir, out}, args...)...)
		cmd.Env = []string{}
		text, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, text)
		}
		return string(text)
	}
	acks := putSome(t, c, "/some/", 20)
	inside(exitOK, "agent", "--once", "--data-dir", "/data", "--spool-dir", "/out/spool", "--endpoints", c.Endpoints()[0], "--repo", "file:///out/repo")
	more := putSome(t, c, "/more/", 20)
	inside(exitOK, "agent", "--once", "--data-dir", "/data", "--spool-dir", "/out/spool", "--endpoints", c.Endpoints()[0], "--repo", "file:///out/repo")
	expectAcks(t, u.rebuild(t, "--repo", "file://"+filepath.Join(out, "repo"), "--latest"), "the archive", append(acks, more...))
	// That the mount is what it is meant to be.
	if text := inside(exitFailed, "agent", "--once", "--data-dir", "/data", "--spool-dir", "/data/spool", "--endpoints", c.Endpoints()[0], "--repo", "file:///out/repo"); !strings.Contains(text, "read-only file system") {
		t.Errorf("a spool in the data directory: %s", text)
	}
}
