package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// A repository that becomes read-only or full is a problem within two minutes, though the
// cluster is idle: the mark of each idle minute is a write.
func TestAgentRepositoryNotWritable(t *testing.T) {
	if testing.Short() {
		t.Skip("the mark is due after an idle minute")
	}
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.6", Members: 1})
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
	proxy := sinktest.NewFaultProxy(t, server.Endpoint)
	disk := func(t *testing.T) string { return filepath.Join(storetest.SmallDisk(t, "2m"), "repo") }
	for name, test := range map[string]struct {
		place       func(t *testing.T) string
		spoil, mend func(t *testing.T, place string)
		cause       string
	}{
		"read-only": {disk, func(t *testing.T, place string) {
			require.NoError(t, unix.Mount("", filepath.Dir(place), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}, func(t *testing.T, place string) {
			require.NoError(t, unix.Mount("", filepath.Dir(place), "", unix.MS_REMOUNT, ""))
		}, "read-only file system"},
		"full": {disk, func(t *testing.T, place string) {
			require.Error(t, os.WriteFile(filepath.Join(filepath.Dir(place), "much"), make([]byte, 3<<20), 0o600))
		}, func(t *testing.T, place string) {
			require.NoError(t, os.Remove(filepath.Join(filepath.Dir(place), "much")))
		}, "no space left"},
		"refused": {nil, func(t *testing.T, place string) {
			proxy.Add(sinktest.ProxyFault{Name: "access denied", Times: -1, Match: func(r *http.Request) bool { return r.Method == http.MethodPut || r.Method == http.MethodPost }, Do: sinktest.Refuse(403, "AccessDenied")})
		}, func(t *testing.T, place string) { proxy.Clear() }, "access denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
			place, repo := "", server.URLThrough(proxy.Endpoint, "backups", "etcd")
			if test.place != nil {
				place = test.place(t)
				repo = "file://" + place
			}
			a := u.agent(t, c, 0, repo)
			ready := func() error {
				if p := a.promises(t); !p.ready || !p.RPO.Known || p.Archive.Role != "writer" {
					return fmt.Errorf("%+v", p)
				}
				return nil
			}
			storetest.Eventually(t, "the agent is ready", ready)
			time.Sleep(5 * time.Second)
			test.spoil(t, place)
			spoilt := time.Now()
			storetest.Eventually(t, "the agent says that it cannot write", func() error {
				p := a.promises(t)
				err := fmt.Errorf("after %s: %+v", time.Since(spoilt), p)
				if time.Since(spoilt) > 100*time.Second {
					t.Fatal(err)
				}
				if i := slices.IndexFunc(p.Problems, func(o web.Problem) bool {
					return o.Severity == web.Critical && strings.Contains(o.Text, test.cause) && o.Next != ""
				}); p.ready || i < 0 {
					return err
				}
				return nil
			})
			test.mend(t, place)
			storetest.Eventually(t, "the agent is ready again", ready)
		})
	}
}
