package recovertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/requorum/requorum/store/storetest"
)

// Options say what to start.
type Options struct {
	Version string // of etcd: 3.5, 3.6 or 3.7
	Hosts   int    // 0 is 3
	// Spare hosts have no member as yet: new hardware.
	Spare int
	// Repository is for the agents, the hosts and the operator. Where
	// there is one, an agent beside each member archives every second.
	Repository RepositoryKind
	// NoAgents leaves the agents out: the repository, on disk, has what the test stores.
	NoAgents bool
	// Clients: on each host runs a client of the cluster.
	Clients  bool
	EtcdArgs []string
}

// Site is a cluster on hosts of its own, and the operator's machine.
type Site struct {
	*storetest.Operator
	Cluster    string // its name in the cluster file
	Repository string // its URL; empty where there is none

	options Options
	etcd    string
	number  int
	dir     string
	hosts   []*Host
}

// Start starts a cluster and waits until all its members serve. Everything ends
// with the test, which shows the logs when it failed.
func Start(t testing.TB, o Options) *Site {
	t.Helper()
	s := newSite(t, o)
	for _, h := range s.hosts {
		h.configure(t)
	}
	for _, h := range s.Members() {
		h.StartEtcd(t)
	}
	s.WaitReady(t, s.Members()...)
	for _, h := range s.Members() {
		if o.Clients {
			h.StartFront(t)
		}
		if s.Repository != "" && !o.NoAgents {
			h.StartAgent(t)
		}
	}
	if s.Repository != "" && !o.NoAgents {
		s.waitArchived(t)
	}
	return s
}

// newSite has hosts with addresses, a repository, and nothing that runs.
func newSite(t testing.TB, o Options) *Site {
	t.Helper()
	needNetwork(t)
	if o.Hosts == 0 {
		o.Hosts = 3
	}
	s := &Site{Cluster: "production", options: o, dir: t.TempDir()}
	s.Operator = storetest.NewOperator(t)
	var err error
	// As the kernel names a process's program.
	s.etcd, err = filepath.EvalSymlinks(storetest.Binary(t, o.Version, "etcd"))
	require.NoError(t, err)
	number, lock := takeNumber(t)
	s.number = number
	t.Cleanup(func() {
		s.showLogs(t)
		sweep(t, number)
		lock.Close()
	})
	addBridge(t, number)
	s.openRepository(t)
	for i := range o.Hosts + o.Spare {
		s.hosts = append(s.hosts, s.addHost(t, i+1))
	}
	return s
}

func (s *Site) showLogs(t testing.TB) {
	if !t.Failed() {
		return
	}
	for _, h := range s.hosts {
		for _, name := range []string{"etcd.log", "agent.log", "state/state.json"} {
			if path := filepath.Join(h.dir, name); exists(path) {
				t.Logf("end of %s:\n%s", path, storetest.Tail(path, 50))
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Hosts are all of them, spare ones last.
func (s *Site) Hosts() []*Host { return s.hosts }

// Members are the hosts that began with a member.
func (s *Site) Members() []*Host { return s.hosts[:s.options.Hosts] }

// Host is the i-th, from 0.
func (s *Site) Host(i int) *Host { return s.hosts[i] }

// Address is the operator's in the hosts' network.
func (s *Site) Address() string { return address(s.number, 254) }

// InitialCluster is the members that the cluster began with.
func (s *Site) InitialCluster() string {
	var parts []string
	for _, h := range s.Members() {
		parts = append(parts, h.Name+"="+h.PeerURL)
	}
	return strings.Join(parts, ",")
}

// Client is an ordinary etcd client of these hosts' members. It ends with the
// test.
func (s *Site) Client(t testing.TB, hosts ...*Host) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, h := range hosts {
		endpoints = append(endpoints, h.ClientURL)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, DialOptions: []grpc.DialOption{
		storetest.AskAgain(),
		// By default a host that was away for a minute is asked half a minute later.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}, MinConnectTimeout: 5 * time.Second}),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// KillAll is a power cut that takes all members at the same moment, and leaves
// the hosts. Find looks for them before: call it right after what is to be the
// last thing that they did.
func (s *Site) KillAll(t testing.TB) {
	t.Helper()
	s.Strike(t)()
}

// Strike finds the members' processes, for a power cut without delay.
func (s *Site) Strike(t testing.TB) (strike func()) {
	t.Helper()
	var all []*os.Process
	for _, h := range s.hosts {
		for _, pid := range h.Etcd(t) {
			p, err := os.FindProcess(pid)
			require.NoError(t, err)
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		t.Fatal("no member runs")
	}
	return func() {
		for _, p := range all {
			_ = p.Kill() // seen below
		}
		var gone sync.WaitGroup
		for _, h := range s.hosts {
			gone.Go(func() { h.KillEtcd(t) })
		}
		gone.Wait()
	}
}

// Lose ends hosts for good, all at once: their processes, links and disks.
func (s *Site) Lose(t testing.TB, hosts ...*Host) {
	t.Helper()
	for _, h := range hosts {
		h.Down(t)
	}
	for _, h := range hosts {
		h.DiskLost(t)
	}
}

func (s *Site) path(h int, elem ...string) string {
	return filepath.Join(append([]string{s.dir, fmt.Sprint("m", h)}, elem...)...)
}
