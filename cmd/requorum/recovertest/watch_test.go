package recovertest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/requorum/requorum/store/storetest"
)

// Watch looks at the data directories of hosts again and again, until its end: one in
// which an etcd would find no log, and begin an empty cluster, fails the test. What
// a recovery leaves there so that no etcd starts counts as a log, because etcd
// takes it for one.
func (s *Site) Watch(t testing.TB, hosts ...*Host) (end func()) {
	t.Helper()
	pause := 2 * time.Millisecond // who looks without a pause takes a processor from those that it watches
	if storetest.Soak() {
		pause = 200 * time.Microsecond
	}
	stop := make(chan struct{})
	looks := 0 // read after all
	var found []string
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(pause):
			}
			for _, h := range hosts {
				looks++
				if !hasLog(h.DataDir) {
					found = append(found, fmt.Sprintf("%s at %s", h.DataDir, time.Now().Format("15:04:05.000000")))
				}
			}
		}
	})
	var once sync.Once
	end = func() {
		once.Do(func() {
			close(stop)
			all.Wait()
			if looks == 0 {
				t.Error("no data directory was looked at")
			}
			if len(found) > 0 {
				t.Errorf("%d of %d looks found a data directory without a log, in which etcd would begin an empty cluster; first %s", len(found), looks, found[0])
			}
		})
	}
	t.Cleanup(end)
	return end
}

// hasLog reports whether an etcd finds a log in a data directory. A look into a member folder that another
// one takes the place of meanwhile says nothing: the old one may be removed under it.
func hasLog(dataDir string) bool {
	member := filepath.Join(dataDir, "member")
	for {
		before, gone := os.Stat(member)
		if logs, err := filepath.Glob(filepath.Join(member, "wal", "*.wal")); err != nil || len(logs) > 0 {
			return err == nil
		}
		if after, err := os.Stat(member); gone != nil && err != nil || gone == nil && err == nil && os.SameFile(before, after) {
			return false
		}
	}
}
