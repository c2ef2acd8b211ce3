package storetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for tests. Its own is in the file CA.
type Authority struct {
	CA   string
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes a new CA in a folder of the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	dir := t.TempDir()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{CA: filepath.Join(dir, "ca.pem"), dir: dir, key: key}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.CA, "CERTIFICATE", der)
	return a
}

// Issue writes a certificate for loopback, both as a server and as a client
// called name, that is valid from now for that long (negative: it has expired).
// A second one of the same name takes the place of the first.
func (a *Authority) Issue(t testing.TB, name string, valid time.Duration) (cert, key string) {
	t.Helper()
	return a.IssueFor(t, name, valid, "localhost", net.IPv4(127, 0, 0, 1), net.IPv6loopback)
}

// IssueFor is Issue for other addresses.
func (a *Authority) IssueFor(t testing.TB, name string, valid time.Duration, host string, ips ...net.IP) (cert, key string) {
	t.Helper()
	return a.issue(t, pkix.Name{CommonName: name}, valid, host, ips...)
}

// IssueRoles is Issue for a client that has organisational units.
func (a *Authority) IssueRoles(t testing.TB, name string, valid time.Duration, units ...string) (cert, key string) {
	t.Helper()
	return a.issue(t, pkix.Name{CommonName: name, OrganizationalUnit: units}, valid, "localhost", net.IPv4(127, 0, 0, 1), net.IPv6loopback)
}

// IssueHost is IssueRoles for a host of that address, which is a server as well.
func (a *Authority) IssueHost(t testing.TB, name string, valid time.Duration, address net.IP, units ...string) (cert, key string) {
	t.Helper()
	return a.issue(t, pkix.Name{CommonName: name, OrganizationalUnit: units}, valid, name, address)
}

func (a *Authority) issue(t testing.TB, subject pkix.Name, valid time.Duration, host string, ips ...net.IP) (cert, key string) {
	t.Helper()
	private := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{host}, IPAddresses: ips,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, subject.CommonName+".pem"), filepath.Join(a.dir, subject.CommonName+".key")
	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "EC PRIVATE KEY", keyDER)
	return cert, key
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
