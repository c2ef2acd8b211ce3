package storetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/requorum/requorum/store/client"
)

// Clients without a logger of their own say on stderr that a member is away: what
// the tests do to members all the time. The variable is etcd's own.
func init() {
	if os.Getenv("ETCD_CLIENT_DEBUG") == "" {
		os.Setenv("ETCD_CLIENT_DEBUG", "fatal")
	}
}

// ClientConfig reaches all members, with what TLS and authentication need.
func (c *Cluster) ClientConfig() client.Config {
	config := client.Config{Endpoints: c.Endpoints()}
	if c.options.TLS {
		config.CACert = c.authority.CA
		config.Cert, config.Key = filepath.Join(c.authority.dir, "client.pem"), filepath.Join(c.authority.dir, "client.key")
	}
	if c.auth {
		config.User, config.Password = RootUser, RootPassword
	}
	return config
}

// Authority is what signs the certificates of a cluster with TLS.
func (c *Cluster) Authority() *Authority { return c.authority }

// Client is an ordinary etcd client of all members, or of those given. It ends
// with the test.
func (c *Cluster) Client(t testing.TB, members ...int) *clientv3.Client {
	t.Helper()
	config := c.ClientConfig()
	if len(members) != 0 {
		config.Endpoints = nil
		for _, i := range members {
			config.Endpoints = append(config.Endpoints, c.members[i].ClientURL)
		}
	}
	return newClient(t, config)
}

func newClient(t testing.TB, config client.Config) *clientv3.Client {
	t.Helper()
	spec := &clientv3.ConfigSpec{
		Endpoints: config.Endpoints, DialTimeout: 10 * time.Second,
		Secure: &clientv3.SecureConfig{Cert: config.Cert, Key: config.Key, Cacert: config.CACert, InsecureTransport: true},
		Auth:   &clientv3.AuthConfig{Username: config.User, Password: config.Password},
	}
	cfg, err := clientv3.NewClientConfig(spec, zap.NewNop())
	require.NoError(t, err)
	cfg.Logger = zap.NewNop()
	cfg.DialOptions = append(cfg.DialOptions, AskAgain())
	client, err := clientv3.New(*cfg)
	require.NoError(t, err, "client of %v", config.Endpoints)
	t.Cleanup(func() { client.Close() })
	return client
}

const (
	askAgainFor = 30 * time.Second
	shortBound  = 15 * time.Second
)

// AskAgain lets a client make a request again that a member refused because a leader was
// being elected, or it had too much to do: on a busy machine that happens to any cluster
// of several members. Etcd's client does so for reads alone. A request whose context ends
// soon is made once: who bounds it looks at the error.
func AskAgain() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		begun := time.Now()
		deadline, bounded := ctx.Deadline()
		once := bounded && deadline.Sub(begun) < shortBound
		for {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if once || !passing(err) || etcdRepeats[method] && !errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests) || ctx.Err() != nil || time.Since(begun) > askAgainFor {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// etcdRepeats are the requests that etcd's client repeats a hundred times by itself.
var etcdRepeats = map[string]bool{
	"/etcdserverpb.KV/Range": true, "/etcdserverpb.Cluster/MemberList": true,
	"/etcdserverpb.Lease/LeaseGrant": true, "/etcdserverpb.Lease/LeaseRevoke": true,
}

// passing reports whether a member itself answered that it cannot do something now.
func passing(err error) bool {
	return errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests) ||
		status.Code(err) == codes.Unavailable && strings.HasPrefix(status.Convert(err).Message(), "etcdserver: ")
}

// enableAuth makes the root user and turns authentication on.
func (c *Cluster) enableAuth(t testing.TB) {
	t.Helper()
	client := c.Client(t)
	turnAuthOn(t, client)
	c.auth = true
}

func turnAuthOn(t testing.TB, client *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	_, err := client.UserAdd(ctx, RootUser, RootPassword)
	require.NoError(t, err, "user add root")
	_, err = client.UserGrantRole(ctx, RootUser, "root")
	require.NoError(t, err, "user grant-role root")
	_, err = client.AuthEnable(ctx)
	require.NoError(t, err, "auth enable")
}

// Authority signs certificates for tests. Its own is in the file CA.
type Authority struct {
	CA   string
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes a new CA in a folder of the test. All have one subject, but for
// the words that are given.
func NewAuthority(t testing.TB, words ...string) *Authority {
	t.Helper()
	dir := t.TempDir()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: strings.Join(append([]string{"test CA"}, words...), " ")},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	a := &Authority{CA: filepath.Join(dir, "ca.pem"), dir: dir, key: key}
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	writePEM(t, a.CA, "CERTIFICATE", der)
	return a
}

// Trusted is what trusts it, and nobody else.
func (a *Authority) Trusted() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue writes a certificate for loopback, both as a server and as a client
// called name, that is valid from now for that long (negative: it has expired).
// A second one of the same name takes the place of the first.
func (a *Authority) Issue(t testing.TB, name string, valid time.Duration) (cert, key string) {
	t.Helper()
	private := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "EC PRIVATE KEY", keyDER)
	return cert, key
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func serial(t testing.TB) *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	require.NoError(t, err)
	return n
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
