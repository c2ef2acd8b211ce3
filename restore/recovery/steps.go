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

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
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
	began := time.Now()
	errs := atOnce(hosts, func(h *participant) error {
		return d.timed(ctx, p, h.Member, func(ctx context.Context) (string, error) { return do(ctx, h) })
	})
	d.took(p, time.Since(began))
	if len(errs) > 0 {
		return &HostsError{Phase: p, Errs: errs}
	}
	return nil
}

// atOnce does something with hosts at the same time, and gives what failed, by member.
func atOnce(hosts []*participant, do func(*participant) error) map[string]error {
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs = map[string]error{}
	)
	for _, h := range hosts {
		all.Go(func() {
			if err := do(h); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs[h.Member] = err
			}
		})
	}
	all.Wait()
	return errs
}

// timed carries a phase out on a host or, where that is empty, as a whole.
func (d *coordinator) timed(ctx context.Context, p Phase, host string, do func(context.Context) (string, error)) error {
	d.reporter.begin(p, host)
	began := time.Now()
	detail, err := do(ctx)
	took := time.Since(began)
	if host == "" {
		d.took(p, took)
	}
	d.reporter.end(p, host, detail, took, err)
	return err
}

// took adds to the times of a phase.
func (d *coordinator) took(p Phase, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.phases, func(t PhaseTime) bool { return t.Phase == p })
	if i < 0 {
		i, d.phases = len(d.phases), append(d.phases, PhaseTime{Phase: p})
	}
	d.phases[i].Took += took
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
		case time.Since(away) > d.req.patience:
			return v, fmt.Errorf("%w (asked for %s)", err, d.req.patience)
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

// starts is the start of new members, under way.
type starts struct {
	ended chan struct{}
	err   error // once it has ended
}

// wait gives what came of it, once it has ended; nil of none.
func (s *starts) wait() error {
	if s == nil {
		return nil
	}
	<-s.ended
	return s.err
}

// start starts new members, all at once: none of them serves alone. Those that run already
// stay as they are. It returns once enough for a quorum are started: on another host a
// kubelet may need minutes more. What is still under way is d.starting.
func (d *coordinator) start(ctx context.Context, hosts []*participant) error {
	learners := d.decision.learners()
	quorum := sources.Majority(len(d.decision.Members) - len(learners))
	started, enough, ended := 0, make(chan struct{}), d.ended(ctx)
	s := &starts{ended: make(chan struct{})}
	d.starting = s
	go func() {
		defer close(s.ended)
		s.err = d.each(ctx, PhaseStart, hosts, func(ctx context.Context, h *participant) (string, error) {
			_, err := act(ctx, d, PhaseStart, h, func(ctx context.Context) (*host.Done, error) { return h.client.Start(ctx, ended) })
			if err != nil && h.state.Dead && ctx.Err() == nil { // the proof reports whether the others do
				d.reporter.warn(fmt.Sprintf("%s is declared dead, and its new member is not started: %v", h.Member, err))
				return "declared dead, and not started", nil
			}
			if err != nil {
				return "", err
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if !slices.Contains(learners, h.Member) {
				started++
				if started == quorum {
					close(enough)
				}
			}
			return "started", nil
		})
	}()
	select {
	case <-enough:
		return nil
	case <-s.ended:
		return s.err
	}
}

const (
	// proveTimeout is how long the new members may take to find a quorum.
	proveTimeout = serve.DefaultTimeout
	// proveGrace is how much longer than the quorum a member may take for clients to wait
	// for it: hosts that are alike differ by less.
	proveGrace = 2 * time.Second
)

// prove holds the new cluster against what was rebuilt. No client is let on it before the
// hosts have stored that it was proved.
func (d *coordinator) prove(ctx context.Context) error {
	req, err := d.proofRequest()
	if err != nil {
		return err
	}
	req.Grace = proveGrace
	err = d.timed(ctx, PhaseProve, "", func(ctx context.Context) (string, error) {
		r, err := serve.Prove(ctx, req)
		if err != nil {
			return "", fmt.Errorf("%w. Clients stay stopped. Run the same command again to go on, or --undo to put everything back", err)
		}
		for _, m := range r.Missing {
			d.reporter.warn(fmt.Sprintf("member %s is not up yet, and clients do not wait for it: %s", m.Name, m.Why))
		}
		d.elected = time.Time{} // these are others than those that were waited for
		var serving []string    // the others would be waited for
		for _, m := range r.Members {
			serving = append(serving, m.Endpoint)
		}
		q, err := d.quorum(ctx, serving)
		if err == nil && !q.Serves {
			err = fmt.Errorf("the new cluster was proved, and then did not answer: %s. Run the same command again to go on", strings.Join(q.Answers, "; "))
		}
		if err != nil {
			return "", err
		}
		d.decision.Proved = &proved{r, q.Revision, time.Now()}
		return fmt.Sprintf("a quorum after %s", r.Quorum.Round(10*time.Millisecond)), nil
	})
	if err != nil {
		return err
	}
	// A host that is starting its member does nothing else meanwhile.
	return d.storeOn(ctx, slices.DeleteFunc(d.present(), d.isLate))
}

// isLate reports whether a host's member was not up when the cluster was proved.
func (d *coordinator) isLate(h *participant) bool {
	return slices.ContainsFunc(d.decision.Proved.Report.Missing, func(m serve.Missing) bool { return m.Name == h.Member })
}

// proveLate waits for the members that the proof went on without, and compares them with the
// others; clients are let on the cluster by now. started is what came of starting the members,
// in this command: those that an earlier one left are started again.
func (d *coordinator) proveLate(ctx context.Context, started error) error {
	late := slices.DeleteFunc(d.getting(), func(h *participant) bool { return h.state.Dead || !d.isLate(h) })
	if len(late) == 0 {
		return nil
	}
	if d.starting == nil {
		started = d.start(ctx, late)
	}
	req, err := d.proofRequest()
	if err != nil {
		return err
	}
	req.Grace = d.req.lateTimeout
	req.Waiting = func(w serve.Waiting) { d.reporter.waiting(PhaseLate, waitingWords(w)) }
	return d.timed(ctx, PhaseLate, "", func(ctx context.Context) (string, error) {
		if err := serve.Late(ctx, req, d.decision.Proved.Report); err != nil {
			return "", err
		}
		var failed *HostsError
		var why []string
		for _, m := range d.decision.Proved.Report.Missing {
			switch h := d.host(m.Name); {
			case h == nil || h.state.Dead:
			case errors.As(started, &failed) && failed.Errs[m.Name] != nil:
				why = append(why, fmt.Sprintf("%s was not started: %v", m.Name, failed.Errs[m.Name]))
			default:
				why = append(why, fmt.Sprintf("%s: %s", m.Name, m.Why))
			}
		}
		if len(why) > 0 {
			return "", errors.New(strings.Join(why, "; "))
		}
		return "all members serve", nil
	})
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
		ClientURLs: map[string][]string{}, ClusterID: dec.NewClusterID, Members: first.Restore.Plan.Members,
		RevisionAtLeast: first.Restore.RevisionAfter, Timeout: d.req.proveTimeout, Logger: d.logger,
		Started: dec.BuiltAt, AuthEnabled: &first.AuthEnabled,
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
	}
	return "waiting for a quorum: " + strings.Join(missing, ", ")
}
