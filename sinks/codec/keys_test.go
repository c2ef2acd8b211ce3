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

	// Post-quantum and classic recipients are never mixed: age's labels go through.
	_, err = NewWriter(t.Context(), io.Discard, Options{Recipients: recipients})
	require.Error(t, err, "%q were accepted together", recipientNames(recipients))
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
		_, pathErr := ParseIdentitiesFile(filepath.Join(dir, secret)) // in place of a file
		if recipientErr == nil || recipientsErr == nil || identitiesErr == nil && s != secret {
			t.Errorf("something malformed was accepted: %v, %v, %v", recipientErr, recipientsErr, identitiesErr)
		}
		for _, err := range []error{recipientErr, recipientsErr, identitiesErr, pathErr} {
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

// An object that somebody encrypted to a passphrase is opened by no identity.
func TestPassphrase_Identity_DoesNotOpen(t *testing.T) {
	r, err := age.NewScryptRecipient("correct horse")
	require.NoError(t, err)
	r.SetWorkFactor(4)
	stored, e := store(t, []byte("x"), Options{Recipients: []age.Recipient{r}})
	_, err = readAll(t, bytes.NewReader(stored), e, newIdentity(t))
	require.ErrorAs(t, err, new(*IdentityError))
}
