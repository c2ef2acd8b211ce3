package rescue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/journal"
)

const (
	// patience is how long a host may be unreachable in the middle of an action: a
	// control process that was ended comes back sooner, where a supervisor has it.
	patience = 30 * time.Second
	// again is how long to wait before an action is repeated.
	again = 250 * time.Millisecond
	// tellEvery is how often it is said what is waited for.
	tellEvery = 5 * time.Second
)

// outcome is what a step came to on a host: for the journal, and in a few words.
type outcome struct {
	result any
	detail string
}

// each carries a phase out on hosts, at the same time. Those where the journal has
// it as done are passed by, unless anew. What fails on one host does not end it on
// the others.
func (d *driver) each(ctx context.Context, p Phase, hosts []*host, anew bool, do func(context.Context, *host) (outcome, error)) error {
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs = map[string]error{}
	)
	if err := d.write(journal.Entry{Event: journal.Begun, Phase: string(p)}, nil); err != nil {
		return err
	}
	for _, h := range hosts {
		if !anew && d.isDone(p, h.Member) {
			continue
		}
		all.Go(func() {
			if err := d.one(ctx, p, h, do); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs[h.Member] = err
			}
		})
	}
	all.Wait()
	if len(errs) > 0 {
		return errors.Join(d.phaseError(p, errs), d.write(journal.Entry{Event: journal.Failed, Phase: string(p)}, nil))
	}
	return d.write(journal.Entry{Event: journal.Done, Phase: string(p)}, nil)
}

// one carries a phase out on one host.
func (d *driver) one(ctx context.Context, p Phase, h *host, do func(context.Context, *host) (outcome, error)) error {
	e := journal.Entry{Phase: string(p), Host: h.Member}
	e.Event = journal.Begun
	if err := d.write(e, nil); err != nil {
		return err
	}
	d.told.begin(p, h.Member)
	began := time.Now()
	out, err := do(ctx, h)
	d.told.end(p, h.Member, out.detail, time.Since(began), err)
	if err != nil {
		e.Event, e.Error = journal.Failed, err.Error()
		return errors.Join(err, d.write(e, nil))
	}
	e.Event = journal.Done
	return d.write(e, out.result)
}

// whole carries out a phase that is no host's.
func (d *driver) whole(ctx context.Context, p Phase, do func(context.Context) (outcome, error)) error {
	e := journal.Entry{Event: journal.Begun, Phase: string(p)}
	if err := d.write(e, nil); err != nil {
		return err
	}
	d.told.begin(p, "")
	began := time.Now()
	out, err := do(ctx)
	d.told.end(p, "", out.detail, time.Since(began), err)
	if err != nil {
		e.Event, e.Error = journal.Failed, err.Error()
		return errors.Join(err, d.write(e, nil))
	}
	e.Event = journal.Done
	return d.write(e, out.result)
}

// phaseError sums up what failed. That another run has hosts is a *HeldError.
func (d *driver) phaseError(p Phase, errs map[string]error) error {
	held := &HeldError{}
	for _, name := range sortedKeys(errs) {
		var refused *client.RefusedError
		if errors.As(errs[name], &refused) && refused.Code == protocol.Held {
			held.Holder, held.Hosts = refused.Holder, append(held.Hosts, name)
		}
	}
	if len(held.Hosts) > 0 {
		return errors.Join(held, &HostsError{Phase: p, Errs: errs})
	}
	return &HostsError{Phase: p, Errs: errs}
}

func (d *driver) isDone(p Phase, host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known.done(p, host)
}

// act has a host do something that may be repeated. An action that is under way
// there is waited for, and a host that cannot be reached for a while is asked again.
func act[T any](ctx context.Context, d *driver, p Phase, h *host, do func(context.Context) (T, error)) (T, error) {
	var away time.Time // since when it cannot be reached
	var told time.Time
	wait := func(text string) {
		if time.Since(told) > tellEvery {
			told = time.Now()
			d.told.waiting(p, h.Member+": "+text)
		}
	}
	defer d.patiently(ctx, p, h)()
	for {
		v, err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return v, err
		}
		var refused *client.RefusedError
		switch {
		case errors.As(err, &refused) && refused.Code == protocol.Busy:
			away = time.Time{}
			wait("an action that was begun before is still under way")
		case errors.As(err, &refused):
			return v, err
		case away.IsZero():
			away = time.Now()
		case time.Since(away) > d.patience:
			return v, fmt.Errorf("%w (asked for %s)", err, d.patience)
		default:
			wait(err.Error())
		}
		if err := pause(ctx, again); err != nil {
			return v, err
		}
	}
}

func shown(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

func sameJSON(a, b any) bool { return shown(a) == shown(b) }
