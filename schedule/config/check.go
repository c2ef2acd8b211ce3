package config

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"filippo.io/age"
)

// Check looks at the files that the configuration names, and at no network: keys,
// certificates, passwords. Its faults keep an agent from starting. What may come
// later (the member's files, companions) and what passes (an expired certificate
// is renewed) is not among them.
func (c *Config) Check() []error {
	var faults []error
	add := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	_, err := c.ClientConfig()
	add(err)
	for _, cert := range c.Certificates() {
		add(cert.Err)
	}
	add(c.checkKeys())
	signing, err := c.SigningKey()
	add(err)
	trusted, err := c.TrustedKeys()
	add(err)
	if signing != nil && len(trusted) > 0 && !slices.ContainsFunc(trusted, func(k ed25519.PublicKey) bool { return k.Equal(signing.Public()) }) {
		add(c.fault("verdicts.trusted-key-files", errors.New("the key of verdicts.sign-key-file is not among them, so this agent would not believe its own verdicts: add its public key")))
	}
	_, err = c.HeartbeatURL()
	add(err)
	_, err = c.WebhookURL()
	add(err)
	return faults
}

// checkKeys encrypts a few bytes to the recipients, and opens them with the
// identities.
func (c *Config) checkKeys() error {
	options, err := c.Codec()
	identities, err2 := c.Identities()
	if err := errors.Join(err, err2); err != nil || len(options.Recipients) == 0 {
		return err
	}
	canary := make([]byte, 32)
	rand.Read(canary) // never fails, by its documentation
	var closed bytes.Buffer
	w, err := age.Encrypt(&closed, options.Recipients...)
	if err == nil {
		_, err = w.Write(canary)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return c.fault("encryption.recipients", fmt.Errorf("nothing can be encrypted to them: %w", err))
	}
	if len(identities) == 0 {
		return nil
	}
	r, err := age.Decrypt(&closed, identities...)
	if err != nil {
		return c.fault("encryption.identity-files", errors.New("they do not open what is encrypted to encryption.recipients: add the identity of one of these recipients"))
	}
	if opened, err := io.ReadAll(r); err != nil || !bytes.Equal(opened, canary) {
		return c.fault("encryption.identity-files", fmt.Errorf("what was encrypted came back different (%w)", err))
	}
	return nil
}

// Certificate is one that a file holds.
type Certificate struct {
	Use     string // such as "etcd client"
	Key     string // of the configuration
	File    string
	Expires time.Time // of the one that expires first
	Err     error     // why it cannot be used, with Key within
}

// Certificates are those that the configuration names, read anew.
func (c *Config) Certificates() []Certificate {
	var all []Certificate
	add := func(use, key, cert, private string) {
		if cert == "" {
			return
		}
		one := Certificate{Use: use, Key: key, File: cert}
		one.Expires, one.Err = readCertificate(cert, private)
		if one.Err != nil {
			one.Err = c.fault(key, one.Err)
		}
		all = append(all, one)
	}
	add("etcd CA", "etcd.cacert", c.Etcd.CACert, "")
	add("etcd client", "etcd.cert", c.Etcd.Cert, c.Etcd.Key)
	add("server", "listen.cert", c.Listen.Cert, c.Listen.Key)
	add("CA of those who connect", "listen.client-ca", c.Listen.ClientCA, "")
	return all
}

// readCertificate is when the first certificate in a file expires. With a private
// key the two must fit.
func readCertificate(file, private string) (time.Time, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: write the path of a PEM file that this user can read", err)
	}
	var first time.Time
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return first, fmt.Errorf("%s: %w", file, err)
		}
		if first.IsZero() || cert.NotAfter.Before(first) {
			first = cert.NotAfter
		}
	}
	if first.IsZero() {
		return first, fmt.Errorf("%s holds no PEM certificate: write the path of one", file)
	}
	if private != "" {
		if _, err := tls.LoadX509KeyPair(file, private); err != nil {
			return first, fmt.Errorf("%s and %s do not go together: %w", file, private, err)
		}
	}
	return first, nil
}
