package config

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/store/storetest"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Passwords come from a file or the environment, and are read anew each time.
func TestPasswords(t *testing.T) {
	file := write(t, "password", "first\n")
	c := parse(t, "etcd: {endpoints: ['http://h:2379'], user: root, password-file: "+file+"}\nrepository: {url: file:///b}\n")
	for _, want := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte(want+"\nrest\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if cfg, err := c.ClientConfig(); err != nil || cfg.Password != want || cfg.User != "root" || !cfg.DiscoverEndpoints {
			t.Errorf("%+v, %v", cfg, err)
		}
	}
	const text = "etcd: {endpoints: ['http://h:2379'], user: root}\nrepository: {url: file:///b}\n"
	if _, err := ParseWith([]byte(text), "f", none); err == nil || !strings.Contains(err.Error(), EtcdPasswordVariable) {
		t.Errorf("without a password: %v", err)
	}
	env := func(key string) string {
		return map[string]string{EtcdPasswordVariable: "third", HeartbeatURLVariable: "https://ping", WebhookURLVariable: "no url hunter2"}[key]
	}
	c, err := ParseWith([]byte(text+"heartbeat: {every: 2m}\n"), "f", env)
	if err != nil {
		t.Fatal(err)
	}
	if cfg, err := c.ClientConfig(); err != nil || cfg.Password != "third" {
		t.Errorf("%v", err)
	}
	if u, err := c.HeartbeatURL(); err != nil || u != "https://ping" {
		t.Errorf("%s, %v", u, err)
	}
	if faults := c.Check(); len(faults) != 1 || !strings.Contains(faults[0].Error(), "webhook.url") || strings.Contains(faults[0].Error(), "hunter2") {
		t.Errorf("%v", faults)
	}
}

// Check finds keys that do not go together, without a network.
func TestCheckKeys(t *testing.T) {
	ours, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	with := func(identity string) []error {
		return parse(t, least+"encryption: {recipients: "+ours.Recipient().String()+", identity-files: "+write(t, "id", identity)+"}\n").Check()
	}
	if faults := with(ours.String()); len(faults) > 0 {
		t.Error(faults)
	}
	if faults := with(other.String()); len(faults) != 1 || !strings.Contains(faults[0].Error(), "do not open") {
		t.Error(faults)
	}
	if faults := with("rubbish"); len(faults) != 1 || strings.Contains(faults[0].Error(), "rubbish") {
		t.Error(faults)
	}
}

// The port's files are read again at each handshake; a client without a
// certificate of the CA is refused.
func TestListenTLS(t *testing.T) {
	authority := storetest.NewAuthority(t)
	cert, key := authority.Issue(t, "server", time.Hour)
	c := parse(t, least+"listen: {cert: "+cert+", key: "+key+", client-ca: "+authority.CA+"}\n")
	if faults := c.Check(); len(faults) > 0 {
		t.Fatal(faults)
	}
	settings, err := c.ListenTLS()
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", settings)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { conn.Write([]byte("x")); conn.Close() }()
		}
	}()
	connect := func(certificates ...tls.Certificate) (*tls.ConnectionState, error) {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, Certificates: certificates})
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			return nil, err
		}
		state := conn.ConnectionState()
		return &state, nil
	}
	clientCert, clientKey := authority.Issue(t, "client", time.Hour)
	client, err := tls.LoadX509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(); err == nil {
		t.Error("a client without a certificate was let in")
	}
	first, err := connect(client)
	if err != nil {
		t.Fatal(err)
	}
	authority.Issue(t, "server", 2*time.Hour) // in place of the first
	second, err := connect(client)
	if err != nil {
		t.Fatal(err)
	}
	if first.PeerCertificates[0].Equal(second.PeerCertificates[0]) {
		t.Error("the renewed certificate is not served")
	}
	if c := parse(t, least); c.Listen.Address != net.JoinHostPort("127.0.0.1", "2390") {
		t.Error(c.Listen.Address)
	} else if settings, err := c.ListenTLS(); settings != nil || err != nil {
		t.Errorf("plain text: %v, %v", settings, err)
	}
}

// A secret in the file itself makes the file one.
func TestWarnsOfModes(t *testing.T) {
	text := least + "heartbeat: {url: 'https://ping/hunter2'}\n"
	path := write(t, "agent.yaml", text)
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o640: 1, 0o604: 1} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		c, err := ReadWith(path, none)
		if err != nil {
			t.Fatal(err)
		}
		var found []error
		for _, w := range c.Warnings() {
			if strings.Contains(w.Error(), "chmod 600 "+path) && strings.Contains(w.Error(), "line 4: heartbeat.url") {
				found = append(found, w)
			}
		}
		if len(found) != want {
			t.Errorf("mode %o: %v", mode, c.Warnings())
		}
	}
}
