package main

import (
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/snapshot"
)

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
		if _, err := pick(all, name); err == nil || !strings.Contains(err.Error(), "000000000000000b (m1") {
			t.Errorf("%q: %v", name, err)
		}
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
