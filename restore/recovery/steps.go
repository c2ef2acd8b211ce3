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

// each carries a phase out on hosts, at the same time. What fails on one host does not
// end it on the others. What is done gives in a few words what came out.
func (d *coordinator) each(ctx context.Context, p Phase, hosts []*participant, do func(context.Context, *participant) (string, error)) error {
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs = map[string]error{}
	)
	began := time.Now()
	for _, h := range hosts {
		all.Go(func() {
			if err := d.timed(ctx, p, h.Member, func(ctx context.Context) (string, error) { return do(ctx, h) }); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs[h.Member] = err
			}
		})
	}
	all.Wait()
	d.took(p, "", time.Since(began))
	if len(errs) > 0 {
		return &HostsError{Phase: p, Errs: errs}
	}
	return nil
}

// timed carries a phase out on a host or, where that is empty, as a whole.
func (d *coordinator) timed(ctx context.Context, p Phase, host string, do func(context.Context) (string, error)) error {
	d.reporter.begin(p, host)
	began := time.Now()
	detail, err := do(ctx)
	took := time.Since(began)
	d.took(p, host, took)
	d.reporter.end(p, host, detail, took, err)
	return err
}

// took adds to the times of a phase.
func (d *coordinator) took(p Phase, host string, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.phases, func(t PhaseTime) bool { return t.Phase == p })
	if i < 0 {
		i, d.phases = len(d.phases), append(d.phases, PhaseTime{Phase: p})
	}
	t := &d.phases[i]
	if host == "" {
		t.Took += took
		return
	}
	j, known := slices.BinarySearchFunc(t.Hosts, host, func(h HostTime, name string) int { return strings.Compare(h.Member, name) })
	if !known {
		t.Hosts = slices.Insert(t.Hosts, j, HostTime{Member: host})
	}
	t.Hosts[j].Took += took
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
	return d.each(ctx, PhaseStart, alive, func(ctx context.Context, h *participant) (string, error) {
		done, err := act(ctx, d, PhaseStart, h, h.client.Start)
		if err != nil && h.state.Dead && ctx.Err() == nil { // the proof reports whether the others do
			d.reporter.warn(fmt.Sprintf("%s is declared dead, and its new member is not started: %v", h.Member, err))
			return "declared dead, and not started", nil
		}
		if err != nil {
			return "", err
		}
		d.warnAll(h, done.Warnings)
		return "started", nil
	})
}

// proveTimeout is how long the new members may take to find a quorum.
const proveTimeout = serve.DefaultTimeout

// prove holds the new cluster against what was rebuilt. No client is let on it before the
// hosts have stored that it was proved.
func (d *coordinator) prove(ctx context.Context) error {
	req, err := d.proofRequest()
	if err != nil {
		return err
	}
	err = d.timed(ctx, PhaseProve, "", func(ctx context.Context) (string, error) {
		r, err := serve.Prove(ctx, req)
		if err != nil {
			return "", fmt.Errorf("%w. Clients stay stopped. Run the same command again to go on, or --undo to put everything back", err)
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
			return "", err
		}
		d.decision.Proved = &proved{r, q.Revision, d.now()}
		return fmt.Sprintf("a quorum after %s", r.Quorum.Round(10*time.Millisecond)), nil
	})
	if err != nil {
		return err
	}
	return d.store(ctx)
}

// proved is the proof, and the revision that it left: before any client wrote.
type proved struct {
	Report *serve.Report `json:"report"`
	Left   int64         `json:"left_revision"`
	At     time.Time     `json:"at"`
}

func (d *coordinator) proofRequest() (serve.Request, error) {
	dec := d.decision
	first := dec.first()
	req := serve.Request{
		ClientURLs: map[string][]string{}, ClusterID: dec.NewClusterID, Members: members(first),
		RevisionAtLeast: first.Restore.RevisionAfter, Timeout: d.proveTimeout, Logger: d.logger,
		Started: dec.BuiltAt, Expected: anyImage(dec.Built),
		Waiting: func(w serve.Waiting) { d.reporter.waiting(PhaseProve, waitingWords(w)) },
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
