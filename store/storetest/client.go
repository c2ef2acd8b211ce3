package storetest

import (
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/requorum/requorum/store"
)

// ClientConfig reaches all members, with what TLS and authentication need.
func (c *Cluster) ClientConfig() store.ClientConfig {
	config := store.ClientConfig{Endpoints: c.Endpoints()}
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

func newClient(t testing.TB, config store.ClientConfig) *clientv3.Client {
	t.Helper()
	spec := &clientv3.ConfigSpec{
		Endpoints: config.Endpoints, DialTimeout: 10 * time.Second,
		Secure: &clientv3.SecureConfig{Cert: config.Cert, Key: config.Key, Cacert: config.CACert, InsecureTransport: true},
		Auth:   &clientv3.AuthConfig{Username: config.User, Password: config.Password},
	}
	cfg, err := clientv3.NewClientConfig(spec, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = zap.NewNop()
	client, err := clientv3.New(*cfg)
	if err != nil {
		t.Fatalf("client of %v: %v", config.Endpoints, err)
	}
	t.Cleanup(func() { client.Close() })
	return client
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
	if _, err := client.UserAdd(ctx, RootUser, RootPassword); err != nil {
		t.Fatalf("user add root: %v", err)
	}
	if _, err := client.UserGrantRole(ctx, RootUser, "root"); err != nil {
		t.Fatalf("user grant-role root: %v", err)
	}
	if _, err := client.AuthEnable(ctx); err != nil {
		t.Fatalf("auth enable: %v", err)
	}
}
