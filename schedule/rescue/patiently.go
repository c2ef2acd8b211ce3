package rescue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/schedule/control/protocol"
)

const (
	// watchAfter is how long an action on a host may take until it is told what is
	// waited for there, and watchEvery how often that is repeated: a kubelet may need
	// two minutes to take a pod down.
	watchAfter = 2 * time.Second
	watchEvery = 15 * time.Second
)

// patiently tells what a host waits for, and how long at most, while an action goes
// on there; the caller calls ended once it does not any more.
func (d *driver) patiently(ctx context.Context, p Phase, h *host) (ended func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		began := time.Now()
		for wait := d.watchAfter; pause(ctx, wait) == nil; wait = watchEvery {
			m, err := h.client.Member(ctx, false)
			if err != nil {
				continue // who acts finds out, and tells
			}
			if text := waitsFor(p, m); text != "" && ctx.Err() == nil {
				d.told.waiting(p, fmt.Sprintf("%s: %s (%s so far)", h.Member, text, time.Since(began).Round(time.Second)))
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// waitsFor says whom the action of a phase waits for on a host; empty where nothing
// tells.
func waitsFor(p Phase, m *protocol.Member) string {
	switch p {
	case PhaseQuiesce, PhaseUndoQuiesce, PhaseResume, PhaseUndoResume:
		i := slices.IndexFunc(m.Clients, func(c protocol.ClientState) bool { return c.Timeout > 0 })
		if i < 0 {
			return ""
		}
		c := m.Clients[i]
		text := fmt.Sprintf("client %s is %s, for which it gets %s at most", c.Name, c.Phase, c.Timeout)
		if c.Phase == protocol.ClientStopping && c.Why != "" {
			text += ": " + c.Why
		}
		return text
	case PhaseFence, PhaseUndoStop:
		if m.NotStopped != "" {
			return fmt.Sprintf("the member is stopping, for which it gets %s at most: %s", m.StopTimeout, m.NotStopped)
		}
	case PhaseStart, PhaseUndoStart:
		return fmt.Sprintf("the member is starting, for which it gets %s at most", m.StartTimeout)
	default:
	}
	return ""
}
