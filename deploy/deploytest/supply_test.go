package deploytest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A database of vulnerabilities that cannot be reached is a failure, unless somebody
// said that it is known; what was found is one in any case.
func TestVulnerabilitiesNotChecked(t *testing.T) {
	tool := func(script string) string {
		path := write(t, filepath.Join(t.TempDir(), "govulncheck"), "#!/bin/sh\n"+script+"\n")
		require.NoError(t, os.Chmod(path, 0o755))
		return path
	}
	away := tool("echo 'govulncheck: fetching vulnerabilities: dial tcp: no such host'; exit 1")
	found := tool("echo 'Vulnerability #1: GO-2026-0001'; exit 3")
	for _, c := range []struct {
		tool, database string
		code           int
		says           string
	}{
		{away, "", 1, "were not checked"}, {away, "1", 0, "WARNING: KNOWN VULNERABILITIES WERE NOT CHECKED"},
		{found, "", 3, "GO-2026-0001"}, {found, "1", 3, "GO-2026-0001"}, {tool("echo fine"), "", 0, "fine"},
	} {
		e := run(t, []string{"GOVULNCHECK=" + c.tool, "REQUORUM_NO_VULNDB=" + c.database}, filepath.Join(top, ".tools", "vulnerabilities"))
		if e.code != c.code || !strings.Contains(e.text, c.says) {
			t.Errorf("database %q: exit code %d, want %d\n%s", c.database, e.code, c.code, e.text)
		}
	}
}
