package verify_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// A member that is started while its files are read gives torn pages and a log that
// does not fit them. That is no damage, whether it still runs at the end of the
// step, or was stopped again meanwhile; what was found before is.
func TestMemberStartedMeanwhile(t *testing.T) {
	m := newMember(t)
	m.cluster.Kill()
	db := filepath.Join(m.dir, "member", "snap", "db")
	whole, err := os.ReadFile(db)
	require.NoError(t, err)
	for _, test := range []struct {
		name string
		keep bool // it runs on
		want string
		text string
	}{
		{"runs", true, "checksum passed, checksum passed, structure unchecked, replay unchecked, drill unchecked", "did not stay stopped"},
		{"stopped again", false, "checksum passed, checksum passed, structure unchecked, replay unchecked, drill unchecked", "changed while they were read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(db, whole, 0o600))
			// The kernel's clock for files stands still for some milliseconds at a time.
			require.NoError(t, os.Chtimes(db, time.Time{}, time.Now().Add(-time.Minute)))
			var running *bolt.DB
			start := func(phase string, done, _ int64) {
				if running != nil || !strings.HasPrefix(phase, "check the structure") {
					return
				}
				var err error
				running, err = bolt.Open(db, 0o600, nil)
				require.NoError(t, err)
				require.NoError(t, running.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("x"), []byte("y")) }))
				f, err := os.OpenFile(db, os.O_RDWR, 0)
				require.NoError(t, err)
				defer f.Close()
				if _, err := f.WriteAt(make([]byte, len(whole)-8192), 8192); err != nil { // as torn as can be
					t.Fatal(err)
				}
				if !test.keep {
					require.NoError(t, running.Close())
				}
			}
			r, err := verify.DataDir(t.Context(), m.dir, "", verify.Request{Level: report.Drill, ScratchDir: t.TempDir(), Progress: start})
			require.NoError(t, err)
			if running == nil {
				t.Fatal("the member was not started")
			}
			if test.keep {
				require.NoError(t, running.Close())
			}
			if got := statuses(r); got != test.want {
				t.Errorf("%s, want %s: %+v", got, test.want, r.Checks)
			}
			for _, c := range r.Checks {
				if c.Status == report.Unchecked && !strings.Contains(c.Reason, test.text) {
					t.Errorf("%s: reason %q", c.Level, c.Reason)
				}
			}
			if len(r.Findings()) > 0 {
				t.Errorf("damage: %+v", r.Findings())
			}
		})
	}
}
