package archive

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// Promise 2, on a real file system: nothing can be written to the spool's disk, not
// even where the archive stands. With the repository back everything is stored, by
// the same process and by the next one.
func TestPromise2SpoolOnASmallDisk(t *testing.T) {
	for name, restart := range map[string]bool{"same process": false, "next process": true} {
		t.Run(name, func(t *testing.T) {
			dir := storetest.SmallDisk(t, "2m")
			inFakeTime(t, 1, func(t *testing.T, r *rig) {
				m := r.cluster.members[0]
				a := r.start(0, onDisk, func(c *Config) { c.SpoolDir = dir })
				r.load(10)
				r.gone.away.Store(true)
				r.load(20)
				fill(t, filepath.Join(dir, "of-others"))
				r.load(60)
				if !a.has(AlarmSpoolFull) || a.raised(AlarmRestarted) || a.State().Spooled == 0 {
					t.Fatalf("state %+v", a.State())
				}
				if restart {
					require.NoError(t, a.stop())
				}
				r.gone.away.Store(false)
				if restart {
					a = r.startWith(a.config)
				}
				r.load(20)
				r.waitArchived(a, m.last(), 10*time.Second)
				r.sameAs(1, m.entries)
				if s := a.State(); s.Spooled != 0 || a.raised(AlarmRestarted) || len(a.snapshots()) > 0 || len(r.openLog(1).Coverage()) != 1 {
					t.Errorf("state %+v, gaps %+v", s, a.snapshots())
				}
			})
		})
	}
}

// fill leaves no room on a file system.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	require.NoError(t, err)
	for _, size := range []int{1 << 16, 1} {
		for {
			if _, err = f.Write(bytes.Repeat([]byte{1}, size)); err != nil {
				break
			}
		}
	}
	if pe := err.(*os.PathError); pe.Err != syscall.ENOSPC { //nolint:errorlint // of Write, unwrapped
		t.Fatal(err)
	}
	require.NoError(t, f.Close())
}
