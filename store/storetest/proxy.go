package storetest

import (
	"net"
	"sync"
	"testing"
)

// Proxy forwards TCP connections, until it is told to cut or to stall them.
type Proxy struct {
	listener net.Listener
	target   string
	admit    func(net.Conn) (from int, ok bool) // nil: everybody

	mu      sync.Mutex
	idle    *sync.Cond // signals a change of stalled
	stalled bool
	conns   map[net.Conn]int // both ends, and who they are from
	shut    bool
	after   int64 // bytes towards the client until it stalls; 0: no bound
	towards int64 // bytes towards the clients so far
}

// NewProxy listens on a free port of loopback and forwards to target
// (host:port). It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := serveProxy(l, target, nil)
	t.Cleanup(p.close)
	return p
}

func serveProxy(l net.Listener, target string, admit func(net.Conn) (int, bool)) *Proxy {
	p := &Proxy{listener: l, target: target, admit: admit, conns: map[net.Conn]int{}}
	p.idle = sync.NewCond(&p.mu)
	go p.serve()
	return p
}

// Addr is host:port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Stall stops forwarding in both directions and keeps the connections.
func (p *Proxy) Stall() { p.set(func() { p.stalled = true }) }

// StallAfter stalls once n more bytes went towards the client.
func (p *Proxy) StallAfter(n int64) { p.set(func() { p.after = n }) }

// Resume ends a Stall.
func (p *Proxy) Resume() { p.set(func() { p.stalled, p.after = false, 0 }) }

// Forwarded is how many bytes have come from the server, for all clients.
func (p *Proxy) Forwarded() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.towards
}

// Cut closes all connections; new ones are forwarded.
func (p *Proxy) Cut() { p.cut(func(int) bool { return true }) }

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.idle.Broadcast()
}

// cut closes the connections whose origin is chosen.
func (p *Proxy) cut(chosen func(from int) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn, from := range p.conns {
		if chosen(from) {
			conn.Close()
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
	from := -1
	if p.admit != nil {
		var ok bool
		if from, ok = p.admit(client); !ok {
			return
		}
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
	p.conns[client], p.conns[server] = from, from
	p.mu.Unlock()
	if p.admit != nil {
		// A cut between the first question and the entry above missed this one.
		if _, ok := p.admit(client); !ok {
			client.Close()
		}
	}
	defer p.set(func() {
		delete(p.conns, client)
		delete(p.conns, server)
	})
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
