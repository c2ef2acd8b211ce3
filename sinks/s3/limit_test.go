package s3_test

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
)

// meter is a TCP proxy that notes when how many bytes came from either side.
type meter struct {
	mu       sync.Mutex
	up, down []moved
}

type moved struct {
	at time.Time
	n  int
}

func newMeter(t *testing.T, target string) (m *meter, endpoint string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	m = &meter{}
	pass := func(from, to net.Conn, into *[]moved) {
		defer to.Close()
		b := make([]byte, 32<<10)
		for {
			n, err := from.Read(b)
			m.mu.Lock()
			*into = append(*into, moved{time.Now(), n})
			m.mu.Unlock()
			if _, errTo := to.Write(b[:n]); err != nil || errTo != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(target, "http://"))
			if err != nil {
				client.Close()
				return
			}
			// What a proxy takes in ahead of a slow client is not on the client's line.
			_ = client.(*net.TCPConn).SetWriteBuffer(16 << 10)
			_ = server.(*net.TCPConn).SetReadBuffer(16 << 10)
			go pass(client, server, &m.up)
			go pass(server, client, &m.down)
		}
	}()
	return m, "http://" + l.Addr().String()
}

// stalls notes for how long at most this process did not run when it wanted to: what
// the proxy then takes in at once came over the line before.
func stalls(t *testing.T) (longest func() time.Duration) {
	var most atomic.Int64
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		const pause = 2 * time.Millisecond
		for begin := time.Now(); ; begin = time.Now() {
			select {
			case <-done:
				return
			case <-time.After(pause):
				most.Store(max(most.Load(), int64(time.Since(begin)-pause)))
			}
		}
	}()
	return func() time.Duration { return time.Duration(most.Load()) }
}

// fastest is the most bytes of any second, and mean what came a second.
func fastest(all []moved) (most int, mean float64) {
	sum, total, from := 0, 0, 0
	for _, one := range all {
		for sum, total = sum+one.n, total+one.n; one.at.Sub(all[from].at) >= time.Second; from++ {
			sum -= all[from].n
		}
		most = max(most, sum)
	}
	return most, float64(total) / all[len(all)-1].at.Sub(all[0].at).Seconds()
}

// Limits hold at the connection, over any second within a tenth, with all parts and
// ranges that are under way at once.
func TestLimitsHoldAtTheConnection(t *testing.T) {
	t.Parallel()
	const limit = 5 << 20
	server := versity(t)
	data := sinktest.Random(1, 20<<20) // parts, and ranges read at once
	for name, limits := range map[string]sinks.Limits{"up": {Up: limit}, "down": {Down: limit}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			stalled := stalls(t)
			m, endpoint := newMeter(t, server.Endpoint)
			s := open(t, server, server.URLThrough(endpoint, "plain", name), func(c *s3.Config) { c.Limits = limits })
			_, err := store(s, "object", data)
			require.NoError(t, err)
			holds(t, s, "object", data)
			m.mu.Lock()
			defer m.mu.Unlock()
			all := m.up
			if limits.Down > 0 {
				all = m.down
			}
			var large []moved // of the object, not of the answers around it
			for _, one := range all {
				if one.n > 0 {
					large = append(large, one)
				}
			}
			most, mean := fastest(large)
			t.Logf("%s: at most %.2f MiB in a second, %.2f MiB/s in the mean", name, float64(most)/(1<<20), mean/(1<<20))
			if late := stalled(); float64(most) > limit*(1.1+late.Seconds()) {
				t.Errorf("%d bytes in a second, the limit is %d, and the proxy was late by %s at most", most, limit, late)
			}
		})
	}
}
