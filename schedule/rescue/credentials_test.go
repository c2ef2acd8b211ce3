package rescue

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/store/storetest"
)

// TestWrongCredentials: what is wrong with the operator's own files is said of the key
// in the cluster file, before any host is asked. A host that answers and cannot be worked
// with is never offered to be declared dead.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3.6", 1)
	s.killAll()
	good := s.config.Control
	other := storetest.NewAuthority(t)
	ended, endedKey := s.ca.IssueRoles(t, "ended", -time.Hour, protocol.Observe.Role())
	strange, strangeKey := other.IssueRoles(t, "strange", time.Hour, protocol.Observe.Role())
	empty := filepath.Join(s.dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, ca, cert, key string
		of                  string // the key of the cluster file; empty: the host's answer
		says                string
	}{
		{"ended", good.CA, ended, endedKey, "control.cert", "has ended"},
		{"no such file", good.CA, ended + ".no", endedKey, "control.cert", "no such file"},
		{"another key", good.CA, good.Cert, endedKey, "control.cert", "private key"},
		{"an empty CA", empty, good.Cert, good.Key, "control.ca", "PEM"},
		{"of another CA", good.CA, strange, strangeKey, "", "somebody answers"},
		{"the host's of another CA", other.CA, good.Cert, good.Key, "", "somebody answers"},
	} {
		s.config.Control.CA, s.config.Control.Cert, s.config.Control.Key = c.ca, c.cert, c.key
		_, err := Run(t.Context(), s.request(&heard{t: t}))
		var credentials *CredentialsError
		var obstacles *ObstacleError
		switch {
		case err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "--declare-dead"):
			t.Errorf("%s: %v", c.name, err)
		case c.of != "" && (!errors.As(err, &credentials) || !strings.HasPrefix(credentials.Key, c.of) || !strings.Contains(err.Error(), "cluster.yaml")):
			t.Errorf("%s: %v", c.name, err)
		case c.of == "" && (!errors.As(err, &obstacles) || obstacles.Unnamed):
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s.config.Control = good
	s.config.Hosts[0].Member = "m7"
	if _, err := Run(t.Context(), s.request(&heard{t: t})); err == nil || !strings.Contains(err.Error(), `control of member "m1", not of "m7"`) || strings.Contains(err.Error(), "--declare-dead") {
		t.Errorf("another member's control process: %v", err)
	}
	s.untouched(t)
}
