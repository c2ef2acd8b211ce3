package store

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/requorum/requorum/store/client"
)

// Defaults of ClusterConfig.
const (
	defaultMembers    = 3
	defaultClientPort = 2379
)

// ClusterConfig says how to run all members of a cluster in this process.
type ClusterConfig struct {
	// DataDir holds one folder a member: m1, m2 …
	DataDir string
	// Members is 1, 3, 5 or 7. 0 is as many as DataDir holds, or 3.
	Members int
	// Force allows an even number, and starting fewer members than the cluster
	// has.
	Force bool

	// ClientPort is the first member's; 0 is 2379. Its peer port is one more; the
	// second member has 20000 more, the third 30000 and so on.
	ClientPort int
	// FreePorts takes any free ports instead; members that exist keep theirs.
	FreePorts bool

	Settings
}

// LocalCluster is a cluster whose members all run in this process.
type LocalCluster struct {
	members []*Member
	dying   chan error
}

// portAttempts is how often new free ports are tried when somebody else took
// one between finding and listening.
const portAttempts = 5

// StartCluster starts all members at the same time and waits until each is
// ready to serve, or ctx ends. When one fails, all are stopped. Existing
// folders are started as what they are; a contradiction to what is asked is
// refused. The caller closes the cluster.
func StartCluster(ctx context.Context, config ClusterConfig) (*LocalCluster, error) {
	for attempt := 1; ; attempt++ {
		plan, fresh, err := config.plan()
		if err != nil {
			return nil, err
		}
		cluster, err := StartMembers(ctx, plan)
		if err == nil {
			return cluster, nil
		}
		if !config.FreePorts || !fresh || attempt == portAttempts || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		// These folders were made a moment ago, by this call.
		for _, m := range plan {
			if err := os.RemoveAll(m.DataDir); err != nil {
				return nil, fmt.Errorf("store: starting again with other ports: %w", err)
			}
		}
	}
}

// StartMembers starts the members of one cluster at the same time and waits
// until each is ready to serve, or ctx ends. When one fails, all are stopped.
// The caller closes the cluster.
func StartMembers(ctx context.Context, plan []MemberConfig) (*LocalCluster, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cluster := &LocalCluster{members: make([]*Member, len(plan))}
	failures := make([]error, len(plan))
	var wg sync.WaitGroup
	for i, m := range plan {
		wg.Go(func() {
			if cluster.members[i], failures[i] = StartMember(ctx, m); failures[i] != nil {
				cancel(errOtherFailed) // the others would wait for this one's vote
			}
		})
	}
	wg.Wait()
	if err := firstFailure(failures); err != nil {
		cluster.members = slices.DeleteFunc(cluster.members, func(m *Member) bool { return m == nil })
		cluster.Kill()
		return nil, err
	}
	cluster.dying = make(chan error, len(plan))
	go cluster.watch()
	return cluster, nil
}

var errOtherFailed = errors.New("another member of the cluster failed to start")

// firstFailure prefers a failure of its own to one that another caused.
func firstFailure(failures []error) error {
	var caused error
	for _, err := range failures {
		if err != nil && !errors.Is(err, errOtherFailed) {
			return err
		}
		caused = cmp.Or(caused, err)
	}
	return caused
}

func (c *LocalCluster) watch() {
	defer close(c.dying)
	var wg sync.WaitGroup
	for _, m := range c.members {
		wg.Go(func() {
			if err := <-m.Err(); err != nil {
				c.dying <- err
			}
		})
	}
	wg.Wait()
}

// Members are in the order of their names.
func (c *LocalCluster) Members() []*Member { return slices.Clone(c.members) }

// Endpoints are the client URLs of all members.
func (c *LocalCluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.Endpoints()...)
	}
	return all
}

// Err gives one error for each member that ends by itself, and is closed when
// all have ended.
func (c *LocalCluster) Err() <-chan error { return c.dying }

// Close stops all members at the same time, cleanly, and returns when all is
// on disk. Nobody hands over a leadership: nobody stays. When ctx ends before,
// it returns the context's error and the members go on stopping.
func (c *LocalCluster) Close(ctx context.Context) error {
	return c.each(func(m *Member) error { return m.end(ctx, false) })
}

