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
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
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

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
)

// ClusterConfig describes a cluster whose members all run in this process, on loopback.
type ClusterConfig struct {
	// DataDir holds one directory for each member: m1, m2 …
	DataDir string
	Members int // 1, 3 or 5
	// ClientPort is the first member's; 0 is 2379. Its peer port is one more; the
	// second member has 20000 more, the third 30000 and so on. FreePorts takes any free
	// ports instead. Both are for a new cluster: one that exists keeps its addresses.
	ClientPort int
	FreePorts  bool
	Settings
}

const (
	defaultClientPort = 2379
	portStep          = 10000
)

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
// directories are started as what they are, or not at all. The caller closes the cluster.
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
		// These directories were made a moment ago, by this call.
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

// Close stops all members at the same time, as Member.Close does.
func (c *LocalCluster) Close(ctx context.Context) error {
	return c.each(func(m *Member) error { return m.Close(ctx) })
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

// plan returns how to start the members, and whether they are new.
func (c ClusterConfig) plan() (members []MemberConfig, fresh bool, err error) {
	if c.Members != 1 && c.Members != 3 && c.Members != 5 {
		return nil, false, fmt.Errorf("store: a local cluster of %d members: use 1, 3 or 5", c.Members)
	}
	ports, err := c.ports()
	if err != nil {
		return nil, false, err
	}
	scheme := "http"
	if c.TLS.Cert != "" {
		scheme = "https"
	}
	for i := range c.Members {
		name := fmt.Sprintf("m%d", i+1)
		members = append(members, MemberConfig{
			Name: name, DataDir: filepath.Join(c.DataDir, name), Settings: c.Settings,
			ListenClientURLs: []string{fmt.Sprintf("%s://127.0.0.1:%d", scheme, ports[2*i])},
			ListenPeerURLs:   []string{fmt.Sprintf("%s://127.0.0.1:%d", scheme, ports[2*i+1])},
		})
	}
	if fresh, err = c.adopt(members); err != nil {
		return nil, false, err
	}
	var initial []string
	for _, m := range members {
		initial = append(initial, m.Name+"="+m.ListenPeerURLs[0])
	}
	for i := range members {
		members[i].InitialCluster = strings.Join(initial, ",")
	}
	return members, fresh, nil
}

// ports returns a client port and a peer port for each member: 2379 and 2380, 22379 and
// 22380, 32379 … as in etcd's own Procfile, which leaves 12379 to its proxy.
func (c ClusterConfig) ports() (all []int, err error) {
	if c.FreePorts {
		if all, err = client.FreePorts(2 * c.Members); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		return all, nil
	}
	port := cmp.Or(c.ClientPort, defaultClientPort)
	for i := range c.Members {
		if i == 1 {
			port += portStep
		}
		all = append(all, port+i*portStep, port+i*portStep+1)
	}
	if last := slices.Max(all); port < 1 || last > 65535 {
		return nil, fmt.Errorf("store: client port %d for %d members: their ports go up by %d from one to the next, up to %d, and 65535 is the last; choose a lower one, or any free ports", cmp.Or(c.ClientPort, defaultClientPort), c.Members, portStep, last)
	}
	return all, nil
}

// adopt gives members that exist the addresses that their cluster knows them by, and
// reports whether there are none. A directory is started as what it is, or not at all:
// under another name a member renames itself in the cluster, so that two have one name.
func (c ClusterConfig) adopt(members []MemberConfig) (fresh bool, err error) {
	var first *existing
	for i := range members {
		m := &members[i]
		e, err := readExisting(m.DataDir)
		if err != nil {
			return false, err
		}
		if i == 0 {
			first = e
		}
		switch {
		case e == nil && first == nil:
			continue
		case e == nil || first == nil:
			return false, fmt.Errorf("store: %s holds some of the members m1 to m%d only: a member's data is missing; start each that exists with its own etcd flags, and replace the lost one with etcdctl member remove and add", c.DataDir, len(members))
		case e.ClusterID != first.ClusterID:
			return false, fmt.Errorf("store: %s belongs to cluster %x and %s to cluster %x: these directories are not of one cluster", m.DataDir, e.ClusterID, members[0].DataDir, first.ClusterID)
		case e.Members != 0 && e.Members != len(members):
			return false, fmt.Errorf("store: %s holds a cluster of %d members, not of %d: start it with as many", c.DataDir, e.Members, len(members))
		case e.Name != "" && e.Name != m.Name:
			return false, fmt.Errorf("store: data directory %s belongs to member %q: a local cluster's members are named as their directories; rename it", m.DataDir, e.Name)
		}
		if len(e.PeerURLs) != 0 {
			m.ListenPeerURLs = e.PeerURLs
		}
		if len(e.ClientURLs) != 0 {
			m.ListenClientURLs = e.ClientURLs
		}
	}
	if first != nil {
		return false, nil
	}
	entries, err := os.ReadDir(c.DataDir)
	if err == nil && len(entries) != 0 {
		err = fmt.Errorf("%s is not empty: it holds %s; use an empty directory", c.DataDir, entries[0].Name())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("store: directory of a new cluster: %w", err)
	}
	return true, nil
}

// existing is what a data directory shows of its member.
type existing struct {
	ClusterID, MemberID  uint64
	Name                 string // empty if the database does not know it yet
	PeerURLs, ClientURLs []string
	Members              int // that the database knows
}

// lockWait is how long to wait for a database's lock. A member that is just ending
// frees it within that time.
const lockWait = time.Second

// readExisting reads a data directory without changing it. It returns nil if the
// directory has no WAL: etcd takes a directory with one for a member's.
func readExisting(dataDir string) (*existing, error) {
	walDir := filepath.Join(dataDir, "member", "wal")
	segments, err := safedir.Names(walDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("store: data directory %s: %w", dataDir, err)
	}
	segments = slices.DeleteFunc(segments, func(name string) bool { return !strings.HasSuffix(name, ".wal") })
	if len(segments) == 0 {
		return nil, nil
	}
	var e existing
	if e.MemberID, e.ClusterID, err = walIdentity(filepath.Join(walDir, segments[0])); err != nil {
		return nil, fmt.Errorf("store: data directory %s: who it belongs to cannot be read: %w", dataDir, err)
	}
	if err := e.readMembers(filepath.Join(dataDir, "member", "snap", "db")); err != nil {
		return nil, fmt.Errorf("store: data directory %s: %w", dataDir, err)
	}
	return &e, nil
}

// walIdentity reads the metadata record that opens each segment.
func walIdentity(path string) (memberID, clusterID uint64, err error) {
	f, err := safedir.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }() // only read
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	for {
		var record walpb.Record
		if err := decoder.Decode(&record); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, 0, fmt.Errorf("%s: looking for the metadata record: %w", path, err)
		}
		if record.GetType() != wal.MetadataType {
			continue
		}
		var metadata pb.Metadata
		if err := proto.Unmarshal(record.Data, &metadata); err != nil {
			return 0, 0, fmt.Errorf("%s: metadata record: %w", path, err)
		}
		return metadata.GetNodeID(), metadata.GetClusterID(), nil
	}
}

// readMembers looks the member up in its database. A directory whose database
// is not there yet is one that etcd was stopped in while it made it.
func (e *existing) readMembers(path string) error {
	if _, err := safedir.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		ReadOnly: true, Timeout: lockWait,
		OpenFile: func(name string, _ int, _ os.FileMode) (*os.File, error) { return safedir.Open(name) },
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return errors.New("another process uses it; stop that first")
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer func() { _ = db.Close() }() // only read
	return db.View(func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("members"))
		if bucket == nil {
			return nil
		}
		return bucket.ForEach(func(key, value []byte) error {
			var m struct {
				ID         uint64   `json:"id"`
				Name       string   `json:"name"`
				PeerURLs   []string `json:"peerURLs"`
				ClientURLs []string `json:"clientURLs"`
			}
			if err := json.Unmarshal(value, &m); err != nil {
				return fmt.Errorf("%s: member %s: %w", path, key, err)
			}
			e.Members++
			if m.ID == e.MemberID {
				e.Name, e.PeerURLs, e.ClientURLs = m.Name, m.PeerURLs, m.ClientURLs
			}
			return nil
		})
	})
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
	files := TLSFiles{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
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
