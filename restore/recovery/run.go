package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
)

// Run recovers the cluster: it begins a run, or goes on with the one that is under
// way. A report comes with an error too once the new cluster is proved: what failed
// after that wraps snapshot.ErrIncomplete.
//
// Errors to tell apart: *QuorumError, *BlockedError, *ConflictError,
// *ContradictionError, *FenceError, *UndoneError, *HostsError, *DifferError,
// ErrDeclined, *serve.NoQuorumError, *serve.WrongError, and those of Look.
func Run(ctx context.Context, req Request) (_ *Report, err error) {
	d, err := newCoordinator(req)
	if err != nil {
		return nil, err
	}
	if req.Events == nil {
		return nil, errors.New("recover: nobody is there to confirm: Request.Events is nil")
	}
	if _, err := codecOf(d.cfg); err != nil {
		return nil, err // before anything is stopped for a backup that cannot be taken
	}
	folder, err := host.OpenFolder(d.cfg.StateDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	d.runs = folder.Runs()
	last, state, err := d.lastRun()
	switch {
	case err != nil:
		return nil, err
	case last == nil || state.over() && !d.incomplete(ctx, state):
		return d.begin(ctx, folder)
	case state.putBack():
		d.reporter.note(fmt.Sprintf("Run %s is taken back, but for members that did not start again: this is a new one", last.ID()))
		d.before = last
		return d.begin(ctx, folder)
	case state.undoing:
		return nil, &UndoneError{last.ID()}
	}
	return d.goOn(ctx, last, state)
}

// incomplete reports whether a run that is over left something to be done, and its
// cluster is there for it.
func (d *coordinator) incomplete(ctx context.Context, k *runState) bool {
	if k.closed || k.finished == nil || len(k.finished.Incomplete) == 0 {
		return false
	}
	q, err := d.quorum(ctx, k.decision.clientURLs())
	return err == nil && q.Serves && q.ClusterID == k.decision.NewClusterID
}

// preflightPrefix begins the names of folders for summaries until a run has its own.
const preflightPrefix = "preflight-"

// begin finds out, asks, and writes the decision down before it changes anything.
func (d *coordinator) begin(ctx context.Context, folder *host.Folder) (_ *Report, err error) {
	d.run = newRunID(d.now())
	left, err := filepath.Glob(filepath.Join(d.cfg.StateDir, preflightPrefix+"*"))
	for _, path := range left { // of commands that were killed
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil {
		return nil, err
	}
	if d.folder, err = os.MkdirTemp(d.cfg.StateDir, preflightPrefix); err != nil {
		return nil, err
	}
	temporary := d.folder
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	if err := d.reach(); err != nil {
		return nil, err
	}
	defer d.close()
	p, err := d.preview(ctx)
	var serves *QuorumError
	if errors.As(err, &serves) && serves.Quorum.Serves && d.req.TakeOver && d.holders() != nil {
		return d.completeOther(ctx, folder, serves.Quorum)
	}
	if err != nil {
		return nil, err
	}
	q := d.firstQuestion(p)
	asked := time.Now()
	if err := d.ask(ctx, q); err != nil {
		return nil, err
	}
	if err := d.stillLost(ctx, p, time.Since(asked)); err != nil {
		return nil, err
	}
	if d.journal, err = folder.Begin(d.run); err != nil {
		return nil, err
	}
	// The summaries first: a journal with a decision has them beside it.
	if err := d.keepSummaries(filepath.Join(d.journal.Folder(), "summaries")); err != nil {
		return nil, err
	}
	decided, err := d.decide(p, q.Type != "")
	if err != nil {
		return nil, err
	}
	if err := d.write(host.Entry{Event: host.EventDecided}, decided); err != nil {
		return nil, err
	}
	if d.before != nil {
		if _, err := d.before.Add(host.Entry{Event: host.EventUndone}, nil); err != nil {
			return nil, err
		}
	}
	for _, h := range d.hosts {
		if err := d.remember(h); err != nil {
			return nil, err
		}
	}
	return d.execute(ctx, p)
}

// preview is what a new run would do; an error where it must not be begun.
func (d *coordinator) preview(ctx context.Context) (*Preview, error) {
	d.reporter.begin(PhasePreflight, "")
	began := d.now()
	p, err := d.preflight(ctx)
	d.reporter.end(PhasePreflight, "", "", d.now().Sub(began), err)
	if err != nil {
		return nil, err
	}
	if p.Quorum.Serves && !d.req.Force {
		if held := d.holders(); held != nil && !d.req.TakeOver {
			held.Serves = true
			return nil, held
		}
		return nil, d.quorumStops(p.Quorum)
	}
	if held := d.holders(); held != nil && !d.req.TakeOver {
		return nil, held
	}
	// What cannot be reached is told before logs are read, which may take long.
	if all, unnamed := d.blockers(p); len(all) > 0 {
		return nil, &BlockedError{all, unnamed}
	}
	err = d.survey(ctx, p)
	if err != nil && (len(p.Unsurveyed) == 0 || !chooses(err)) {
		return nil, err
	}
	if stops := d.quorumStops(p.Quorum); stops != nil && !d.req.Force {
		return nil, stops
	}
	if all, unnamed := d.blockers(p); len(all) > 0 {
		return nil, &BlockedError{all, unnamed}
	}
	return p, nil
}

// staleAfter is how long an answer about the quorum counts.
const staleAfter = time.Second

// stillLost asks once more for a quorum where the answer took its time: a host that
// came back meanwhile may have made it whole.
func (d *coordinator) stillLost(ctx context.Context, p *Preview, took time.Duration) error {
	if took < staleAfter || d.req.Force {
		return nil
	}
	q, err := d.quorum(ctx, p.Quorum.Asked)
	if err == nil && q.Serves {
		err = d.quorumStops(q)
	}
	return err
}

func (d *coordinator) firstQuestion(p *Preview) Question {
	q := Question{Kind: AskBegin, Preview: p, Reasons: p.Warnings}
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
		q.Reasons = append([]string{"the cluster serves, and would be stopped (--force)"}, q.Reasons...)
		q.Type = d.cfg.Cluster
	}
	return q
}

// ask gives ErrDeclined for a no.
func (d *coordinator) ask(ctx context.Context, q Question) error {
	yes, err := d.reporter.confirm(ctx, q)
	if err != nil {
		return err
	}
	if !yes {
		return ErrDeclined
	}
	return nil
}

// decide makes the decision that a preview was confirmed as.
func (d *coordinator) decide(p *Preview, typed bool) (*decision, error) {
	out := &decision{Run: d.run, Cluster: d.cfg.Cluster, Asked: d.req.asked(), ClusterToken: "requorum-" + randomHex(8)}
	if old := d.state.decision; old != nil {
		*out = *old
	} else {
		for _, h := range d.hosts {
			out.Hosts = append(out.Hosts, decidedHost{h.Member})
			if h.state.Unreachable == "" && !h.state.Stopped {
				out.Ran = append(out.Ran, h.Member)
			}
		}
		if held := d.holders(); held != nil {
			for _, h := range d.hosts {
				if slices.Contains(held.Hosts, h.Member) && !slices.Contains(out.TakesOver, h.state.Holder) {
					out.TakesOver = append(out.TakesOver, h.state.Holder)
				}
			}
		}
	}
	out.Plan, out.Members, out.Left, out.Bump = p.Plan, p.Members, p.Left, p.Bump
	out.Final = len(p.Unsurveyed) == 0 && p.Plan.Chosen != ""
	out.Unproven = out.Unproven || typed
	if len(p.Members) == 0 {
		return out, nil
	}
	out.Branch = branchOf(p)
	if err := out.identify(); err != nil {
		return nil, err
	}
	if old := d.state.decision; old == nil || old.PlanID == "" || !sameEnd(old, out) {
		out.PlanID = randomHex(8)
	}
	return out, nil
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

// keepSummaries moves what was read into the run's own folder.
func (d *coordinator) keepSummaries(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, h := range d.hosts {
		if h.summary == "" {
			continue
		}
		to := filepath.Join(folder, filepath.Base(h.summary))
		if err := os.Rename(h.summary, to); err != nil {
			return err
		}
		h.summary = to
	}
	d.folder = folder
	return nil
}

// remember writes down what a summary was made of.
func (d *coordinator) remember(h *participant) error {
	if d.journal == nil || h.summary == "" {
		return nil
	}
	return d.write(host.Entry{Event: host.EventSurveyed, Host: h.Member}, h.read)
}

// recall takes up the summaries that an earlier command fetched.
func (d *coordinator) recall() error {
	d.folder = filepath.Join(d.journal.Folder(), "summaries")
	if err := os.MkdirAll(d.folder, 0o700); err != nil {
		return err
	}
	for _, h := range d.hosts {
		s, ok := d.state.surveyed[h.Member]
		path := filepath.Join(d.folder, h.Member+".summary")
		if _, err := os.Stat(path); ok && err == nil {
			h.summary, h.read = path, s
		}
	}
	return nil
}

// goOn takes up a run where it is.
func (d *coordinator) goOn(ctx context.Context, book *host.Run, k *runState) (*Report, error) {
	d.run, d.journal, d.state, d.continued = book.ID(), book, k, true
	if d.state.decision == nil {
		return nil, fmt.Errorf("journal of run %s holds no decision: move %s away", d.run, book.Folder())
	}
	changed, err := d.merge()
	if err != nil {
		return nil, err
	}
	if changed {
		if err := d.write(host.Entry{Event: host.EventDecided}, d.state.decision); err != nil {
			return nil, err
		}
	}
	if err := d.reach(); err != nil {
		return nil, err
	}
	defer d.close()
	d.reporter.note(fmt.Sprintf("Going on with run %s, which was confirmed before, at: %s", d.run, d.reached()))
	if err := d.recall(); err != nil {
		return nil, err
	}
	p, err := d.preflight(ctx)
	if err != nil {
		return nil, err
	}
	if held := d.holders(); held != nil && !d.state.begun(PhaseStart, "*") {
		if !d.req.TakeOver {
			return nil, held
		}
		return nil, errors.Join(held, fmt.Errorf("run %s is under way here as well: take it back with --undo before taking over another one", d.run))
	}
	if d.state.begun(PhaseStart, "*") {
		if d.letOn(d.run) && !d.state.done(PhaseProve, "") { // by one elsewhere, which took over
			if err := d.alreadyProved(d.run); err != nil {
				return nil, err
			}
		}
		return d.execute(ctx, p)
	}
	// Hosts that were started anew may have let new members find each other.
	if stops := d.quorumStops(p.Quorum); p.Quorum.Serves && p.Quorum.ClusterID != d.state.decision.NewClusterID && !d.state.decision.Asked.Force {
		return nil, fmt.Errorf("run %s has not got so far that it could not be left: take it back with --undo: %w", d.run, stops)
	}
	if all := d.away(); len(all) > 0 {
		return nil, &HostsError{Phase: PhasePreflight, Errs: all}
	}
	return d.execute(ctx, p)
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
