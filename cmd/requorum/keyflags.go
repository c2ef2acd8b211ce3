package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"filippo.io/age"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/sinks/codec"
)

// recipientFlags say to whom a backup is encrypted.
type recipientFlags struct {
	recipients     []string
	recipientFiles []string
	passphraseFile string
}

func (r *recipientFlags) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&r.recipients, "recipient", nil, "encrypt to this age `recipient` (age1…); may be given more than once")
	f.StringArrayVar(&r.recipientFiles, "recipients-file", nil, "encrypt to the age recipients in this `file`, one a line")
	f.StringVar(&r.passphraseFile, "passphrase-file", "", "encrypt with the passphrase in this `file` (its first line), instead of recipients")
}

func (r *recipientFlags) parse() ([]age.Recipient, error) {
	var all []age.Recipient
	for _, s := range r.recipients {
		one, err := codec.ParseRecipient(s)
		if err != nil {
			return nil, usageError{fmt.Errorf("--recipient: %w", err)}
		}
		all = append(all, one)
	}
	for _, path := range r.recipientFiles {
		some, err := codec.ParseRecipientsFile(path)
		if err != nil {
			return nil, fmt.Errorf("--recipients-file: %w", err)
		}
		all = append(all, some...)
	}
	if r.passphraseFile == "" {
		return all, nil
	}
	if len(all) > 0 {
		return nil, usageError{errors.New("--passphrase-file stands alone: age does not mix a passphrase with recipients")}
	}
	passphrase, err := readPassphrase(r.passphraseFile)
	if err != nil {
		return nil, err
	}
	one, err := codec.PassphraseRecipient(passphrase)
	if err != nil {
		return nil, fmt.Errorf("--passphrase-file %s: %w", r.passphraseFile, err)
	}
	return []age.Recipient{one}, nil
}

// identityFlags say how to read an encrypted backup.
type identityFlags struct {
	files          []string
	passphraseFile string
}

func (i *identityFlags) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&i.files, "identity", nil, "decrypt with the age identities in this `file`; may be given more than once")
	f.StringVar(&i.passphraseFile, "passphrase-file", "", "decrypt with the passphrase in this `file` (its first line)")
}

func (i *identityFlags) parse() ([]age.Identity, error) {
	var all []age.Identity
	for _, path := range i.files {
		some, err := codec.ParseIdentitiesFile(path)
		if err != nil {
			return nil, fmt.Errorf("--identity: %w", err)
		}
		all = append(all, some...)
	}
	if i.passphraseFile != "" {
		passphrase, err := readPassphrase(i.passphraseFile)
		if err != nil {
			return nil, err
		}
		one, err := codec.PassphraseIdentity(passphrase)
		if err != nil {
			return nil, fmt.Errorf("--passphrase-file %s: %w", i.passphraseFile, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func readPassphrase(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--passphrase-file: %w", err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", fmt.Errorf("--passphrase-file %s: its first line is empty", path)
	}
	return line, nil
}
