package signing_test

import (
	"encoding/base64"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/store/storetest"
)

var what = signing.Statement{Kind: "manifest", SHA256: strings.Repeat("ab", 32), Repository: "0123", Object: "00-1/full/x/manifest.json", Time: "2026-06-01T12:00:00Z"}

// newKey writes a private key as ssh-keygen does, and gives its public one.
func newKey(t *testing.T) (path, public string) {
	t.Helper()
	private, pub, err := signing.NewKey()
	require.NoError(t, err)
	return file(t, string(private)), strings.TrimSpace(string(pub))
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func sign(t *testing.T, key string) string {
	t.Helper()
	signer, err := signing.ReadSigner(key)
	require.NoError(t, err)
	signature, err := signer.Sign(what)
	require.NoError(t, err)
	return signature
}

func TestCheck(t *testing.T) {
	key, public := newKey(t)
	other, stranger := newKey(t)
	good, foreign := sign(t, key), sign(t, other)
	for _, test := range []struct {
		name, trust, revoked, signature string
		change                          func(*signing.Statement)
		want                            string // empty: it is believed
	}{
		{name: "trusted", trust: "ops@example.com " + public},
		{name: "with a comment, tabs and other keys", trust: "# keys\n\nx " + stranger + "\nops\t" + public + " laptop\n"},
		{name: "unsigned", trust: "ops " + public, signature: "-", want: "it is not signed"},
		{name: "no base64", trust: "ops " + public, signature: "*", want: "not in base64"},
		{name: "no signature", trust: "ops " + public, signature: "YWJj", want: "not one of OpenSSH's"},
		{name: "a stranger's", trust: "ops " + public, signature: foreign, want: "is not among those in"},
		{name: "revoked", trust: "ops " + public, revoked: "# lost\n" + public + " laptop\n", want: "was revoked by"},
		{name: "another is revoked", trust: "ops " + public, revoked: stranger},
		{name: "not valid yet", trust: `ops valid-after="20260602Z" ` + public, want: "is not valid at 2026-06-01T12:00:00Z"},
		{name: "not valid any more", trust: `ops valid-before="202606011159Z" ` + public, want: "is not valid at"},
		{name: "valid", trust: `ops valid-after="20260601115959Z",valid-before="20260601120001Z" ` + public},
		{name: "one of two lines", trust: `ops valid-before="20260101Z" ` + public + "\n" + `ops valid-after="20260102Z" ` + public},
		{name: "its namespace", trust: `ops namespaces="requorum-pin,requorum-manifest" ` + public},
		{name: "a pattern", trust: `ops namespaces="requorum-*" ` + public},
		{name: "other namespaces", trust: `ops namespaces="git,requorum-pin" ` + public, want: "may not sign requorum-manifest"},
		{name: "another kind", trust: "ops " + public, change: func(s *signing.Statement) { s.Kind = "pin" }, want: "was altered, or moved here"},
		{name: "another object", trust: "ops " + public, change: func(s *signing.Statement) { s.Object = "00-2/full/x/manifest.json" }, want: "was altered, or moved here"},
		{name: "another repository", trust: "ops " + public, change: func(s *signing.Statement) { s.Repository = "4567" }, want: "was altered, or moved here"},
		{name: "another content", trust: "ops " + public, change: func(s *signing.Statement) { s.SHA256 = strings.Repeat("ac", 32) }, want: "was altered, or moved here"},
		{name: "another time", trust: "ops " + public, change: func(s *signing.Statement) { s.Time = "2026-06-01T12:00:01Z" }, want: "was altered, or moved here"},
		{name: "no time", trust: "ops " + public, change: func(s *signing.Statement) { s.Time = "2026-06-01 12:00" }, want: "no time of a signature"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var revoked []string
			if test.revoked != "" {
				revoked = append(revoked, file(t, test.revoked))
			}
			trust, err := signing.ReadTrust(file(t, test.trust), revoked)
			require.NoError(t, err)
			about, signature := what, good
			if test.change != nil {
				test.change(&about)
			}
			switch test.signature {
			case "":
			case "-":
				signature = ""
			default:
				signature = test.signature
			}
			err = trust.Check(about, signature)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// What is not supported is refused: to leave it out would trust more than was asked.
func TestRefusedTrust(t *testing.T) {
	_, public := newKey(t)
	for text, want := range map[string]string{
		"":                              "names no key",
		"# nothing":                     "names no key",
		"ops":                           "line 1: want a name",
		"ops " + public + "\nops rsa x": "line 2: want a name",
		"ops cert-authority " + public:  "option cert-authority: it is not supported",
		`"o ps" ` + public:              "quoted name",
		`namespaces="requorum-verdict" ` + public:                    "stands where a name belongs",
		`ops namespaces="requorum-verdict",namespaces="*" ` + public: "given twice",
		`ops valid-after="20260101" ` + public:                       "want a time in UTC with a Z",
		`ops valid-before="tomorrow" ` + public:                      "want a time in UTC with a Z",
		`ops verify-required ` + public:                              "it is not supported",
		`ops namespaces="!git" ` + public:                            "want namespaces such as",
		`ops namespaces="" ` + public:                                "want namespaces such as",
		"ops ecdsa-sha2-nistp256 " + ecdsaKey:                        "only Ed25519 keys sign",
		"SSHKRL\n\x00":                                               "revocation list",
	} {
		if _, err := signing.ReadTrust(file(t, text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{"SSHKRL\n\x00": "one a line", "SHA256:abc": "want a public key"} {
		_, err := signing.ReadTrust(file(t, "ops "+public), []string{file(t, text)})
		require.ErrorContains(t, err, want, "revoked %q", text)
	}
}

// From the documentation of RFC 5656's keys: of no use here.
const ecdsaKey = "AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBDiGLlhdL/8PF1azi1Gt9JzIS8Il3bH+GqMPPJH6Z3wP2Z/l4a/Z0Yfe3rTVdfyqr9VRPzp/2B/tPeCIZWrchC0="

func TestRefusedSigner(t *testing.T) {
	key, public := newKey(t)
	_, stranger := newKey(t)
	require.NoError(t, os.Chmod(key, 0o640))
	_, err := signing.ReadSigner(key)
	require.ErrorContains(t, err, "chmod 600")
	require.NoError(t, os.Chmod(key, 0o600))
	_, err = signing.ReadSigner(file(t, public))
	require.ErrorContains(t, err, "holds no private key")
	_, err = signing.Read(key, file(t, "x "+stranger), nil)
	require.ErrorContains(t, err, "would not be believed")
	_, err = signing.Read(key, "", []string{"revoked"})
	require.Error(t, err, "revoked keys without trusted ones were taken")
	_, err = signing.Read(key, file(t, "ops "+public), nil)
	require.NoError(t, err)
}

// ssh-keygen's keys sign, and it checks what they signed.
func TestOpenSSH(t *testing.T) {
	tool := storetest.Program(t, "ssh-keygen") // Debian's package openssh-client
	dir := t.TempDir()
	run := func(stdin string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("", "-q", "-t", "ed25519", "-N", "", "-f", "key"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := run("", "-q", "-t", "ed25519", "-N", "secret", "-f", "locked"); err != nil {
		t.Fatal(err, out)
	}
	_, err := signing.ReadSigner(filepath.Join(dir, "locked"))
	require.ErrorContains(t, err, "passphrase")
	public, err := os.ReadFile(filepath.Join(dir, "key.pub"))
	require.NoError(t, err)
	trust := "ops@example.com " + `valid-after="20260101Z" ` + string(public)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "trust"), []byte(trust), 0o600))
	signature, err := base64.StdEncoding.DecodeString(sign(t, filepath.Join(dir, "key")))
	require.NoError(t, err)
	armored := pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: signature})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sig"), armored, 0o600))
	line := what.SHA256 + " " + what.Repository + " " + what.Object + " " + what.Time + "\n"
	verify := func(line, namespace string) error {
		_, err := run(line, "-Y", "verify", "-f", "trust", "-I", "ops@example.com", "-n", namespace, "-s", "sig")
		return err
	}
	require.NoError(t, verify(line, "requorum-manifest"), "ssh-keygen refuses ours")
	if verify(line, "requorum-pin") == nil || verify(strings.Replace(line, "0123", "4567", 1), "requorum-manifest") == nil {
		t.Error("ssh-keygen takes what was moved")
	}
}
