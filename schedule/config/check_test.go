package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Passwords come from a file or the environment, and are read anew each time.
func TestPasswords(t *testing.T) {
	file := write(t, "password", "first\n")
	c := parse(t, "etcd: {endpoints: ['http://h:2379'], user: root, password-file: "+file+"}\nrepository: {url: file:///b}\n")
	for _, want := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(file, []byte(want+"\nrest\n"), 0o600))
		if cfg, err := c.ClientConfig(); err != nil || cfg.Password != want || cfg.User != "root" || !cfg.DiscoverEndpoints {
			t.Errorf("%+v, %v", cfg, err)
		}
	}
	const text = "etcd: {endpoints: ['http://h:2379'], user: root}\nrepository: {url: file:///b}\n"
	_, err := ParseWith([]byte(text), "f", none)
	require.ErrorContains(t, err, EtcdPasswordVariable, "without a password")
	env := func(key string) string {
		return map[string]string{EtcdPasswordVariable: "third", HeartbeatURLVariable: "https://ping"}[key]
	}
	c, err = ParseWith([]byte(text+"heartbeat: {every: 2m}\n"), "f", env)
	require.NoError(t, err)
	if cfg, err := c.ClientConfig(); err != nil || cfg.Password != "third" {
		t.Errorf("%v", err)
	}
	if u, err := c.HeartbeatURL(); err != nil || u != "https://ping" {
		t.Errorf("%s, %v", u, err)
	}
	c, err = ParseWith([]byte(least), "f", func(key string) string {
		return map[string]string{HeartbeatURLVariable: "no url hunter2"}[key]
	})
	require.NoError(t, err)
	if faults := c.Check(); len(faults) != 1 || !strings.Contains(faults[0].Error(), "heartbeat.url") || strings.Contains(faults[0].Error(), "hunter2") {
		t.Errorf("%v", faults)
	}
}

// Check finds keys that do not go together, without a network.
func TestCheckKeys(t *testing.T) {
	ours, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	other, err := age.GenerateX25519Identity()
	require.NoError(t, err)
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

// A secret in the file itself makes the file one.
func TestWarnsOfModes(t *testing.T) {
	text := least + "heartbeat: {url: 'https://ping/hunter2'}\n"
	path := write(t, "agent.yaml", text)
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o640: 1, 0o604: 1} {
		require.NoError(t, os.Chmod(path, mode))
		c, err := ReadWith(path, none)
		require.NoError(t, err)
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
