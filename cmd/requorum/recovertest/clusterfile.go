package recovertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ClusterFile writes the file that `requorum recover --config` reads, with the
// hosts given, and gives its path.
func (s *Site) ClusterFile(t testing.TB, hosts ...*Host) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: %s\n", s.Cluster)
	if s.Repository != "" {
		fmt.Fprintf(&b, "repositories: [%q]\n", s.Repository)
	}
	b.WriteString("hosts:\n")
	for _, h := range hosts {
		b.WriteString("  - " + h.keys(t) + "\n")
	}
	path := filepath.Join(s.Dir, "cluster.yaml")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

// quoted is JSON, which YAML reads.
func quoted(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}
