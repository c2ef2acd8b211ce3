package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/verify/serve"
)

const (
	// patience is how long a host may be unreachable in the middle of an action: one
	// that is started anew takes longer, and the same command goes on then.
	patience = 30 * time.Second
	// again is how long to wait before an action is repeated.
	again = 250 * time.Millisecond
	// reportEvery is how often it is said what is waited for.
	reportEvery = 5 * time.Second
)

// outcome is what a step came to on a host: for the journal, and in a few words.
type outcome struct {
	result any
	detail string
}

// each carries a phase out on hosts, at the same time. Those where the journal has
// it as done are passed by, unless anew. What fails on one host does not end it on
// the others.
func (d *coordinator) each(ctx context.Context, p Phase, hosts []*participant, anew bool, do func(context.Context, *participant) (outcome, error)) error {
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs = map[string]error{}
	)
	if err := d.write(host.Entry{Event: host.EventBegun, Phase: string(p)}, nil); err != nil {
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
		return errors.Join(d.phaseError(p, errs), d.write(host.Entry{Event: host.EventFailed, Phase: string(p)}, nil))
	}
	return d.write(host.Entry{Event: host.EventDone, Phase: string(p)}, nil)
}

// one carries a phase out on one host.
func (d *coordinator) one(ctx context.Context, p Phase, h *participant, do func(context.Context, *participant) (outcome, error)) error {
	e := host.Entry{Phase: string(p), Host: h.Member}
	e.Event = host.EventBegun
	if err := d.write(e, nil); err != nil {
		return err
	}
	d.reporter.begin(p, h.Member)
	began := time.Now()
	out, err := do(ctx, h)
	d.reporter.end(p, h.Member, out.detail, time.Since(began), err)
	if err != nil {
		e.Event, e.Error = host.EventFailed, err.Error()
		return errors.Join(err, d.write(e, nil))
	}
	e.Event = host.EventDone
	return d.write(e, out.result)
}

// whole carries out a phase that is no host's.
func (d *coordinator) whole(ctx context.Context, p Phase, do func(context.Context) (outcome, error)) error {
	e := host.Entry{Event: host.EventBegun, Phase: string(p)}
	if err := d.write(e, nil); err != nil {
		return err
	}
	d.reporter.begin(p, "")
	began := time.Now()
	out, err := do(ctx)
	d.reporter.end(p, "", out.detail, time.Since(began), err)
	if err != nil {
		e.Event, e.Error = host.EventFailed, err.Error()
		return errors.Join(err, d.write(e, nil))
	}
	e.Event = host.EventDone
	return d.write(e, out.result)
}

// phaseError sums up what failed. That another run has hosts is a *ConflictError.
func (d *coordinator) phaseError(p Phase, errs map[string]error) error {
	held := &ConflictError{}
	for _, name := range sortedKeys(errs) {
		var refused *host.RefusedError
		if errors.As(errs[name], &refused) && refused.Refusal.Code == host.Conflict {
			held.Holder, held.Hosts = refused.Refusal.Holder, append(held.Hosts, name)
		}
	}
	if len(held.Hosts) > 0 {
		return errors.Join(held, &HostsError{Phase: p, Errs: errs})
	}
	return &HostsError{Phase: p, Errs: errs}
}

func (d *coordinator) isDone(p Phase, host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.done(p, host)
}

