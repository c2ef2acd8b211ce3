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
	// What would be told is seen here.
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

// TestPickStored: of several clusters one has to be named; of one the newest snapshot in
// any repository counts.
func TestPickStored(t *testing.T) {
	at := func(hours int) time.Time { return time.Unix(0, 0).Add(time.Duration(hours) * time.Hour) }
	all := []storedCluster{{id: 0xa, at: at(1), in: "one"}, {id: 0xa, at: at(2), in: "two"}}
	for _, name := range []string{"", "production", "000000000000000a"} {
		if c, err := pick(all, name); err != nil || c == nil || c.in != "two" {
			t.Errorf("%q: %+v %v", name, c, err)
		}
	}
	all = append(all, storedCluster{id: 0xb, at: at(3), members: []snapshot.Member{{Name: "m1"}}})
	for _, name := range []string{"", "production"} {
		_, err := pick(all, name)
		require.ErrorContains(t, err, "000000000000000b (m1", "%q", name)
	}
	if c, err := pick(all, "000000000000000a"); err != nil || c.in != "two" {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := pick(nil, ""); c != nil || err != nil {
		t.Errorf("%+v %v", c, err)
	}
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
