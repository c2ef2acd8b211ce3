package recovertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ClusterFile writes the file that `requorum recover --config` reads, with the
// hosts given, and gives its path. Written again, it names the same state folder.
func (s *Site) ClusterFile(t testing.TB, hosts ...*Host) string {
	t.Helper()
	ca, cert, key := s.Credentials(t, "operator")
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: %s\ncontrol: {ca: %q, cert: %q, key: %q}\nstate-dir: %q\n", s.Cluster, ca, cert, key, s.DriverState())
	if s.Repository != "" {
		fmt.Fprintf(&b, "repositories: [%q]\n", s.Repository)
	}
	b.WriteString("hosts:\n")
	for _, h := range hosts {
		fmt.Fprintf(&b, "  - {member: %s, control: %q, peer-urls: [%q], client-urls: [%q]}\n", h.Name, h.Control, h.PeerURL, h.ClientURL)
	}
	path := filepath.Join(s.Dir, "cluster.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// DriverState is the folder of the operator's own: the journal of a recovery.
func (s *Site) DriverState() string { return filepath.Join(s.Dir, "recovery") }
