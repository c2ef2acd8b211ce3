package codec

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"

	"github.com/requorum/requorum/store/safedir"
)

// Errors of this file never quote what they could not parse: it may be a
// secret key that went to the wrong place.

// maxKeyFile is above any reasonable number of keys.
const maxKeyFile = 1 << 20

// ParseRecipient reads one public key: age1… or, post-quantum, age1pq1….
func ParseRecipient(s string) (age.Recipient, error) {
	switch {
	case strings.HasPrefix(s, "AGE-SECRET-KEY-"):
		return nil, errors.New("a secret key was given where a recipient, which is a public key, is expected: age-keygen -y prints the public key of a secret one")
	case strings.HasPrefix(s, "age1pq1"):
		if r, err := age.ParseHybridRecipient(s); err == nil {
			return r, nil
		}
		return nil, errors.New("malformed age1pq1… recipient: a character was lost or changed")
	case strings.HasPrefix(s, "age1"):
		if r, err := age.ParseX25519Recipient(s); err == nil {
			return r, nil
		}
		return nil, errors.New("malformed age1… recipient: a character was lost or changed, or it is of a plugin, which requorum does not run")
	case strings.HasPrefix(s, "ssh-"):
		return nil, errors.New("SSH keys are not supported as recipients: age-keygen makes a native key")
	}
	return nil, errors.New("not an age recipient: one starts with age1")
}

// ParseRecipientsFile reads a file with a recipient on each line; empty lines
// and lines that start with # are passed over. A file without any is an error, and
// one that other users could have written (safedir.ErrOthers).
func ParseRecipientsFile(path string) ([]age.Recipient, error) {
	return parseKeyFile(path, "recipients", ParseRecipient)
}

// ParseIdentitiesFile reads a file with a secret key on each line, as
// age-keygen writes it, with the errors of ParseRecipientsFile.
func ParseIdentitiesFile(path string) ([]age.Identity, error) {
	return parseKeyFile(path, "identities", ParseIdentity)
}

// ParseIdentity reads one secret key. Its error never quotes it.
func ParseIdentity(s string) (age.Identity, error) {
	switch {
	case strings.HasPrefix(s, "AGE-SECRET-KEY-PQ-1"):
		if i, err := age.ParseHybridIdentity(s); err == nil {
			return i, nil
		}
		return nil, errors.New("malformed AGE-SECRET-KEY-PQ-1…: a character was lost or changed")
	case strings.HasPrefix(s, "AGE-SECRET-KEY-1"):
		if i, err := age.ParseX25519Identity(s); err == nil {
			return i, nil
		}
		return nil, errors.New("malformed AGE-SECRET-KEY-1…: a character was lost or changed")
	case strings.HasPrefix(s, "age-encryption.org/"), strings.HasPrefix(s, "-----BEGIN AGE ENCRYPTED FILE-----"):
		return nil, errors.New("this file of identities is itself encrypted: decrypt it first (age -d)")
	case strings.HasPrefix(s, "age1"):
		return nil, errors.New("a recipient, which is a public key, was given where a secret key is expected")
	case strings.HasPrefix(s, "AGE-PLUGIN-"):
		return nil, errors.New("identities of age plugins are not supported")
	}
	return nil, errors.New("not an age secret key: one starts with AGE-SECRET-KEY-")
}

func parseKeyFile[T any](path, what string, parse func(string) (T, error)) ([]T, error) {
	if err := safedir.TrustedFile(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("file of %s: %w", what, err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	var keys []T
	in := &io.LimitedReader{R: f, N: maxKeyFile + 1}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("file of %s %s, line %d: %w", what, path, n, err)
		}
		keys = append(keys, key)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("file of %s %s: %w", what, path, err)
	}
	if in.N == 0 {
		return nil, fmt.Errorf("file of %s %s: larger than %d bytes", what, path, maxKeyFile)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("file of %s %s: there are none in it", what, path)
	}
	return keys, nil
}
