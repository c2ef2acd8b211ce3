package structure

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/requorum/requorum/store/storetest"
)

// Promise 7: what etcdutl of each version restores is sound, also with a raised
// revision, before a member starts and finishes the compaction that it schedules.
func TestRestoredIsSound(t *testing.T) {
	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	m := sample(t)
	must(t, os.WriteFile(snapshot, m.close(), 0o600))
	for _, version := range storetest.Versions() {
		for name, args := range map[string][]string{"as it was": nil, "raised": {"--bump-revision", "1000000", "--mark-compacted"}} {
			t.Run(version+" "+name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "restored")
				storetest.Etcdutl(t, version, append([]string{"snapshot", "restore", snapshot, "--skip-hash-check", "--data-dir", dir}, args...)...)
				db, err := os.ReadFile(filepath.Join(dir, "member/snap/db"))
				must(t, err)
				r := sound(t, db, Options{})
				if raised := r.Facts.Revision > 1_000_000; raised != (args != nil) || len(r.Facts.Members) != 1 {
					t.Errorf("%+v", r.Facts)
				}
			})
		}
	}
}
