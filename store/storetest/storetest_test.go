package storetest_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// Each version starts, is filled, survives kill -9 and a restart with all that
// was written, and its snapshot starts as a new cluster with the same.
func TestServersOfEachVersion(t *testing.T) {
	for _, version := range storetest.Some(storetest.Versions()...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, TLS: version == "3.6"})
			filled := c.Fill(t, storetest.Load{Keys: 2000, Overwrites: 500, Deletes: 300, Leases: 5, Compact: true, Users: 2})
			if got := len(filled.Keys); got < 1700 {
				t.Fatalf("filled with %d keys", got)
			}
			writer := storetest.StartWriter(t, c.Client(t), "/writer/")
			writer.WaitFor(t, 20)
			writer.Stop()
			c.Kill(0)
			c.Restart(t, 0)
			c.WaitReady(t)
			require.NoError(t, filled.Compare(t.Context(), c.Client(t)), "after a kill")
			if version == "3.6" { // a copy without TLS is another test's
				return
			}
			file := filepath.Join(t.TempDir(), "snapshot.db")
			storetest.Etcdctl(t, version, "--endpoints", c.Endpoints()[0], "--user", storetest.RootUser+":"+storetest.RootPassword, "snapshot", "save", file)
			initial := storetest.InitialCluster(t, "a", "b")
			dirs := map[string]string{}
			for name := range map[string]bool{"a": true, "b": true} {
				dirs[name] = filepath.Join(t.TempDir(), name)
				storetest.Etcdutl(t, version, "snapshot", "restore", file, "--name", name, "--initial-cluster", initial,
					"--initial-advertise-peer-urls", peer(initial, name), "--data-dir", dirs[name])
			}
			copied := storetest.Start(t, storetest.Options{Version: version, DataDirs: dirs, InitialCluster: initial, Auth: true})
			require.NoError(t, filled.Compare(t.Context(), copied.Client(t)), "restored")
			client := copied.Client(t)
			_, err := client.Delete(t.Context(), c.Member(0).Name+"-none")
			require.NoError(t, err)
			for key := range filled.Keys {
				_, err = client.Delete(t.Context(), key)
				require.NoError(t, err)
				break
			}
			require.Error(t, filled.Compare(t.Context(), client), "a deleted key went unnoticed")
		})
	}
}

func peer(initialCluster, name string) string {
	for part := range strings.SplitSeq(initialCluster, ",") {
		if url, ok := strings.CutPrefix(part, name+"="); ok {
			return url
		}
	}
	return ""
}
