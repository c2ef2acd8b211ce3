package codec

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
)

func TestKeys(t *testing.T) {
	x25519 := newIdentity(t)
	hybrid, err := age.GenerateHybridIdentity()
	require.NoError(t, err)
	dir := t.TempDir()
	file := func(name string, lines ...string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
		return path
	}
	recipients, err := ParseRecipientsFile(file("r", "# two", "", x25519.Recipient().String(), "  "+hybrid.Recipient().String()+"\r"))
	if err != nil || len(recipients) != 2 {
		t.Fatalf("%v, %v", recipients, err)
	}
	identities, err := ParseIdentitiesFile(file("i", "# created: today", x25519.String(), hybrid.String(), ""))
	if err != nil || len(identities) != 2 {
		t.Fatalf("%v, %v", identities, err)
	}
	for _, r := range recipients {
		stored, e := store(t, []byte("x"), Options{Recipients: []age.Recipient{r}})
		if got, err := readAll(t, bytes.NewReader(stored), e, identities...); err != nil || string(got) != "x" {
			t.Errorf("%q, %v", got, err)
		}
	}

	// Post-quantum and classic recipients are never mixed, and a passphrase is
	// alone: age's labels go through.
	passphrase, err := PassphraseRecipient("correct horse")
	require.NoError(t, err)
	for _, mixed := range [][]age.Recipient{recipients, {recipients[0], passphrase}, {passphrase, passphrase}} {
		_, err = NewWriter(t.Context(), io.Discard, Options{Recipients: mixed})
		require.Error(t, err, "%q were accepted together", recipientNames(mixed))
	}
}

// What could not be parsed is never quoted: it may be a secret.
func TestPromise4KeysStayOutOfErrors(t *testing.T) {
	secret := newIdentity(t).String()
	hybrid, err := age.GenerateHybridIdentity()
	require.NoError(t, err)
	body := secret[len("AGE-SECRET-KEY-1"):]
	bad := []string{
		secret, secret[:len(secret)-1], strings.ToLower(secret), secret[:30] + "1" + secret[31:], secret + "x", "x" + secret,
		"age1" + body, "age1pq1" + body, newIdentity(t).Recipient().String() + " " + secret, body, "AGE-SECRET-KEY-1" + body + body,
		"AGE-PLUGIN-YUBIKEY-1" + body, "ssh-ed25519 " + body, hybrid.String()[:50], strings.Replace(hybrid.String(), "Q", "1", 3),
		strings.Repeat(secret, 2000), "\xff" + secret,
	}
	dir := t.TempDir()
	tried := 0
	for _, s := range bad {
		path := filepath.Join(dir, "keys")
		require.NoError(t, os.WriteFile(path, []byte(s), 0o600))
		_, recipientErr := ParseRecipient(s)
		_, recipientsErr := ParseRecipientsFile(path)
		_, identitiesErr := ParseIdentitiesFile(path)
		if recipientErr == nil || recipientsErr == nil || identitiesErr == nil && s != secret {
			t.Errorf("something malformed was accepted: %v, %v, %v", recipientErr, recipientsErr, identitiesErr)
		}
		for _, err := range []error{recipientErr, recipientsErr, identitiesErr} {
			if err == nil {
				continue
			}
			tried++
			for i := 0; i+8 <= len(body); i++ {
				if strings.Contains(strings.ToUpper(err.Error()), body[i:i+8]) {
					t.Fatalf("an error quotes a secret key: %v", err)
				}
			}
		}
	}
	if tried < 40 {
		t.Errorf("only %d errors were looked at", tried)
	}
	_, err = ParseIdentitiesFile(filepath.Join(dir, "nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, []byte("# none\n\n"), 0o600))
	_, err = ParseRecipientsFile(empty)
	require.Error(t, err, "a file without recipients would have meant: no encryption")
}

// A wrong identity is distinguished from damage, and the error says what to give.
func TestWrongIdentity(t *testing.T) {
	right := newIdentity(t)
	stored, e := store(t, objects(5000), Options{Recipients: []age.Recipient{right.Recipient()}})
	for _, given := range [][]age.Identity{nil, {newIdentity(t)}, {newIdentity(t), newIdentity(t)}} {
		_, inOrder := readAll(t, bytes.NewReader(stored), e, given...)
		_, atRandom := readAllAt(stored, e, given...)
		for _, err := range []error{inOrder, atRandom} {
			var identity *IdentityError
			if !errors.As(err, &identity) || identity.Given != len(given) {
				t.Fatalf("%d identities: %v", len(given), err)
			}
			if !strings.Contains(err.Error(), right.Recipient().String()) || !strings.Contains(err.Error(), "--identity") {
				t.Errorf("the error does not help: %v", err)
			}
		}
	}
}

// The passphrase itself, through the whole way, with its real cost.
func TestPassphrase(t *testing.T) {
	r, err := PassphraseRecipient("correct horse")
	require.NoError(t, err)
	stored, e := store(t, []byte("x"), Options{Recipients: []age.Recipient{r}})
	if len(e.Recipients) != 1 || e.Recipients[0] != "passphrase" {
		t.Errorf("recipients are %q", e.Recipients)
	}
	right, err := PassphraseIdentity("correct horse")
	require.NoError(t, err)
	if got, err := readAll(t, bytes.NewReader(stored), e, right); err != nil || string(got) != "x" {
		t.Fatalf("%q, %v", got, err)
	}
	wrong, err := PassphraseIdentity("battery staple")
	require.NoError(t, err)
	_, err = readAll(t, bytes.NewReader(stored), e, wrong)
	var identity *IdentityError
	if !errors.As(err, &identity) || strings.Contains(err.Error(), "staple") || !strings.Contains(err.Error(), "passphrase") {
		t.Errorf("%v", err)
	}
	_, err = PassphraseRecipient("")
	require.Error(t, err, "an empty passphrase was accepted")
}
