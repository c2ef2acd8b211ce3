package verdict

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/verify/report"
)

func openssl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("openssl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func needTools(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("REQUORUM_CI") == "1" {
				t.Fatal(err)
			}
			t.Skipf("SKIPPED: %v", err)
		}
	}
}

// Keys are those that openssl makes; and what docs/format.md says about checking
// a signature by hand is so.
func TestOpenSSL(t *testing.T) {
	needTools(t, "openssl", "bash", "jq", "base64", "sha256sum")
	dir := t.TempDir()
	private, public := filepath.Join(dir, "key.pem"), filepath.Join(dir, "key.pub")
	openssl(t, "genpkey", "-algorithm", "ed25519", "-out", private)
	openssl(t, "pkey", "-in", private, "-pubout", "-out", public)
	require.NoError(t, os.Chmod(private, 0o600))
	key, err := ReadSigningKey(private)
	require.NoError(t, err)
	trusted, err := ReadVerifyKey(public)
	require.NoError(t, err)
	s, repo, m := filled(t, key)
	if _, ok := readAll(t, repo, trusted).Newest(m, report.Structure); !ok {
		t.Fatal("the signature is not taken")
	}
	data := get(t, s, 5)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "verdict.json"), data, 0o600))
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "format.md"))
	require.NoError(t, err)
	_, script, _ := strings.Cut(string(document), "<!-- checked by TestOpenSSL -->\n```sh\n")
	script, _, ok := strings.Cut(script, "```")
	if !ok {
		t.Fatal("docs/format.md does not show how to check a signature by hand")
	}
	run := func() (string, error) {
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run()
	if err != nil || !strings.Contains(out, "Signature Verified Successfully") || !strings.Contains(out, KeyID(trusted)) {
		t.Fatalf("%v\n%s", err, out)
	}
	forged := bytes.Replace(data, []byte(`"structure"`), []byte(`"drill"`), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "verdict.json"), forged, 0o600))
	if out, err := run(); err == nil {
		t.Fatalf("a forged one passes by hand\n%s", out)
	}
}

// A key that cannot be used is refused with the reason and the next step, and
// nothing of it is shown.
func TestKeyRefused(t *testing.T) {
	_, key := newKey(t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ecPrivate, err := x509.MarshalPKCS8PrivateKey(ec)
	require.NoError(t, err)
	ecPublic, err := x509.MarshalPKIXPublicKey(ec.Public())
	require.NoError(t, err)
	block := func(kind string, bytes []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	}
	signing := func(path string) error { _, err := ReadSigningKey(path); return err }
	verifying := func(path string) error { _, err := ReadVerifyKey(path); return err }
	for _, test := range []struct {
		name string
		data []byte
		mode os.FileMode
		read func(string) error
		want string
	}{
		{"private to its owner", block("PRIVATE KEY", der), 0o600, signing, ""},
		{"read-only", block("PRIVATE KEY", der), 0o400, signing, ""},
		{"readable by the group", block("PRIVATE KEY", der), 0o640, signing, "chmod 600"},
		{"readable by all", block("PRIVATE KEY", der), 0o604, signing, "chmod 600"},
		{"encrypted", block("ENCRYPTED PRIVATE KEY", der), 0o600, signing, "openssl pkey"},
		{"public, to sign", block("PUBLIC KEY", public), 0o600, signing, "is a public key"},
		{"of another form", block("EC PRIVATE KEY", der), 0o600, signing, "genpkey"},
		{"of another algorithm", block("PRIVATE KEY", ecPrivate), 0o600, signing, "Ed25519"},
		{"damaged", block("PRIVATE KEY", der[1:]), 0o600, signing, "PKCS #8"},
		{"empty", nil, 0o600, signing, "no key"},
		{"public", block("PUBLIC KEY", public), 0o644, verifying, ""},
		{"private, to verify", block("PRIVATE KEY", der), 0o600, verifying, "-pubout"},
		{"public, of another algorithm", block("PUBLIC KEY", ecPublic), 0o644, verifying, "Ed25519"},
		{"public, damaged", block("PUBLIC KEY", public[:20]), 0o644, verifying, "not a public key"},
		{"public, no PEM", public, 0o644, verifying, "no key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			require.NoError(t, os.WriteFile(path, test.data, 0o600))
			require.NoError(t, os.Chmod(path, test.mode))
			err := test.read(path)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if err := signing(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// IDs tell keys apart, and nothing else hangs on them.
func TestKeyID(t *testing.T) {
	one, _ := newKey(t)
	two, _ := newKey(t)
	if len(KeyID(one)) != 16 || KeyID(one) == KeyID(two) || KeyID(one) != KeyID(bytes.Clone(one)) {
		t.Errorf("%s, %s", KeyID(one), KeyID(two))
	}
	if ok, named := (&Signature{Key: KeyID(one), Ed25519: make([]byte, 64)}).by([]ed25519.PublicKey{one}, nil); ok || !named {
		t.Error("a signature by the name of its key")
	}
}
