package control

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// noncesKept is more than a recovery needs; after as many a new session begins,
// for which no request of the old one counts. So none is ever forgotten.
const noncesKept = 1 << 16

// replays knows which requests have been seen.
type replays struct {
	mu      sync.Mutex
	session string
	began   time.Time
	seen    map[string]bool
}

func newReplays() *replays {
	r := &replays{}
	r.renew()
	return r
}

func (r *replays) renew() {
	r.session, r.began, r.seen = protocol.NewNonce(), time.Now(), map[string]bool{}
}

// clock is what a client has to know.
func (r *replays) clock() protocol.Clock {
	r.mu.Lock()
	defer r.mu.Unlock()
	return protocol.Clock{Session: r.session, Uptime: time.Since(r.began)}
}

// take lets a request through once. time.Since is monotonic: that somebody sets
// the host's clock changes nothing.
func (r *replays) take(h protocol.Header) (protocol.Code, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := protocol.CheckNonce(h.Nonce); err != nil {
		return protocol.BadRequest, err
	}
	if h.Session != r.session {
		return protocol.Stale, errors.New("the request is for another session of this process: it was started anew since, or the request is an old one: ask for the member's state and send a new one")
	}
	if r.seen[h.Nonce] {
		return protocol.Replayed, errors.New("this request was received before: a new one needs a new nonce")
	}
	if off := time.Since(r.began) - h.At; off.Abs() > protocol.Window {
		return protocol.Stale, fmt.Errorf("the request is of %v ago, which is beyond %v: ask for the member's state and send a new one", off.Round(time.Second), protocol.Window)
	}
	if len(r.seen) >= noncesKept {
		r.renew()
		return protocol.Stale, errors.New("a new session begins with this request: ask for the member's state and send a new one")
	}
	r.seen[h.Nonce] = true
	return "", nil
}
