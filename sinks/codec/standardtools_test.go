package codec

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

func run(t *testing.T, stdin []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, &stderr)
	}
	return out
}

// Promise 5 of the design: `zstd -d` gives the raw bytes back, whatever their
// number and the frame size, without asking for more memory.
func TestPromise5ZstdCommandLine(t *testing.T) {
	zstd := storetest.Program(t, "zstd")
	for _, c := range []struct{ size, frame int }{
		{0, 1 << 12}, {1, 1 << 12}, {1 << 12, 1 << 12}, {100_000, 1 << 12}, {3 << 20, 0}, {20 << 20, MaxFrameSize}, {1 << 20, MaxFrameSize},
	} {
		raw := objects(c.size)
		stored, _ := store(t, raw, Options{FrameSize: c.frame})
		if got := run(t, stored, zstd, "-d", "-c"); !bytes.Equal(got, raw) {
			t.Errorf("%d bytes in frames of %d: zstd gave %d bytes", c.size, c.frame, len(got))
		}
	}
}

// Promise 5 of the design, encrypted: `age -d` and then `zstd -d`.
func TestPromise5AgeCommandLine(t *testing.T) {
	zstd, ageCLI := storetest.Program(t, "zstd"), storetest.BuildAge(t, t.TempDir())
	x25519 := newIdentity(t)
	hybrid, err := age.GenerateHybridIdentity()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		recipient age.Recipient
		secret    string
	}{
		"x25519": {x25519.Recipient(), x25519.String()},
		"hybrid": {hybrid.Recipient(), hybrid.String()},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "identity")
			require.NoError(t, os.WriteFile(file, []byte(c.secret+"\n"), 0o600))
			for _, size := range []int{0, 1, 1_000_000} {
				raw := objects(size)
				stored, _ := store(t, raw, Options{FrameSize: 1 << 16, Recipients: []age.Recipient{c.recipient}})
				if got := run(t, run(t, stored, ageCLI, "-d", "-i", file), zstd, "-d", "-c"); !bytes.Equal(got, raw) {
					t.Errorf("%d bytes: the tools gave %d", size, len(got))
				}
			}
		})
	}
}
