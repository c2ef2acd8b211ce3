package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
)

// Run recovers the cluster: it begins a run, or goes on with the one that the hosts know
// of, from whatever machine that was begun. A report comes with an error too once the new
// cluster is proved: what failed after that is a snapshot.IncompleteError.
//
// Errors to distinguish: *QuorumError, *BlockedError, *HostsError, *DifferError,
// ErrDeclined, *serve.NoQuorumError, *serve.WrongError, *restore.RequestError where what
// is asked for has to be said otherwise, and those of Preflight.
func Run(ctx context.Context, req Request) (_ *Report, err error) {
	d, err := newCoordinator(req, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	p, err := d.preflight(ctx)
	switch {
	case err != nil:
		return nil, err
	case d.req.Local != nil:
		return d.runHere(ctx, p)
	case d.decision == nil:
		return d.decideAnew(ctx, p)
	case d.decision.Undoing:
		return nil, d.beingUndone()
	}
	return d.goOn(ctx, p)
}

// decideAnew finds out, asks, and has the decision stored before it changes anything.
func (d *coordinator) decideAnew(ctx context.Context, p *Preview) (*Report, error) {
	if err := d.plannable(ctx, p); err != nil {
		return nil, err
	}
	q := d.firstQuestion(p)
	asked := time.Now()
	if err := d.reporter.confirm(ctx, q); err != nil {
		return nil, err
	}
	if err := d.stillLost(ctx, p, time.Since(asked)); err != nil {
		return nil, err
	}
	if err := d.decide(p, q.Type != ""); err != nil {
		return nil, err
	}
	if err := d.store(ctx); err != nil {
		return nil, err
	}
	return d.execute(ctx, p)
}

// plannable plans a new run; an error where it must not be begun.
func (d *coordinator) plannable(ctx context.Context, p *Preview) error {
	if p.Quorum.Serves && !d.req.Force {
		return d.quorumStops(p.Quorum)
	}
	// What cannot be reached is reported before logs are read, which may take long.
	if err := d.blocked(p); err != nil {
		return err
	}
	err := d.survey(ctx, p)
	if err != nil && (len(p.Unsurveyed) == 0 || !sources.AboutSource(err)) {
		return err
	}
	if stops := d.quorumStops(p.Quorum); stops != nil && !d.req.Force {
		return stops
	}
	return d.blocked(p)
}

// blocked is a *BlockedError, in a *restore.RequestError where it could be named what
// would end it.
func (d *coordinator) blocked(p *Preview) error {
	all, unnamed := d.blockers(p)
	switch err := (&BlockedError{all}); {
	case len(all) == 0:
		return nil
	case unnamed:
		return &restore.RequestError{Err: err}
	default:
		return err
	}
}

func (d *coordinator) beingUndone() error {
	return fmt.Errorf("run %s is being undone: finish that with --undo first", d.run)
}

// staleAfter is how long an answer about the quorum counts.
const staleAfter = time.Second

// stillLost asks once more for a quorum where the answer took its time: a host that
// came back meanwhile may have made it whole.
func (d *coordinator) stillLost(ctx context.Context, p *Preview, took time.Duration) error {
	if took < staleAfter || d.req.Force {
		return nil
	}
	if err := d.states(ctx); err != nil {
		return err
	}
	q, err := d.quorum(ctx, p.Quorum.Asked)
	if err == nil && q.Serves {
		err = d.quorumStops(q)
	}
	return err
}

func (d *coordinator) firstQuestion(p *Preview) Question {
	q := Question{Preview: p}
	switch {
	case p.Plan.Chosen == "":
		q.Text = fmt.Sprintf("Stop %s, read what is there, and recover cluster %s from it?", strings.Join(p.Unsurveyed, ", "), d.cfg.Cluster)
	case p.Plan.Proven:
		q.Text = fmt.Sprintf("Recover cluster %s from %s? It is proven that no acknowledged write is lost.", d.cfg.Cluster, p.Plan.Chosen)
	case len(p.Unsurveyed) > 0:
		q.Text = fmt.Sprintf("Stop %s, read what is there, and recover cluster %s? By what is known now it would be from %s, and unproven that nothing is lost; that would be asked again.", strings.Join(p.Unsurveyed, ", "), d.cfg.Cluster, p.Plan.Chosen)
	default:
		q.Text = fmt.Sprintf("Recover cluster %s from %s? It is unproven that no acknowledged write is lost.", d.cfg.Cluster, p.Plan.Chosen)
		q.Type = d.cfg.Cluster
	}
	if len(p.Quorum.By) > 0 {
		q.Reasons = []string{"the cluster serves, and would be stopped (--force)"}
		q.Type = d.cfg.Cluster
	}
	return q
}

// decide makes the decision that a preview was confirmed as.
func (d *coordinator) decide(p *Preview, typed bool) error {
	old := d.decision
	out := &decision{Run: d.run, Asked: d.req.Asked, Began: time.Now(), ClusterToken: "requorum-" + randomHex(8)}
	if b := d.req.Build; b != nil {
		out.ClusterToken = cmp.Or(b.ClusterToken, out.ClusterToken)
	}
	if old != nil {
		*out = *old
	} else {
		for _, k := range d.known {
			out.Earlier = append(out.Earlier, k.Run)
		}
		for _, h := range d.hosts {
			out.Hosts = append(out.Hosts, decidedHost{Member: h.Member})
			if h.state.Unreachable == "" && !h.state.Stopped {
				out.Ran = append(out.Ran, h.Member)
			}
		}
	}
	out.Plan, out.Members, out.Left, out.Bump = p.Plan, p.Members, p.Left, p.Bump
	out.Read = map[string]string{}
	for _, h := range d.hosts {
		if h.summary != nil {
			out.Read[h.Member] = h.read
		}
	}
	out.Final = len(p.Unsurveyed) == 0 && p.Plan.Chosen != ""
	out.Unproven = out.Unproven || typed
	if len(p.Members) > 0 {
		out.Branch = branchOf(p.Plan, p.Findings)
		var err error
		if out.NewClusterID, err = restore.ClusterID(out.initialCluster(), out.ClusterToken); err != nil {
			return err
		}
		if old == nil || old.PlanID == "" || !sameEnd(old, out) {
			out.PlanID = randomHex(8)
		}
	}
	d.decision = out
	return nil
}

// sameEnd reports whether what hosts have built by an earlier plan is what a later one
// comes to: by whatever way, to the same entry, as the same cluster.
func sameEnd(old, now *decision) bool {
	end := func(d *decision) host.RebuildPlan {
		p := d.rebuildPlan()
		p.ID, p.Source = "", sources.Source{Index: p.Source.Index, Term: p.Source.Term}
		return p
	}
	return sameJSON(end(old), end(now))
}

// goOn takes up a run where it is.
func (d *coordinator) goOn(ctx context.Context, p *Preview) (*Report, error) {
	if err := d.merge(); err != nil {
		return nil, err
	}
	d.reporter.note(fmt.Sprintf("Going on with run %s, which was confirmed before, at: %s", d.run, d.reached()))
	if d.decision.Built == nil {
		if d.servesAgain(p.Quorum) {
			return d.giveUp(ctx, p.Quorum)
		}
		if all := d.away(); len(all) > 0 {
			return nil, &HostsError{Phase: PhasePreflight, Errs: all}
		}
	} else if q := p.Quorum; d.decision.Proved == nil && q.Serves && q.ClusterID != d.decision.NewClusterID && !d.req.Force {
		return nil, fmt.Errorf("run %s does not go on: cluster %s serves, and it would start cluster %s beside it. Take the run back with --undo or, if it is %s that is wanted, move state.json in the state-dir of each host away, which leaves all data where it is",
			d.run, q.ClusterID, d.decision.NewClusterID, q.ClusterID)
	}
	if err := d.adopt(ctx); err != nil {
		return nil, err
	}
	return d.execute(ctx, p)
}

// servesAgain reports whether a cluster serves that a run has to leave alone: not the one
// that it made, as hosts that were started anew may have let its members find each other.
func (d *coordinator) servesAgain(q Quorum) bool {
	return d.decision.Built == nil && q.Serves && q.ClusterID != d.decision.NewClusterID && !d.decision.Asked.Force
}

// giveUp ends a run that has set nothing aside, where the cluster serves again.
func (d *coordinator) giveUp(ctx context.Context, q Quorum) (*Report, error) {
	stops := d.quorumStops(q)
	if d.anyAside() {
		return nil, fmt.Errorf("run %s has set data aside: take it back with --undo: %w", d.run, stops)
	}
	if all := d.away(); len(all) > 0 { // where it may have set aside, and built
		return nil, fmt.Errorf("cluster %s serves, and it is not known how far run %s got: %w", q.ClusterID, d.run, &HostsError{Phase: PhasePreflight, Errs: all})
	}
	if err := d.reporter.confirm(ctx, Question{Text: d.givenUpWords() + " Do that?"}); err != nil {
		return nil, err
	}
	if err := d.adopt(ctx); err != nil {
		return nil, err
	}
	if d.anyAside() {
		return nil, fmt.Errorf("run %s has gone on meanwhile, and set data aside: look again with --dry-run", d.run)
	}
	if err := d.endUnchanged(ctx); err != nil {
		return nil, err
	}
	r := &Report{Cluster: d.cfg.Cluster, Run: d.run, GivenUp: true}
	for _, h := range d.present() {
		r.Hosts = append(r.Hosts, HostReport{Member: h.Member, Address: h.Address()})
	}
	return r, nil
}

func (d *coordinator) givenUpWords() string {
	return fmt.Sprintf("Cluster %s serves again, and run %s has set nothing aside: it is given up, and what it stopped is started.", d.cfg.Cluster, d.run)
}

// away are the hosts that cannot be reached and were not declared dead.
func (d *coordinator) away() map[string]error {
	all := map[string]error{}
	for _, h := range d.hosts {
		if h.lost() {
			all[h.Member] = errors.New(h.state.Unreachable)
			if !h.state.Answers {
				all[h.Member] = fmt.Errorf("%s (if that host is gone for good: --declare-dead %s)", h.state.Unreachable, h.Member)
			}
		}
	}
	return all
}
