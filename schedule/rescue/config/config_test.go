package config

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/requorum/requorum/store"
)

const good = `cluster: production
control: {ca: pki/ca.crt, cert: pki/operator.crt, key: /keys/operator.key}
etcd: {cacert: pki/etcd.crt}
repositories: ["file:///var/backups/etcd"]
hosts:
  - {member: m1, control: "10.0.0.1:2391", peer-urls: ["https://10.0.0.1:2380"], client-urls: ["https://10.0.0.1:2379"]}
  - {member: m2, control: "10.0.0.2:2391"}
`

func TestParse(t *testing.T) {
	c, err := Parse([]byte(good), "/home/me/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if c.Control.CA != "/home/me/pki/ca.crt" || c.Control.Key != "/keys/operator.key" || c.StateDir != "/home/me/cluster.yaml.recovery" || c.Etcd.Cert != "" {
		t.Errorf("%+v", c)
	}
	if h := c.Host("m2"); h == nil || h.Control != "10.0.0.2:2391" || c.Host("m3") != nil || c.File() != "/home/me/cluster.yaml" {
		t.Errorf("%+v", c)
	}
	if c, err := Parse([]byte(good+"state-dir: state\n"), filepath.Join("x", "c.yaml")); err != nil || c.StateDir != filepath.Join("x", "state") {
		t.Errorf("%+v %v", c, err)
	}
}

// Each fault is found, with its line, and all of them at once.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"cluster: production", "", "cluster: is not given"},
		{"key: /keys/operator.key", "key: ''", "line 2: control.key: is not given"},
		{"{cacert: pki/etcd.crt}", "{cert: x}", "cert and key go together"},
		{"{cacert: pki/etcd.crt}", "{user: root}", "user and password-file go together"},
		{"{cacert: pki/etcd.crt}", "{password: secret}", "password"},
		{"hosts:", "identity-files: [x]\nhosts:", "recipients"},
		{"file:///var/backups/etcd", "/var/backups/etcd", `line 4: repositories: "/var/backups/etcd": want a URL`},
		{"member: m2", "member: m1", "hosts[1].member: m1 is hosts[0] already"},
		{"member: m2", "member: ../m2", "hosts[1].member"},
		{"10.0.0.2:2391", "10.0.0.1:2391", "is that of hosts[0] already"},
		{"10.0.0.2:2391", "10.0.0.2", "want an address"},
		{"https://10.0.0.1:2380", "10.0.0.1:2380", "peer-urls[0]"},
		{"https://10.0.0.1:2379", "https://10.0.0.1", "client-urls[0]"},
		{"cluster: production", "cluster: production\ncolour: red", "colour"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		if text == good {
			t.Fatalf("%q is not there", c.from)
		}
		if _, err := Parse([]byte(text), "c.yaml"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.to, err, c.want)
		}
	}
	if _, err := Parse([]byte("cluster: x\n"), "c.yaml"); err == nil || !strings.Contains(err.Error(), "hosts") || !strings.Contains(err.Error(), "control.ca") {
		t.Errorf("%v", err)
	}
}

// What is given without a file is held to the same as a file, and says what is wrong
// in the words of whoever gave it.
func TestGiven(t *testing.T) {
	whole := Config{
		Cluster: "production", Control: Control{CA: "ca.crt", Cert: "/op.crt", Key: "/op.key"}, StateDir: "/state",
		Etcd: Etcd{User: "root", Dial: &store.ClientConfig{User: "root", Password: "x"}}, Hosts: []Host{{Member: "m1", Control: "10.0.0.1:2391"}},
	}
	c, err := Given(whole, strings.ToUpper)
	if err != nil || !filepath.IsAbs(c.Control.CA) || c.StateDir != "/state" || c.File() == "" {
		t.Errorf("%+v %v", c, err)
	}
	bad := whole
	bad.StateDir, bad.Control.Key, bad.Hosts = "", "", append(bad.Hosts, Host{Member: "m1", Control: "x"})
	_, err = Given(bad, strings.ToUpper)
	for _, want := range []string{"STATE-DIR: is not given", "CONTROL.KEY: is not given", "HOSTS[1].MEMBER: m1", "HOSTS[1].CONTROL"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
