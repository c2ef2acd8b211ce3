package schedule

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/snapshot"
)

// certificate writes one that expires at a time, with its key.
func certificate(t *testing.T, dir string, expires time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: expires.Add(-time.Hour), NotAfter: expires}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
	return cert, key
}

// Certificates are read anew: a renewed one ends the problem, one that cannot be
// read is one.
func TestWatchCertificates(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cert, key := certificate(t, dir, time.Now().Add(5*24*time.Hour))
		text := strings.Replace(beside, `etcd: {endpoints: ["http://127.0.0.1:1"]}`, fmt.Sprintf(`etcd: {endpoints: ["https://127.0.0.1:1"], cert: %s, key: %s}`, cert, key), 1)
		session := termOn(t, text, memory())
		go session.watchHost(t.Context())
		kinds := func() (all []string) {
			time.Sleep(hostEvery + time.Second)
			for _, p := range session.describe(time.Now()).Problems {
				if strings.HasPrefix(p.Kind, "certificate") {
					all = append(all, string(p.Severity))
				}
			}
			return all
		}
		if got := kinds(); len(got) != 1 || got[0] != "warning" {
			t.Errorf("expires soon: %v", got)
		}
		certificate(t, dir, time.Now().Add(365*24*time.Hour))
		if got := kinds(); len(got) != 0 {
			t.Errorf("renewed: %v", got)
		}
		must(t, os.Remove(cert))
		if got := kinds(); len(got) != 1 || got[0] != "critical" {
			t.Errorf("gone: %v", got)
		}
		certificate(t, dir, time.Now().Add(-time.Minute))
		if got := kinds(); len(got) != 1 || got[0] != "critical" {
			t.Errorf("expired: %v", got)
		}
	})
}

// An identity that is lost or replaced while the agent runs is found soon, and one that
// is found again ends the problem.
func TestWatchIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		right, err := age.GenerateX25519Identity()
		must(t, err)
		other, err := age.GenerateX25519Identity()
		must(t, err)
		file := filepath.Join(t.TempDir(), "identity.txt")
		must(t, os.WriteFile(file, []byte(right.String()), 0o600))
		session := termOn(t, verifier, memory())
		session.cfg.Encryption.Recipients, session.cfg.Encryption.IdentityFiles = []string{right.Recipient().String()}, []string{file}
		go session.watchHost(t.Context())
		found := func(what, text string) {
			t.Helper()
			time.Sleep(hostEvery + time.Second)
			session.mu.Lock()
			defer session.mu.Unlock()
			if err := session.seen.identities; text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "SECRET")) {
				t.Errorf("%s: %v", what, err)
			}
		}
		found("it fits", "")
		must(t, os.WriteFile(file, []byte(other.String()), 0o600))
		found("another one", "do not open")
		must(t, os.Remove(file))
		found("lost", "identity.txt")
		must(t, os.WriteFile(file, []byte(right.String()), 0o600))
		found("found again", "")
	})
}

// The room that jobs and the spool may need is compared with what is free.
func TestSpaces(t *testing.T) {
	session := termOn(t, beside, memory())
	if all := session.spaces(); len(all) != 1 || all[0].key != "archive.spool-dir" || all[0].need != int64(session.cfg.Archive.SpoolLimit) || all[0].free <= 0 {
		t.Errorf("%+v", all)
	}
	session.seen.newest = &snapshot.Manifest{Object: snapshot.StoredObject{Encoding: codec.Encoding{RawSize: 1 << 40}}}
	if all := session.spaces(); len(all) != 2 || all[1].key != "resources.scratch-dir" || all[1].need != 2<<40 {
		t.Errorf("%+v", all)
	}
	session = termOn(t, strings.Replace(verifier, "divergence: {run: off}", "divergence: {run: off}, structure: {run: off}", 1), memory())
	session.seen.newest = &snapshot.Manifest{}
	if all := session.spaces(); len(all) != 0 {
		t.Errorf("nothing is unpacked here: %+v", all)
	}
}
