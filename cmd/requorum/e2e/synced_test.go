package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// A restore syncs the database that it has replayed, and moves it to its place only then: the replay
// itself syncs nothing.
func TestRestoreSyncsBeforeItPublishes(t *testing.T) {
	t.Parallel()
	strace := storetest.Program(t, "strace")
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	a := u.archive(t, c, 0, repo)
	u.awaitArchived(t, repo, 1) // with the first full snapshot
	c.Fill(t, storetest.Load{Keys: 300, ValueSize: 1000})
	u.awaitArchived(t, repo, applied(t, c, 0))
	a.stop(t)
	for name, members := range map[string]string{"moved": "m1=http://127.0.0.1:1", "copied": "m1=http://127.0.0.1:1,m2=http://127.0.0.1:2"} {
		trace, dir := filepath.Join(t.TempDir(), "trace"), t.TempDir()
		cmd := exec.Command(strace, "-f", "--seccomp-bpf", "-y", "-o", trace, "-e", "trace=fsync,rename,renameat,renameat2",
			u.Binary, "restore", "--repo", repo, "--initial-cluster", members, "--data-dir", filepath.Join(dir, "{name}"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		data, err := os.ReadFile(trace)
		require.NoError(t, err)
		syncs, published := 0, 0
		for line := range bytes.Lines(data) {
			switch s := string(line); {
			case strings.Contains(s, "fsync(") && strings.Contains(s, "/snap/db>"):
				if syncs++; published > 0 {
					t.Errorf("%s: a database is synced after members were published:\n%s", name, data)
				}
			case strings.Contains(s, "rename") && strings.Contains(s, `"member"`):
				published++
			}
		}
		if want := 1 + strings.Count(members, ","); syncs != want || published != want {
			t.Errorf("%s: %d databases were synced, %d members published, want %d of each:\n%s", name, syncs, published, want, data)
		}
	}
}
