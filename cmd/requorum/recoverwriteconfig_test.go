package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// TestHostsAreNoOptions: a repository's peer URL does not become an option of the command
// that reaches a host.
func TestHostsAreNoOptions(t *testing.T) {
	text := clusterFileText(&recoverOptions{}, "c", "", []snapshot.Member{{Name: "m1", PeerURLs: []string{"https://-oProxyCommand=x:2380"}}})
	_, err := recovery.ParseConfig([]byte(text), "c.yaml")
	require.ErrorContains(t, err, "is no host")
}

// TestStoredMembers: the hosts are those of the newest full snapshot, in any repository, of
// what a recovery takes. Which of separate histories is meant is left to the operator.
func TestStoredMembers(t *testing.T) {
	t.Chdir(t.TempDir())
	repos := map[string]*repository.Repository{}
	for _, name := range []string{"one", "two"} {
		sink, err := disk.New(name)
		require.NoError(t, err)
		defer sink.Close()
		repos[name], err = repository.Init(t.Context(), sink, time.Now())
		require.NoError(t, err)
	}
	// full stores a full snapshot of a cluster with one member, of that hour.
	full := func(in string, cluster uint64, hour int, parent *repository.Branch) (manifest string) {
		r, timeline, at := repos[in], repository.TimelineID{ClusterID: cluster, N: 1}, time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC)
		_, err := r.EnsureTimeline(t.Context(), repository.Timeline{ID: timeline, Created: at, Reason: "a test", Parent: parent})
		require.NoError(t, err)
		m := &snapshot.Manifest{Format: 1, Kind: snapshot.KindFull, ID: at.Format("20060102T150405Z") + "-aaaaaa", Timeline: timeline, Started: at, Finished: at,
			Facts: snapshot.Facts{RaftIndex: uint64(hour), Members: []snapshot.Member{{Name: fmt.Sprintf("m%d", hour), PeerURLs: []string{"https://10.0.0.1:2380"}}}}}
		m.Object = snapshot.StoredObject{Name: repository.SnapshotName(timeline, m.ID, 1, false), Encoding: codec.Encoding{StoredSize: 1}}
		_, err = sinks.Put(t.Context(), r.Sink(), m.Object.Name, []byte("x"), sinks.CreateOptions{})
		require.NoError(t, err)
		manifest = repository.ManifestName(timeline, m.ID)
		require.NoError(t, r.WriteDocument(t.Context(), manifest, m))
		return filepath.Join(in, manifest)
	}
	const one, both = "--repo ./one", "--repo ./one --repo ./two"
	// writes wants the cluster and the member that are written, or else a text of the error.
	several := false // histories, which no archived log connects
	writes := func(args string, code int, want ...string) {
		t.Helper()
		e := runHere(t.Context(), append(strings.Fields("recover --write-config c.yaml"), strings.Fields(args)...)...)
		require.Equal(t, code, e.code, "%s: %+v", args, e)
		said := e.stdout + e.stderr
		text, _ := os.ReadFile("c.yaml")
		require.Equal(t, several, strings.Contains(string(text), "other histories"), args)
		if cfg, err := recovery.ReadConfig("c.yaml"); err == nil {
			said += cfg.Cluster + " " + cfg.Hosts[0].Member
			require.NoError(t, os.Remove("c.yaml"))
		}
		for _, w := range want {
			require.Contains(t, said, w, args)
		}
	}
	writes(both, exitNothing, "name more data directories, or a repository")
	full("one", 0xa, 1, nil)
	full("two", 0xa, 2, nil)
	writes(one, exitOK, "000000000000000a m1")
	several = true
	writes("--repo ./two --repo ./one", exitOK, "000000000000000a m2")
	// What goes on from another is what restore takes.
	full("one", 0xb, 3, &repository.Branch{Timeline: repository.TimelineID{ClusterID: 0xa, N: 1}, RaftIndex: 1})
	writes(one, exitOK, "000000000000000b m3")
	full("one", 0xc, 4, nil)
	writes(one, exitOK, "000000000000000c m4")
	several = false
	writes(one+" --source archive:000000000000000b-1", exitOK, "000000000000000b m3")
	// What cannot be read is said, and stops nothing.
	full("two", 0xa, 5, nil)
	require.NoError(t, os.WriteFile(full("two", 0xa, 6, nil), []byte("x"), 0o600))
	writes("--repo ./two --repo ./missing", exitOK, "000000000000000a m5", "/missing")
}

// TestClusterFileText: what is written is read again, whatever stands in it, and what the
// operator has to fill in is a fault until then.
func TestClusterFileText(t *testing.T) {
	var o recoverOptions
	o.repo.urls, o.identities.files = []string{"s3://b/p?region=x&y=z"}, []string{"/id: \"1\""}
	text := clusterFileText(&o, "on", "which?", []snapshot.Member{
		{Name: "m1", PeerURLs: []string{"https://[fd00::1]:2380"}, ClientURLs: []string{"https://a:2379"}},
		{Name: "0", PeerURLs: []string{"https://b:2380"}},
	})
	_, err := recovery.ParseConfig([]byte(text), "/c/cluster.yaml")
	require.ErrorContains(t, err, "give recipients")
	text = strings.Replace(text, "# recipients: [age1…]", "recipients: [age1x]", 1)
	got, err := recovery.ParseConfig([]byte(text), "/c/cluster.yaml")
	require.NoError(t, err, text)
	if got.Cluster != "on" || got.IdentityFiles[0] != `/id: "1"` || got.Hosts[0].ClientURLs[0] != "https://a:2379" ||
		got.Hosts[1].Member != "0" || !strings.HasSuffix(strings.Join(got.Hosts[0].Command(), " "), " root@fd00::1") || got.Hosts[1].DataDir != "/var/lib/etcd" {
		t.Errorf("%+v\n%s", got, text)
	}
}