// Kill stops all members at once.
func (c *LocalCluster) Kill() {
	_ = c.each(func(m *Member) error { m.Kill(); return nil }) // always nil
}

func (c *LocalCluster) each(do func(*Member) error) error {
	failures := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { failures[i] = do(m) })
	}
	wg.Wait()
	return errors.Join(failures...)
}

// plan decides what the members are: those found in DataDir, or new ones.
func (c ClusterConfig) plan() (members []MemberConfig, fresh bool, err error) {
	if c.DataDir == "" {
		return nil, false, errors.New("store: no data directory for the cluster; give --data-dir")
	}
	found, err := c.findMembers()
	if err != nil {
		return nil, false, err
	}
	count := c.Members
	switch {
	case len(found) == 0 && count == 0:
		count = defaultMembers
	case count == 0:
		count = len(found)
	case len(found) != 0 && count != len(found):
		return nil, false, fmt.Errorf("store: %s holds a cluster of %d members, and %d were asked for; leave the number out to start what is there, or change the membership with etcdctl member add/remove",
			c.DataDir, len(found), count)
	}
	if len(found) == 0 {
		if err := c.checkSize(count); err != nil {
			return nil, false, err
		}
	}
	free, err := c.freePorts(count)
	if err != nil {
		return nil, false, err
	}
	var initial []string
	for i := range count {
		m := MemberConfig{Name: fmt.Sprintf("m%d", i+1), Settings: c.Settings}
		m.DataDir = filepath.Join(c.DataDir, m.Name)
		clientPort, peerPort := c.ports(i, free)
		m.ListenClientURLs = []string{memberURL(c.ClientTLS, clientPort)}
		m.ListenPeerURLs = []string{memberURL(c.PeerTLS, peerPort)}
		if len(found) != 0 {
			if err := c.adopt(&m, found[i]); err != nil {
				return nil, false, err
			}
		}
		m = m.withDefaults()
		initial = append(initial, m.InitialCluster)
		members = append(members, m)
	}
	for i := range members {
		members[i].InitialCluster = strings.Join(initial, ",")
	}
	return members, len(found) == 0, nil
}

