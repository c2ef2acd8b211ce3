// Package storetest starts real etcd servers of each version for tests: as
// processes of the real binaries, with their logs kept and shown when the test
// fails, and gone when the test is.
//
// A server that cannot be had is a skipped test, loudly; with REQUORUM_CI=1 it
// is a failed one.
package storetest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// The user that Options.Auth and Load.Users make.
const (
	RootUser     = "root"
	RootPassword = "root-password"
)

// Options say what to start.
type Options struct {
	Version string // 3.5, 3.6 or 3.7
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
	ports    []int // its own until it ends
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
	process    *Process
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
	require.NoError(t, c.layOut())
	for i := range c.members {
		require.NoError(t, c.launch(i))
	}
	c.WaitReady(t)
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
	free := portsUntilEnd(t, len(names))
	var parts []string
	for i, name := range names {
		parts = append(parts, fmt.Sprintf("%s=http://127.0.0.1:%d", name, free[i]))
	}
	return strings.Join(parts, ",")
}

// FreeAddress is one of loopback where nobody listens, and the test's until it ends.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", portsUntilEnd(t, 1)[0])
}

func (c *Cluster) end(t testing.TB) {
	for _, m := range c.members {
		m.process.Kill()
		if m.proxy != nil {
			m.proxy.close()
		}
	}
	releasePorts(c.ports)
	if t.Failed() {
		for _, m := range c.members {
			t.Logf("end of the log of %s:\n%s", m.Name, Tail(m.Log, 40))
		}
	}
}

// Size is the number of members, running or not.
func (c *Cluster) Size() int { return len(c.members) }

// Member is the i-th, from 0.
func (c *Cluster) Member(i int) *Member { return c.members[i] }

// Pid is the process of a member.
func (c *Cluster) Pid(i int) int { return c.members[i].process.Cmd.Process.Pid }

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
func (c *Cluster) Kill(i int) { c.members[i].process.Kill() }

// Stop ends a member cleanly.
func (c *Cluster) Stop(i int) { c.members[i].process.Stop(20 * time.Second) }

// StopAll ends all members cleanly, at the same time.
func (c *Cluster) StopAll() {
	var wg sync.WaitGroup
	for i := range c.members {
		wg.Go(func() { c.Stop(i) })
	}
	wg.Wait()
}

// KillAll is a power cut.
func (c *Cluster) KillAll() {
	var all sync.WaitGroup
	for i := range c.members {
		all.Go(func() { c.Kill(i) })
	}
	all.Wait()
}

// Restart starts a member that was ended, with the addresses it had, and for this run with
// more arguments, such as --force-new-cluster. It does not wait: see WaitReady.
func (c *Cluster) Restart(t testing.TB, i int, args ...string) {
	t.Helper()
	if c.members[i].process.Running() {
		t.Fatalf("member %s still runs", c.members[i].Name)
	}
	require.NoError(t, c.launch(i, args...))
}

// startEtcd appends what the server prints to the file log.
func startEtcd(binary, log string, args []string) (*Process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
	return StartProcess(cmd, log)
}

// WaitReady waits until each running member that is not isolated serves with
// a quorum.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	if c.options.TLS {
		cert, err := tls.LoadX509KeyPair(filepath.Join(c.authority.dir, "client.pem"), filepath.Join(c.authority.dir, "client.key"))
		require.NoError(t, err)
		transport.TLSClientConfig = &tls.Config{RootCAs: c.authority.Trusted(), Certificates: []tls.Certificate{cert}}
	}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	for i, m := range c.members {
		if c.isIsolated(i) {
			continue
		}
		Eventually(t, m.Name+" is ready", func() error {
			if !m.process.Running() {
				t.Fatalf("member %s has ended", m.Name)
			}
			return Healthy(client, m.ClientURL)
		})
	}
}

// Healthy asks a member itself, which reads through the quorum to answer. A
// learner cannot, and answers all the same when it serves.
func Healthy(client *http.Client, url string) error {
	resp, err := client.Get(url + "/health?exclude=NOSPACE")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var body struct{ Health, Reason string }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return err
	}
	if body.Health != "true" {
		return fmt.Errorf("health %q: %s", body.Health, body.Reason)
	}
	return nil
}