// act has a host do something that may be repeated. An action that is under way
// there is waited for, and a host that cannot be reached for a while is asked again.
func act[T any](ctx context.Context, d *coordinator, p Phase, h *participant, do func(context.Context) (T, error)) (T, error) {
	var away time.Time // since when it cannot be reached
	var said time.Time
	wait := func(text string) {
		if time.Since(said) > reportEvery {
			said = time.Now()
			d.reporter.waiting(p, h.Member+": "+text)
		}
	}
	defer d.patiently(ctx, p, h)()
	for {
		v, err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return v, err
		}
		var refused *host.RefusedError
		switch {
		case errors.As(err, &refused) && refused.Refusal.Code == host.Busy:
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

// start starts all new members at once: none of them serves alone. Those that run
// already stay as they are.
func (d *coordinator) start(ctx context.Context) error {
	// One that was lost since, and declared dead, is missing in the proof.
	alive := slices.DeleteFunc(d.getting(), func(h *participant) bool { return h.passedBy() })
	return d.each(ctx, PhaseStart, alive, true, func(ctx context.Context, h *participant) (outcome, error) {
		done, err := act(ctx, d, PhaseStart, h, h.client.Start)
		if err != nil && h.state.Dead && ctx.Err() == nil { // the proof reports whether the others do
			d.reporter.warn(fmt.Sprintf("%s is declared dead, and its new member is not started: %v", h.Member, err))
			return outcome{result: started{[]string{err.Error()}}, detail: "declared dead, and not started"}, nil
		}
		if err != nil {
			return outcome{}, err
		}
		d.warnAll(h, done.Warnings)
		return outcome{result: started{done.Warnings}, detail: "started"}, nil
	})
}

type started struct {
	Warnings []string `json:"warnings,omitempty"`
}

// proveTimeout is how long the new members may take to find a quorum.
const proveTimeout = serve.DefaultTimeout

// prove holds the new cluster against what was rebuilt.
func (d *coordinator) prove(ctx context.Context) error {
	all, err := d.rebuilt()
	if err != nil {
		return err
	}
	req, err := d.proofRequest(all)
	if err != nil {
		return err
	}
	return d.whole(ctx, PhaseProve, func(ctx context.Context) (outcome, error) {
		r, err := serve.Prove(ctx, req)
		if err != nil {
			return outcome{}, fmt.Errorf("%w. Clients stay stopped. Run the same command again to go on, or --undo to put everything back", err)
		}
		for _, m := range r.Missing {
			d.reporter.warn(fmt.Sprintf("member %s is not up: %s", m.Name, m.Why))
		}
		d.elected = time.Time{} // these are others than those that were waited for
		q, err := d.quorum(ctx, req.Client.Endpoints)
		if err == nil && !q.Serves {
			err = fmt.Errorf("the new cluster was proved, and then did not answer: %s. Run the same command again to go on", strings.Join(q.Answers, "; "))
		}
		if err != nil {
			return outcome{}, err
		}
		return outcome{result: proved{r, q.Revision}, detail: fmt.Sprintf("a quorum after %s", r.Quorum.Round(10*time.Millisecond))}, nil
	})
}

// proved is the proof, and the revision that it left: before any client wrote.
type proved struct {
	Report *serve.Report `json:"report"`
	Left   int64         `json:"left_revision"`
}

func (d *coordinator) proofRequest(all map[string]*host.Rebuilt) (serve.Request, error) {
	dec := d.state.decision
	first := all[sortedKeys(all)[0]]
	req := serve.Request{
		ClientURLs: map[string][]string{}, ClusterID: dec.NewClusterID, Members: members(first),
		RevisionAtLeast: first.Restore.RevisionAfter, Timeout: d.proveTimeout, Logger: d.logger,
		Started: d.state.steps[PhaseStart].begun, Expected: anyImage(all),
		Waiting: func(w serve.Waiting) { d.reporter.waiting(PhaseProve, waitingWords(w)) },
	}
	if dec.Inherited != "" {
		req.Started = dec.Built
	}
	for _, m := range dec.Members {
		req.ClientURLs[m.Name] = m.ClientURLs
	}
	if first.Restore.Plan.Bump == nil && first.HashKV.Hash != 0 {
		hash := first.HashKV
		req.HashKV = &hash
	}
	var err error
	req.Client, err = d.clientConfig(dec.clientURLs())
	return req, err
}

func anyImage(all map[string]*host.Rebuilt) *serve.Expected {
	for _, b := range all {
		if b.Image != nil {
			return b.Image
		}
	}
	return nil
}

// members are those of the plan that all hosts carried out.
func members(b *host.Rebuilt) []restore.Member { return b.Restore.Plan.Members }

func waitingWords(w serve.Waiting) string {
	var missing []string
	for _, m := range w.Missing {
		missing = append(missing, m.Name+" ("+m.Why+")")
	}
	switch {
	case w.Quorum && len(missing) == 0:
		return "all members serve"
	case w.Quorum:
		return "a quorum serves; waiting for " + strings.Join(missing, ", ")
	case len(missing) == 0:
		return "waiting for a quorum"
	}
	return "waiting for a quorum: " + strings.Join(missing, ", ")
}
