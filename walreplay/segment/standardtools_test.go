package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Promise 5: a segment opens with zstd, and with age, as docs/format.md says;
// the commands are those of the page.
func TestPromise5StandardTools(t *testing.T) {
	for _, name := range []string{"sh", "zstd", "tail", "head", "sed", "sha256sum"} {
		storetest.Program(t, name)
	}
	dir := t.TempDir()
	identity := newIdentity(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "identity.txt"), []byte(identity.String()+"\n"), 0o600))
	p := piece{"a", 1, 11, 500, 0, []raftlog.Mark{markOf(15, 1, start)}, 0}
	want, err := records(Batch{entriesOf("a", 11, 500), p.marks})
	require.NoError(t, err)
	sh := func(t *testing.T, command string) []byte {
		t.Helper()
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, &stderr)
		}
		return out
	}
	for name, c := range map[string]struct {
		recipients []age.Recipient
		command    string
	}{
		"plain":     {nil, "zstd -dc < segment"},
		"encrypted": {[]age.Recipient{identity.Recipient()}, "tail -c +2049 segment | age -d -i identity.txt | zstd -dc"},
	} {
		t.Run(name, func(t *testing.T) {
			h, data := p.encode(t, c.recipients...)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "segment"), data, 0o600))
			if c.recipients != nil {
				if testing.Short() {
					t.Skip("to build age takes longer than all else here")
				}
				storetest.BuildAge(t, dir)
			}
			if got := sh(t, c.command); !bytes.Equal(got, want) {
				t.Errorf("the tools give %d bytes, not the %d of the records", len(got), len(want))
			}
			if got := sh(t, c.command+" | sha256sum"); !strings.HasPrefix(string(got), h.Object.RawSHA256) {
				t.Errorf("the sum of the records is %s, not %s", got, h.Object.RawSHA256)
			}
			if got := sh(t, "tail -c +2049 segment | sha256sum"); !strings.HasPrefix(string(got), h.Object.StoredSHA256) {
				t.Errorf("the sum of the body is %s, not %s", got, h.Object.StoredSHA256)
			}
			var doc struct {
				SHA256 string
				Body   json.RawMessage
			}
			require.NoError(t, json.Unmarshal(sh(t, "head -c 2048 segment | tail -c +9"), &doc))
			if sum := sha256.Sum256(doc.Body); hex.EncodeToString(sum[:]) != doc.SHA256 {
				t.Errorf("the header's sum is not that of its body")
			}
		})
	}
}