// RestartAs starts a member that was ended with another version's etcd, which
// it keeps; see WaitReady. This is how a rolling upgrade goes.
func (c *Cluster) RestartAs(t testing.TB, i int, version string) {
	t.Helper()
	c.members[i].binary = Binary(t, version, "etcd")
	c.Restart(t, i)
}

// WriteOut makes a member apply all that was acknowledged, and write it to its
// database's file, which it does by itself a while later.
func (c *Cluster) WriteOut(t testing.TB, i int) {
	t.Helper()
	client := c.Client(t, i)
	Eventually(t, c.members[i].Name+" has applied all", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := client.Get(ctx, "x")
		return err
	})
	// Before etcd streams its database it commits what it has gathered.
	stream, err := client.Snapshot(t.Context())
	if err == nil {
		_, err = io.Copy(io.Discard, stream)
		err = errors.Join(err, stream.Close())
	}
	require.NoError(t, err, "member %s", c.members[i].Name)
}

// CopyData copies a member's data directory as it lies there: of a stopped
// member a backup as people make them, of a running one what a disk snapshot
// might hold. What etcd allocated for later takes no room there.
func (c *Cluster) CopyData(t testing.TB, i int, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", "--sparse=always", c.members[i].DataDir, to).CombinedOutput(); err != nil {
		t.Fatalf("copying the data directory of %s: %v\n%s", c.members[i].Name, err, out)
	}
}

const (
	reconfigureTry = 5 * time.Second
	reconfigureAll = 40 * time.Second
)

// Reconfigure changes a cluster's members, and tries again: a young cluster refuses
// for 5 s, and raft drops a change that comes before the one before it is applied,
// without a word to who waits for it. An error that is among done says that an
// earlier try had done it.
func Reconfigure(t testing.TB, change func(context.Context) error, done ...error) {
	t.Helper()
	for deadline := time.Now().Add(reconfigureAll); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), reconfigureTry)
		err := change(ctx)
		cancel()
		if err == nil || slices.ContainsFunc(done, func(d error) bool { return errors.Is(err, d) }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("change the members: %v", err)
		}
	}
}

// AddLearner adds a learner to the cluster, waits until it has caught up, and
// gives its number.
func (c *Cluster) AddLearner(t testing.TB) int {
	t.Helper()
	client := c.Client(t)
	require.NoError(t, c.addMember("learner", filepath.Join(c.options.Dir, "learner"), "existing"))
	i := len(c.members) - 1
	Reconfigure(t, func(ctx context.Context) error {
		_, err := client.MemberAddAsLearner(ctx, []string{c.members[i].PeerURL})
		return err
	}, rpctypes.ErrPeerURLExist)
	c.waitListed(t, i)
	require.NoError(t, c.launch(i))
	Eventually(t, "the learner has caught up", func() error {
		leader, err := client.Status(t.Context(), c.members[0].ClientURL)
		if err != nil {
			return err
		}
		resp, err := client.Status(t.Context(), c.members[i].ClientURL)
		if err == nil && resp.RaftAppliedIndex < leader.RaftAppliedIndex {
			err = fmt.Errorf("it is at index %d, and the others at %d", resp.RaftAppliedIndex, leader.RaftAppliedIndex)
		}
		return err
	})
	return i
}

// waitListed waits until each running member knows the one at i: a new one asks any of
// them who is in the cluster, and ends where it is not.
func (c *Cluster) waitListed(t testing.TB, i int) {
	t.Helper()
	for k := range i {
		if !c.members[k].process.Running() || c.isIsolated(k) {
			continue
		}
		client := c.Client(t, k)
		Eventually(t, c.members[k].Name+" lists "+c.members[i].Name, func() error {
			list, err := client.MemberList(t.Context())
			if err == nil && !slices.ContainsFunc(list.Members, func(m *pb.Member) bool { return slices.Contains(m.PeerURLs, c.members[i].PeerURL) }) {
				err = fmt.Errorf("it lists %v", list.Members)
			}
			return err
		})
	}
}

// AwaitLog gives what waits until a member logs something anew, from now on, or until over is closed.
func (c *Cluster) AwaitLog(t testing.TB, member int, what string) func(over <-chan struct{}) {
	t.Helper()
	read := func() string {
		data, err := os.ReadFile(c.Member(member).Log)
		require.NoError(t, err)
		return string(data)
	}
	before := len(read())
	return func(over <-chan struct{}) {
		for !strings.Contains(read()[before:], what) {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}
