package storetest

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Isolate cuts a member off from its peers, in both directions, and leaves its
// clients connected. It returns when the member has noticed: it sees no leader,
// or a leader gave up.
func (c *Cluster) Isolate(t testing.TB, i int) {
	t.Helper()
	c.CutOff(t, i)
	client := c.Client(t, i)
	Eventually(t, c.members[i].Name+" sees no leader", func() error {
		resp, err := client.Status(t.Context(), c.members[i].ClientURL)
		if err == nil && resp.Leader != 0 {
			err = fmt.Errorf("it sees %x", resp.Leader)
		}
		return err
	})
}

// CutOff is Isolate, and returns at once: a leader believes for up to an
// election timeout that it still leads, and writes into its log what nobody will
// ever acknowledge.
func (c *Cluster) CutOff(t testing.TB, i int) {
	t.Helper()
	if c.members[i].proxy == nil {
		t.Fatal("members that were started from data directories cannot be isolated: nothing stands between them")
	}
	c.mu.Lock()
	c.isolated[i] = true
	c.mu.Unlock()
	c.members[i].proxy.Cut()
	var others []net.Conn
	for _, m := range c.members {
		others = append(others, m.proxy.clients()...)
	}
	others = c.refused(-1, others...)
	for _, m := range c.members {
		m.proxy.cut(others)
	}
}

// Rejoin ends an Isolate. See WaitReady.
func (c *Cluster) Rejoin(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.isolated, i)
}

func (c *Cluster) isIsolated(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isolated[i]
}

// refused are those of the connections to a member's peer port (-1: to anybody's)
// that an isolation forbids. Whose they are is asked only while there is one: etcd
// tries a dead peer many times a second, and the kernel takes milliseconds to list
// its connections.
func (c *Cluster) refused(to int, conns ...net.Conn) []net.Conn {
	c.mu.Lock()
	isolated := maps.Clone(c.isolated)
	pids := make([]int, len(c.members))
	for i, m := range c.members {
		if m.process != nil {
			pids[i] = m.process.Cmd.Process.Pid
		}
	}
	c.mu.Unlock()
	switch {
	case len(isolated) == 0:
		return nil
	case isolated[to]:
		return conns
	}
	from := owners(conns, pids)
	return slices.DeleteFunc(conns, func(conn net.Conn) bool {
		i, known := from[conn]
		return known && !isolated[i] // who cannot be distinguished may be the isolated one
	})
}

// Proxy forwards TCP connections, until it is asked to cut or to stall them.
type Proxy struct {
	listener net.Listener
	target   string
	refused  func(...net.Conn) []net.Conn // of the clients; nil: none is

	mu      sync.Mutex
	idle    *sync.Cond // signals a change of stalled
	stalled bool
	conns   map[net.Conn]net.Conn // the clients', and those to the server
	shut    bool
	after   int64 // bytes towards the client until it stalls; 0: no bound
	towards int64 // bytes towards the clients so far
}

// NewProxy listens on a free port of an address and forwards to target (host:port). It ends
// with the test.
func NewProxy(t testing.TB, address, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	require.NoError(t, err)
	p := serveProxy(l, target, nil)
	t.Cleanup(p.close)
	return p
}

func serveProxy(l net.Listener, target string, refused func(...net.Conn) []net.Conn) *Proxy {
	p := &Proxy{listener: l, target: target, refused: refused, conns: map[net.Conn]net.Conn{}}
	p.idle = sync.NewCond(&p.mu)
	go p.serve()
	return p
}

// Addr is host:port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Stall stops forwarding in both directions and keeps the connections.
func (p *Proxy) Stall() { p.set(func() { p.stalled = true }) }

// StallAfter forwards, and stalls once n more bytes went towards the client.
func (p *Proxy) StallAfter(n int64) { p.set(func() { p.stalled, p.after = false, n }) }

// Resume ends a Stall.
func (p *Proxy) Resume() { p.set(func() { p.stalled, p.after = false, 0 }) }

// Forwarded is how many bytes have come from the server, for all clients.
func (p *Proxy) Forwarded() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.towards
}

// Cut closes all connections; new ones are forwarded.
func (p *Proxy) Cut() { p.cut(p.clients()) }

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.idle.Broadcast()
}

func (p *Proxy) clients() []net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.conns))
}

func (p *Proxy) cut(clients []net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, client := range clients {
		if server := p.conns[client]; server != nil {
			client.Close()
			server.Close()
		}
	}
}

func (p *Proxy) close() {
	p.listener.Close()
	p.set(func() { p.shut = true })
	p.Cut()
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		go p.forward(client)
	}
}

func (p *Proxy) forward(client net.Conn) {
	defer client.Close()
	if p.refused != nil && len(p.refused(client)) > 0 {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	if p.shut {
		p.mu.Unlock()
		return
	}
	p.conns[client] = server
	p.mu.Unlock()
	defer p.set(func() { delete(p.conns, client) })
	if p.refused != nil && len(p.refused(client)) > 0 {
		return // a cut between the first question and the entry above missed this one
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(server, client, false) })
	wg.Go(func() { p.copy(client, server, true) })
	wg.Wait()
}

// copy ends both directions when one ends: half-closed connections matter to
// none of the protocols that go through here.
func (p *Proxy) copy(to, from net.Conn, towardsClient bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.wait(n, towardsClient)
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) wait(n int, towardsClient bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if towardsClient {
		p.towards += int64(n)
		if p.after > 0 {
			if p.after -= int64(n); p.after <= 0 {
				p.after, p.stalled = 0, true
			}
		}
	}
	for p.stalled && !p.shut {
		p.idle.Wait()
	}
}

// Freeze stops a member's process where it stands, until Thaw: it keeps its
// connections and answers nobody. It returns when all of its threads stand.
func (c *Cluster) Freeze(t testing.TB, i int) {
	t.Helper()
	c.signal(t, i, syscall.SIGSTOP)
	t.Cleanup(func() {
		_ = c.members[i].process.Cmd.Process.Signal(syscall.SIGCONT) // so that it can be stopped; it may have ended
	})
	Eventually(t, c.members[i].Name+" stands", func() error {
		if !stands(c.Pid(i)) {
			return errors.New("it runs on after SIGSTOP")
		}
		return nil
	})
}

// stands says that no thread of a process runs (proc(5), stat: the state follows the
// name in parentheses).
func stands(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return true // it has ended, or the system has no such files
	}
	return !slices.ContainsFunc(threads, func(path string) bool {
		data, err := os.ReadFile(path)
		_, state, ok := strings.Cut(string(data), ") ")
		return err == nil && ok && !strings.HasPrefix(state, "T")
	})
}

// Thaw lets a frozen member go on.
func (c *Cluster) Thaw(t testing.TB, i int) {
	t.Helper()
	c.signal(t, i, syscall.SIGCONT)
}

func (c *Cluster) signal(t testing.TB, i int, s syscall.Signal) {
	t.Helper()
	require.NoError(t, c.members[i].process.Cmd.Process.Signal(s), "member %s: %s", c.members[i].Name, s)
}
