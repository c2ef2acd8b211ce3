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
	"github.com/requorum/requorum/store/storetest"
)

// TestAskedHostsLearnNoSecret: --write-config takes hosts from a repository, which
// anybody may have written: a question to them holds no key and no credential.
func TestAskedHostsLearnNoSecret(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SECRETVALUE")
	heard, script, identity := filepath.Join(dir, "heard"), filepath.Join(dir, "host"), filepath.Join(dir, "identity.txt")
	text := fmt.Sprintf("#!/bin/sh\necho '{\"requorum\":%q}'\nhead -n 1 >>%s\n", version, heard)
	require.NoError(t, storetest.WriteProgram(script, []byte(text), 0o700))
	require.NoError(t, os.WriteFile(identity, []byte("SECRETKEY\n"), 0o600))
	cfg, err := recovery.ParseConfig([]byte(fmt.Sprintf(`cluster: c
repositories: ["s3://bucket/prefix"]
identity-files: [%q]
recipients: [age1x]
defaults: {data-dir: /var/lib/etcd, kind: systemd, systemd: {unit: etcd.service}}
hosts: [{member: m1, peer-urls: ["https://10.0.0.1:2380"], run: %q}]
`, identity, script)), filepath.Join(dir, "cluster.yaml"))
	require.NoError(t, err)
	if answers := askHosts(t.Context(), cfg); len(answers) != 1 || answers[0].err == nil {
		t.Errorf("%+v", answers)
	}
	data, err := os.ReadFile(heard)
	if err != nil || !strings.Contains(string(data), "m1") {
		t.Fatalf("%q, %v: nothing was asked", data, err)
	}
	if strings.Contains(string(data), "SECRET") {
		t.Errorf("the host heard %s", data)
	}
	// What would be sent is seen here.
	line := recovery.Lines(cfg, version, []string{"SECRETKEY"}, nil)[0]
	defer line.Close()
	_, err = line.As("run").Member(t.Context())
	require.Error(t, err, "no error")
	if data, err := os.ReadFile(heard); err != nil || !strings.Contains(string(data), "SECRETKEY") {
		t.Errorf("%q, %v: the test would see no secret", data, err)
	}
}

// TestHostsAreNoOptions: a repository's peer URL does not become an option of the command
// that reaches a host, with --run or without.
func TestHostsAreNoOptions(t *testing.T) {
	for _, run := range []string{"", "ssh {host}"} {
		o := &recoverOptions{write: writeFlags{cluster: "c", kind: "systemd", run: run}}
		text := clusterFileText(o, []recovery.HostConfig{{Member: "m1", PeerURLs: []string{"https://-oProxyCommand=x:2380"}}})
		_, err := recovery.ParseConfig([]byte(text), "c.yaml")
		require.ErrorContains(t, err, "is no host", "--run %q", run)
	}
}

// TestStoredMembers: the hosts are those of the newest full snapshot, in any repository, of
// what restore takes; of separate clusters one has to be named by its ID.
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
	const one, both, a = "--repo ./one", "--repo ./one --repo ./two", "000000000000000a"
	// writes wants the cluster and the member that are written, or else a text of the error.
	writes := func(args string, want ...string) {
		t.Helper()
		e := runHere(t.Context(), append(strings.Fields("recover --write-config c.yaml --kind systemd --run false"), strings.Fields(args)...)...)
		said := e.stderr
		if cfg, err := recovery.ReadConfig("c.yaml"); err == nil {
			said += cfg.Cluster + " " + cfg.Hosts[0].Member
			require.NoError(t, os.Remove("c.yaml"))
		} else if e.code != exitUsage {
			t.Errorf("%+v", e)
		}
		for _, w := range want {
			require.Contains(t, said, w, args)
		}
	}
	writes(both, "no host is known")
	full("one", 0xa, 1, nil)
	full("two", 0xa, 2, nil)
	writes(one, a+" m1")
	for _, name := range []string{a, "production", "cafe"} { // which is hexadecimal
		writes(both+" --cluster "+name, name+" m2")
	}
	// What goes on from another is what restore takes.
	full("one", 0xb, 3, &repository.Branch{Timeline: repository.TimelineID{ClusterID: 0xa, N: 1}, RaftIndex: 1})
	writes(one, "000000000000000b m3")
	writes(both, "--cluster ID", "timeline 000000000000000a-1: members m2", "timeline 000000000000000b-1: members m3")
	writes(one+" --cluster a", "a m1")
	full("one", 0xc, 4, nil)
	writes(one+" --cluster production", "--cluster ID", "timeline 000000000000000b-1: members m3", "timeline 000000000000000c-1: members m4")
	writes(both+" --cluster c", "c m4")
	writes(one+" --cluster production --host m9=10.0.0.9", "production m9")
	// What cannot be read is said, and stops nothing.
	full("two", 0xa, 5, nil)
	require.NoError(t, os.WriteFile(full("two", 0xa, 6, nil), []byte("x"), 0o600))
	writes("--repo ./two --repo ./missing", a+" m5", "/missing", "20260101T060000Z")
}

// TestClusterFileText: what is written is read again, whatever stands in it.
func TestClusterFileText(t *testing.T) {
	var o recoverOptions
	o.write = writeFlags{cluster: "on", kind: "systemd", recipients: []string{"age1x"}, cacert: "/a b/\"x\".crt", run: "ssh {host} sudo -n"}
	o.repo.urls, o.identities.files = []string{"s3://b/p?region=x&y=z"}, []string{"/id: 1"}
	text := clusterFileText(&o, []recovery.HostConfig{
		{Member: "m1", PeerURLs: []string{"https://[fd00::1]:2380"}, ClientURLs: []string{"https://a:2379"}},
		{Member: "0", PeerURLs: []string{"https://b:2380"}},
	})
	got, err := recovery.ParseConfig([]byte(text), "/c/cluster.yaml")
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if got.Cluster != "on" || got.Etcd.CACert != `/a b/"x".crt` || got.IdentityFiles[0] != "/id: 1" || got.Hosts[0].ClientURLs[0] != "https://a:2379" ||
		got.Hosts[1].Member != "0" || strings.Join(got.Hosts[0].Command(), " ") != "ssh fd00::1 sudo -n" || got.Hosts[1].DataDir != "/var/lib/etcd" {
		t.Errorf("%+v\n%s", got, text)
	}
}
