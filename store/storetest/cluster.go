package storetest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/requorum/requorum/store/internal/ports"
)

// The user that Options.Auth and Load.Users make.
const (
	RootUser     = "root"
	RootPassword = "root-password"
)

// Options say what to start.
type Options struct {
	Version string // 3.4, 3.5, 3.6 or 3.7
	Members int    // 0 is 1
	TLS     bool   // clients with certificates, peers too
	// Auth makes the root user and turns authentication on; with DataDirs it says
	// that they have it on.
	Auth      bool
	ExtraArgs []string // for each member
	Dir       string   // for data and logs; empty: one of the test
	Token     string   // initial-cluster-token

	// DataDirs are existing data directories, by member, to start instead of new
	// ones; InitialCluster then says where each listens for peers.
	DataDirs       map[string]string
	InitialCluster string
}

// Cluster is a set of running etcd processes.
type Cluster struct {
	options   Options
	binary    string
	authority *Authority // with TLS
	auth      bool

	mu       sync.Mutex
	members  []*Member
	isolated map[int]bool
}

// Member is one of the processes, running or not.
type Member struct {
	Name      string
	DataDir   string
	ClientURL string
	PeerURL   string // as the membership knows it
	Log       string // file

	listenPeer string
	proxy      *Proxy
	state      string // initial-cluster-state
	binary     string // of another version than the cluster's; empty: none
	process    *process
}

// Start starts a cluster and waits until all its members serve. It ends with
// the test, which shows the logs when it failed.
func Start(t testing.TB, options Options) *Cluster {
	t.Helper()
	if options.Members == 0 {
		options.Members = max(1, len(options.DataDirs))
	}
	if options.Dir == "" {
		options.Dir = t.TempDir()
	}
	c := &Cluster{options: options, binary: Binary(t, options.Version, "etcd"), isolated: map[int]bool{}}
	if options.TLS {
		c.authority = NewAuthority(t)
		for _, name := range []string{"server", "client"} {
			c.authority.Issue(t, name, time.Hour)
		}
	}
	t.Cleanup(func() { c.end(t) })
	const attempts = 5
	for attempt := 1; ; attempt++ {
		err := c.startAll()
		if err == nil {
			break
		}
		if !errors.Is(err, errPortTaken) || attempt == attempts {
			t.Fatalf("etcd %s: %v", options.Version, err)
		}
		c.drop(t)
	}
	if len(options.DataDirs) != 0 {
		c.auth = options.Auth
	} else if options.Auth {
		c.enableAuth(t)
	}
	return c
}

// StartFromDataDirs starts members from restored data directories. The peer
// URLs in initialCluster (see InitialCluster) are those they were restored for.
func StartFromDataDirs(t testing.TB, version string, dirs map[string]string, initialCluster string) *Cluster {
	t.Helper()
	return Start(t, Options{Version: version, DataDirs: dirs, InitialCluster: initialCluster})
}

// InitialCluster is an initial cluster on free ports of loopback, for members
// of these names.
func InitialCluster(t testing.TB, names ...string) string {
	t.Helper()
	free, err := ports.Free(len(names))
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for i, name := range names {
		parts = append(parts, fmt.Sprintf("%s=http://127.0.0.1:%d", name, free[i]))
	}
	return strings.Join(parts, ",")
}

// errPortTaken says that somebody else took a port before the server did.
var errPortTaken = errors.New("a port was taken")

func (c *Cluster) startAll() error {
	if err := c.layOut(); err != nil {
		return err
	}
	for i := range c.members {
		if err := c.launch(i); err != nil {
			return err
		}
	}
	return c.waitHealthy(60 * time.Second)
}

// drop forgets everything, to begin anew with other ports.
func (c *Cluster) drop(t testing.TB) {
	c.killAll()
	for _, m := range c.members {
		if len(c.options.DataDirs) == 0 {
			if err := os.RemoveAll(m.DataDir); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(m.Log); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	c.members = nil
}

func (c *Cluster) killAll() {
	for _, m := range c.members {
		if m.process != nil {
			m.process.kill()
		}
		if m.proxy != nil {
			m.proxy.close()
		}
	}
}

func (c *Cluster) end(t testing.TB) {
	c.killAll()
	if t.Failed() {
		for _, m := range c.members {
			t.Logf("end of the log of %s:\n%s", m.Name, tail(m.Log, 40))
		}
	}
}

// Size is the number of members, running or not.
func (c *Cluster) Size() int { return len(c.members) }

// Member is the i-th, from 0.
func (c *Cluster) Member(i int) *Member { return c.members[i] }

// Version is that of the servers, as in Options.
func (c *Cluster) Version() string { return c.options.Version }

// Endpoints are the client URLs of all members.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.ClientURL)
	}
	return all
}

// Kill is kill -9 of a member, Stop a clean end; both return when it is gone.
func (c *Cluster) Kill(i int) { c.members[i].process.kill() }

// Stop ends a member cleanly.
func (c *Cluster) Stop(i int) { c.members[i].process.stop() }

// StopAll ends all members cleanly, at the same time.
func (c *Cluster) StopAll() {
	var wg sync.WaitGroup
	for i := range c.members {
		wg.Go(func() { c.Stop(i) })
	}
	wg.Wait()
}

// Restart starts a member that was ended, with the addresses it had. It does
// not wait: see WaitReady.
func (c *Cluster) Restart(t testing.TB, i int) {
	t.Helper()
	if c.members[i].process.running() {
		t.Fatalf("member %s still runs", c.members[i].Name)
	}
	if err := c.launch(i); err != nil {
		t.Fatal(err)
	}
}