// findMembers reads DataDir/m1, m2 … and checks that they are one cluster.
func (c ClusterConfig) findMembers() ([]existing, error) {
	var found []existing
	missing := 0
	for i := 1; missing == 0 || i <= maxMembers; i++ {
		dir := filepath.Join(c.DataDir, fmt.Sprintf("m%d", i))
		e, err := readExisting(dir, "")
		if err != nil {
			return nil, err
		}
		if e == nil {
			if missing == 0 {
				missing = i
			}
			continue
		}
		if missing != 0 {
			return nil, fmt.Errorf("store: %s is there and %s/m%d is not: a member's data is missing; a lone member can be started by itself, and a lost one replaced with etcdctl member remove and add", dir, c.DataDir, missing)
		}
		if len(found) != 0 && e.ClusterID != found[0].ClusterID {
			return nil, fmt.Errorf("store: %s belongs to cluster %x and %s/m1 to cluster %x: these directories are not of one cluster", dir, e.ClusterID, c.DataDir, found[0].ClusterID)
		}
		found = append(found, *e)
	}
	if len(found) != 0 && found[0].Members > len(found) && !c.Force {
		return nil, fmt.Errorf("store: the members in %s belong to a cluster of %d, and only %d directories are there; start them one by one, or force it", c.DataDir, found[0].Members, len(found))
	}
	if len(found) != 0 {
		return found, nil
	}
	// A file of that name, or a folder of something else, is nothing of ours.
	if entries, err := os.ReadDir(c.DataDir); err == nil {
		for _, entry := range entries {
			if entry.Name() == "member" {
				return nil, fmt.Errorf("store: %s is the data directory of one member, not a folder of several; start it as one member", c.DataDir)
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store: data directory of the cluster: %w", err)
	}
	return nil, nil
}

// maxMembers is as far as missing folders are looked past: etcd advises at
// most seven members.
const maxMembers = 9

func (c ClusterConfig) checkSize(n int) error {
	switch {
	case n == 1 || n == 3 || n == 5 || n == 7 || c.Force && n > 0 && n <= maxMembers:
		return nil
	case n > 0 && n%2 == 0 && n <= maxMembers:
		return fmt.Errorf("store: a cluster of %d members tolerates the loss of %d, no more than one of %d does, and has one more that can fail; use %d or %d, or force it", n, (n-1)/2, n-1, n-1, n+1)
	default:
		return fmt.Errorf("store: a local cluster of %d members: use 1, 3 or 5", n)
	}
}

// adopt keeps the addresses that an existing member is known by. Its peer URL
// stands in the membership and cannot be changed by starting it elsewhere.
func (c ClusterConfig) adopt(m *MemberConfig, e existing) error {
	if e.Name != "" && e.Name != m.Name {
		return fmt.Errorf("store: data directory %s belongs to member %q; a local cluster's members are named as their folders", m.DataDir, e.Name)
	}
	if c.FreePorts {
		if len(e.ClientURLs) != 0 {
			m.ListenClientURLs = e.ClientURLs
		}
		if len(e.PeerURLs) != 0 {
			m.ListenPeerURLs = e.PeerURLs
		}
		return nil
	}
	if len(e.PeerURLs) != 0 && !sameURLs(e.PeerURLs, m.ListenPeerURLs) {
		return fmt.Errorf("store: member %s in %s is known to its cluster as %s, and would listen on %s; use the ports that it was made with, or change its peer URL with etcdctl member update first",
			m.Name, m.DataDir, strings.Join(e.PeerURLs, ","), strings.Join(m.ListenPeerURLs, ","))
	}
	return nil
}

func (c ClusterConfig) freePorts(members int) ([]int, error) {
	if !c.FreePorts {
		if _, last := c.ports(members-1, nil); c.clientPort() < 1 || last > 65535 {
			return nil, fmt.Errorf("store: client port %d for %d members: their ports go up by %d from one to the next, up to %d, and 65535 is the last; choose a lower one, or any free ports", c.clientPort(), members, portStep, last)
		}
		return nil, nil
	}
	free, err := client.FreePorts(2 * members)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return free, nil
}

func (c ClusterConfig) clientPort() int {
	if c.ClientPort == 0 {
		return defaultClientPort
	}
	return c.ClientPort
}

// ports are 2379 and 2380, 22379 and 22380, 32379 … as in etcd's own Procfile,
// which leaves 12379 to its proxy.
func (c ClusterConfig) ports(i int, free []int) (client, peer int) {
	if free != nil {
		return free[2*i], free[2*i+1]
	}
	client = c.clientPort()
	if i > 0 {
		client += (i + 1) * portStep
	}
	return client, client + 1
}

const portStep = 10000

func memberURL(files TLSFiles, port int) string {
	scheme := "http"
	if files.Cert != "" {
		scheme = "https"
	}
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port)
}

// runTLSLife is longer than any cluster of a run serves: the key is gone with
// the run, not with the date.
const runTLSLife = 10 * 365 * 24 * time.Hour

// MakeRunTLS makes mutual TLS for a cluster that one run starts on this machine:
// others who can reach its ports, such as other users of the machine, can neither
// read nor write. It makes dir, for this user alone, with a CA whose key is
// never stored, and one certificate that members and clients show each other. The
// certificate is for the loopback addresses and for hosts. The caller removes dir.
func MakeRunTLS(dir string, hosts ...string) (TLSFiles, error) {
	files := TLSFiles{
		Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem"),
		ClientCertAuth: true,
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), files.make(hosts)); err != nil {
		return TLSFiles{}, fmt.Errorf("store: certificates for this run in %s: %w", dir, err)
	}
	return files, nil
}

func (t TLSFiles) make(hosts []string) error {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "requorum, CA of one run"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(runTLSLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leaf := &x509.Certificate{
		// Without a name: etcd would take it for that of a user who has logged in.
		SerialNumber: big.NewInt(2),
		NotBefore:    ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{{t.CA, "CERTIFICATE", caDER}, {t.Cert, "CERTIFICATE", leafDER}, {t.Key, "PRIVATE KEY", keyDER}} {
		if err := os.WriteFile(f.path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Client is how a client of MakeRunTLS's cluster connects.
func (t TLSFiles) Client() (*tls.Config, error) { return t.info().ClientConfig() }
