package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// What verify proved is what list and show say, for as long as it holds.
func TestProvedIsListed(t *testing.T) {
	t.Parallel()
	u, cluster := newUser(t), storetest.Start(t, storetest.Options{Version: "3.7"})
	repo := u.Path("repo")
	older := u.backup(t, cluster.Endpoints(), repo)
	newer := u.backup(t, cluster.Endpoints(), repo)
	proof := func(id string, more ...string) string {
		t.Helper()
		e := u.Must(t, exitOK, append([]string{"list", "--output", "json", "--repo", repo}, more...)...)
		for _, b := range decode[catalogReport](t, e).Backups {
			if b.ID == id && b.Proved != nil {
				return fmt.Sprintf("%s %s", b.Proved.Status, b.Proved.Level)
			}
		}
		return "none"
	}
	expect := func(id, want string, more ...string) {
		t.Helper()
		if got := proof(id, more...); got != want {
			t.Errorf("backup %s: got %s, want %s", id, got, want)
		}
	}
	expect(newer.ID, "none")

	u.Must(t, exitOK, "verify", "--repo", repo)
	expect(newer.ID, "passed structure")
	expect(older.ID, "none")
	if e := u.Must(t, exitOK, "list", "--repo", repo); !strings.Contains(e.Stdout, "PROVED") || !strings.Contains(e.Stdout, "structure, now") && !strings.Contains(e.Stdout, " ago") {
		t.Error(e)
	}
	if e := u.Must(t, exitOK, "show", "--repo", repo); !strings.Contains(e.Stdout, "by the verdict of") {
		t.Error(e)
	}
	if e := u.Must(t, exitOK, "show", older.ID, "--repo", repo); !strings.Contains(e.Stdout, "requorum verify") {
		t.Error(e)
	}
	u.Must(t, exitOK, "verify", "--repo", repo, "--level", "checksum", "--no-verdict")
	expect(newer.ID, "passed structure")

	u.Must(t, exitOK, "verify", "all", "--repo", repo, "--level", "checksum")
	expect(older.ID, "passed checksum")
	expect(newer.ID, "passed structure")

	// Damaged since.
	object := filepath.Join(repo, newer.Object.Name)
	require.NoError(t, os.Chmod(object, 0o600))
	require.NoError(t, flip(object, newer.Object.StoredSize/2, 1))
	u.Must(t, exitDamaged, "verify", "--repo", repo)
	expect(newer.ID, "damaged ")
	if e := u.Must(t, exitOK, "list", "--repo", repo); !strings.Contains(e.Stdout, "DAMAGED, ") {
		t.Error(e)
	}

	// A verdict that was altered is named, and hides nothing else.
	names, err := filepath.Glob(filepath.Join(repo, "verdicts", "*", newer.ID, "*.json"))
	if err != nil || len(names) != 3 {
		t.Fatalf("%q, %v", names, err)
	}
	name := names[2]
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	altered := bytes.Replace(data, []byte(`"damaged"`), []byte(`"passed"`), 1)
	if bytes.Equal(altered, data) {
		t.Fatal("nothing was altered")
	}
	require.NoError(t, os.Chmod(name, 0o600))
	require.NoError(t, os.WriteFile(name, altered, 0o600))
	e := u.Must(t, exitDamaged, "list", "--output", "json", "--repo", repo)
	listed := decode[catalogReport](t, e)
	if len(listed.Unusable) != 1 || listed.Unusable[0].Object != "verdicts/"+newer.Timeline.String()+"/"+newer.ID+"/"+filepath.Base(name) || len(listed.Backups) != 2 {
		t.Errorf("%+v", listed.Unusable)
	}
	u.Must(t, exitOK, "show", older.ID, "--repo", repo)
}
