package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const good = `
listen: {address: '10.0.0.1:2391', cert: /c.pem, key: /k.pem, client-ca: /ca.pem}
member:
  name: m1
  data-dir: /var/lib/etcd/
  kind: static-pod
  static-pod: {manifest: /etc/kubernetes/manifests/etcd.yaml}
`

func TestParse(t *testing.T) {
	c, err := Parse([]byte(good), "control.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if c.Member.DataDir != "/var/lib/etcd" || c.AuditFile != "/var/lib/requorum-control/audit.jsonl" ||
		c.Member.StaticPod.AsideDir != "/etc/kubernetes/requorum-manifests" || time.Duration(c.Member.StopTimeout) != 3*time.Minute {
		t.Errorf("%+v", c)
	}
}

// TestFaults (promise 4): what cannot be honoured is refused, with its line.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"client-ca: /ca.pem", "ca: /ca.pem", `line 2: listen.ca: unknown key`},
		{", client-ca: /ca.pem", "", "listen.client-ca: is not given"},
		{"cert: /c.pem, ", "", "listen.cert: is not given"},
		{"name: m1", "name: ../m1", "line 4: member.name"},
		{"/var/lib/etcd/", "etcd", "line 5: member.data-dir: etcd is relative"},
		{"/var/lib/etcd/", "/", "is no data directory"},
		{"/var/lib/etcd/", "/var/lib", "must outlive it"},
		{"kind: static-pod", "kind: docker", "line 6: member.kind"},
		{"kind: static-pod", "kind: systemd", "member.static-pod: is for kind static-pod"},
		{"etcd.yaml}", "etcd.yaml, aside-dir: /etc/kubernetes/manifests/old}", "the kubelet reads every file"},
		{"kind: static-pod", "kind: static-pod\n  stop-timeout: 0s", "want a time to wait"},
		{"kind: static-pod\n  static-pod: {manifest: /etc/kubernetes/manifests/etcd.yaml}", "kind: command\n  command: {start: [a]}", "member.command.stop"},
		{"listen:", "log: {level: loud}\nlisten:", "log.level"},
		{"listen:", "repositories: [\"ftp://host/x\"]\nlisten:", "repositories[0]"},
		{"listen:", "repositories: [backups]\nlisten:", "relative"},
		{"listen:", "identity-files: [key.txt]\nlisten:", "identity-files[0]"},
		{"kind: static-pod", "owner: etcd\n  kind: static-pod", "member.owner"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%q is not in the example", c.old)
		}
		if _, err := Parse([]byte(text), "control.yaml"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.new, err, c.want)
		}
	}
}

// TestWritableByOthers: whoever may write to the file could run commands as root.
func TestWritableByOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.yaml")
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("%v", err)
	}
}
