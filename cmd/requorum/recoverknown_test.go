package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/rescue/config"
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

// TestFindKept: the newest of the same options counts; for a run that is neither under
// way nor to be undone everything is looked up anew.
func TestFindKept(t *testing.T) {
	base := t.TempDir()
	same := given{Control: []string{"m1=a:1"}, Port: 2391}
	for i, k := range []known{{Cluster: "old", Given: same}, {Cluster: "new", Given: same, Hosts: []config.Host{{Member: "m1", Control: "a:1"}}}, {Cluster: "other", Given: given{Port: 1}}} {
		if err := k.keep(filepath.Join(base, k.Cluster)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
	}
	if k, err := findKept(base, same, true); err != nil || k == nil || k.Cluster != "new" || len(k.Hosts) != 1 {
		t.Errorf("%+v %v", k, err)
	}
	if k, err := findKept(base, same, false); err != nil || k != nil {
		t.Errorf("nothing is under way: %+v %v", k, err)
	}
	if k, err := findKept(base, given{Port: 2}, true); err != nil || k != nil {
		t.Errorf("%+v %v", k, err)
	}
	if info, err := os.Stat(filepath.Join(base, "new", knownFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// TestGivenAgain: a repository's URL with its query in another order, or a path in place
// of its URL, is the same option.
func TestGivenAgain(t *testing.T) {
	base, dir := t.TempDir(), t.TempDir()
	of := func(urls ...string) given {
		t.Helper()
		g, err := (&recoverOptions{repo: repoFlags{urls: urls}}).givenHere()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	k := known{Cluster: "c", Given: given{Repositories: []string{"s3://bucket/p?region=x&endpoint=https://10.0.0.1", "file://" + dir}}} // as the operator wrote them
	if err := k.keep(filepath.Join(base, "c")); err != nil {
		t.Fatal(err)
	}
	same := of("s3://bucket/p?endpoint=https%3A%2F%2F10.0.0.1&region=x", dir)
	if got, err := findKept(base, same, true); err != nil || got == nil || got.Given.Repositories[0] != same.Repositories[0] {
		t.Errorf("%+v %v, want %+v", got, err, same)
	}
	if got, err := findKept(base, of("s3://bucket/p?endpoint=https://10.0.0.2&region=x", dir), true); err != nil || got != nil {
		t.Errorf("another server: %+v %v", got, err)
	}
	if _, err := (&recoverOptions{repo: repoFlags{urls: []string{"s3://bucket?secret-key=hunter2"}}}).givenHere(); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret: %v", err)
	}
}

// TestStateBase: the folder is not the one that the operator happens to work in.
func TestStateBase(t *testing.T) {
	for _, c := range []struct{ xdg, home, want string }{
		{"/state", "/home/me", "/state/requorum/recover"},
		{"", "/home/me", "/home/me/.local/state/requorum/recover"},
		{"relative", "/home/me", "/home/me/.local/state/requorum/recover"},
		{"", "", ""},
	} {
		got, err := stateBase(func(name string) string { return map[string]string{"XDG_STATE_HOME": c.xdg, "HOME": c.home}[name] })
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %s %v", c, got, err)
		}
	}
}

// TestClusterFileText: what is written is read again as what was known, also where
// names hold what YAML reads otherwise.
func TestClusterFileText(t *testing.T) {
	c := &config.Config{
		Cluster: "on", Control: config.Control{CA: "/a b/ca.crt", Cert: `/"x".crt`, Key: "/k.key"},
		Etcd:         config.Etcd{CACert: "/e.crt", User: "root"},
		Repositories: []string{"s3://b/p?region=x&y=z"}, IdentityFiles: []string{"/id: 1"}, Recipients: []string{"age1x"},
		Hosts: []config.Host{{Member: "m1", Control: "[fd00::1]:2391"}, {Member: "0", Control: "b:1"}},
	}
	of := &storedCluster{members: []snapshot.Member{{Name: "m1", PeerURLs: []string{"https://a:2380"}, ClientURLs: []string{"https://a:2379"}}}}
	text := clusterFileText(c, of, []askedHost{{err: os.ErrDeadlineExceeded}, {err: os.ErrDeadlineExceeded}})
	got, err := config.Parse([]byte(text), "/c/cluster.yaml")
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if got.Cluster != c.Cluster || got.Control != c.Control || got.Etcd.CACert != "/e.crt" || got.Etcd.User != "" || got.Repositories[0] != c.Repositories[0] || got.IdentityFiles[0] != "/id: 1" ||
		got.Hosts[0].ClientURLs[0] != "https://a:2379" || got.Hosts[0].Control != c.Hosts[0].Control || got.Hosts[1].Member != "0" {
		t.Errorf("%+v\n%s", got, text)
	}
}
