package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
)

// Undo puts back what the run under way, or the last one that finished, set aside,
// starts the old members, and lets the clients on them. It asks first. A report
// comes with an error that wraps snapshot.ErrIncomplete where it could
// not be recorded in repositories.
//
// Errors to distinguish: ErrNothingToUndo, ErrDeclined, *HostsError.
func Undo(ctx context.Context, req Request) (_ *UndoReport, err error) {
	d, err := newCoordinator(req, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	d.takesBack = true
	if err := d.states(ctx); err != nil {
		return nil, err
	}
	if err := d.found(); err != nil {
		return nil, err
	}
	if last := d.lastToUndo(); last != nil {
		d.setRun(last.Run, last)
	}
	d.markDead()
	if all := d.away(); len(all) > 0 {
		return nil, &HostsError{Phase: PhasePreflight, Errs: all}
	}
	if d.decision == nil {
		return nil, fmt.Errorf("%w: no host knows of a recovery that is under way or done", ErrNothingToUndo)
	}
	if names := d.missing(); len(names) > 0 {
		return nil, fmt.Errorf("run %s has been at work on hosts that %s has not any more: %s. Write them there again or, if they are gone for good: --declare-dead %s", d.run, d.cfg.File(), strings.Join(names, ", "), strings.Join(names, ","))
	}
	if names := d.unrecorded(); len(names) > 0 {
		return nil, fmt.Errorf("run %s had a new member built on %s, whose state.json (in state-dir) does not know of it any more: it would go on beside the old members. Stop it there, and keep it from being started; then run the same command again", d.run, strings.Join(names, ", "))
	}
	if d.decision.Undoing {
		d.reporter.note(fmt.Sprintf("Going on with the undo of run %s, which was confirmed before", d.run))
	} else if err := d.askUndo(ctx); err != nil {
		return nil, err
	}
	d.decision.Undoing = true
	if err := d.adopt(ctx); err != nil {
		return nil, err
	}
	return d.putBack(ctx)
}

// missing are the members whose hosts the run has been at work on, and the cluster file does
// not name: what was built there could serve beside the old members.
func (d *coordinator) missing() (all []string) {
	for _, h := range d.decision.Hosts {
		if h.Joined && d.host(h.Member) == nil && !slices.Contains(d.req.DeclareDead, h.Member) {
			all = append(all, h.Member)
		}
	}
	return all
}

// unrecorded are the hosts that got a member which may run, and whose state file was lost
// since: nothing can be put back there, and nothing would be stopped.
func (d *coordinator) unrecorded() (all []string) {
	for _, h := range d.getting() {
		if d.decision.Built != nil && d.decision.Back == nil && h.state.Unreachable == "" && !h.state.Stopped && h.aside(d.run) == nil {
			all = append(all, h.Member)
		}
	}
	return all
}

// askUndo warns where the new cluster has taken writes, which would be set aside
// with it.
func (d *coordinator) askUndo(ctx context.Context) error {
	q := Question{Text: fmt.Sprintf("Take run %s back: stop the new members of cluster %s, put the old data back, and start the old members?", d.run, d.cfg.Cluster)}
	if d.anyAside() { // a host that was rebooted since may have started what was built there
		why, err := d.written(ctx)
		if err != nil {
			return err
		}
		if why != "" {
			q.Reasons, q.Type = append(q.Reasons, why), d.cfg.Cluster
		}
	}
	if last := d.undoneSince(); last != "" {
		q.Reasons = append(q.Reasons, fmt.Sprintf("the last recovery, run %s, is undone already: this is one before it, of %s", last, d.decision.Began.Format(time.DateTime)))
		q.Type = d.cfg.Cluster
	}
	return d.reporter.confirm(ctx, q)
}

// undoneSince is the last run after this one that was undone; empty where none was.
func (d *coordinator) undoneSince() string {
	for _, k := range slices.Backward(d.known) {
		if k == d.decision {
			break
		}
		if k.Closed == undone {
			return k.Run
		}
	}
	return ""
}

// longAgo is more than it takes to prove a new cluster: by then somebody may have gone
// on with it without us.
const longAgo = time.Hour

// written says why the new cluster may hold what the old one does not; empty where
// it is known that it does not.
func (d *coordinator) written(ctx context.Context) (string, error) {
	left, proved := int64(0), d.decision.Proved != nil
	if proved {
		left = d.decision.Proved.Left
	} else if first := d.decision.first(); first != nil { // no client was let on it
		left = first.Restore.RevisionAfter
	}
	q, err := d.quorum(ctx, d.decision.clientURLs())
	switch {
	case err != nil:
		return "", err
	case !q.Serves && !proved && d.decision.Built != nil && time.Since(d.decision.BuiltAt) > longAgo:
		return fmt.Sprintf("the new members were built at %s, and cannot be asked now whether they have served since: what they have taken is set aside with their data, and missing in the old cluster", d.decision.BuiltAt.Format(time.DateTime)), nil
	case !q.Serves && !proved:
		return "", nil
	case !q.Serves:
		return "the new cluster was proved and let clients on, and cannot be asked now whether it has taken writes: what it has taken is set aside with its data, and missing in the old one", nil
	case q.ClusterID == d.decision.Plan.ClusterID:
		return "", nil // it is the old one that answers
	case q.ClusterID != d.decision.NewClusterID:
		return fmt.Sprintf("it is cluster %s that serves, neither the one that this run made nor the one before: it would be stopped, and set aside where it lies on these hosts", q.ClusterID), nil
	}
	if err := d.grown(q); err != nil {
		return "", err
	}
	if q.Revision > left {
		return fmt.Sprintf("the new cluster has taken writes: it is at revision %d, and was left at %d. They are set aside with its data, and missing in the old one", q.Revision, left), nil
	}
	return "", nil
}

// grown refuses to undo a cluster that has members by now which are not this run's:
// nobody would stop them, and they could go on beside the old cluster.
func (d *coordinator) grown(q Quorum) error {
	own := func(id snapshot.ID, name string) bool { return slices.Contains(d.decision.names(), name) }
	if first := d.decision.first(); first != nil {
		own = func(id snapshot.ID, _ string) bool {
			return slices.ContainsFunc(first.Restore.Plan.Members, func(m restore.Member) bool { return m.ID == id })
		}
	}
	var added []string
	for id, name := range q.Members {
		if !own(id, name) {
			added = append(added, fmt.Sprintf("%s (%s)", cmp.Or(name, "one that was not started yet"), id))
		}
	}
	if len(added) == 0 {
		return nil
	}
	slices.Sort(added)
	return fmt.Errorf("run %s: the new cluster has grown since: %s would not be stopped, and could serve on beside the old cluster. Remove them from it first (etcdctl member remove ID), stop etcd there, and undo then", d.run, strings.Join(added, ", "))
}

// putBack undoes the steps, the last one first. Each may be repeated.
func (d *coordinator) putBack(ctx context.Context) (*UndoReport, error) {
	asides := slices.DeleteFunc(d.present(), func(h *participant) bool { return h.aside(d.run) == nil })
	if d.decision.Back == nil {
		d.decision.Back = map[string]HostUndo{}
		for _, h := range asides {
			u := HostUndo{Member: h.Member}
			if a := h.aside(d.run); a.Folder != "" {
				u.PutBack = a.DataDir
			}
			d.decision.Back[h.Member] = u
		}
		if err := d.store(ctx); err != nil {
			return nil, err
		}
	}
	if len(asides) > 0 { // else no new member can serve clients
		if err := d.quiesce(ctx, PhaseUndoQuiesce); err != nil {
			return nil, err
		}
	}
	// Hosts where nothing was set aside and whose member this run did not stop are
	// as they were.
	if err := d.each(ctx, PhaseUndoStop, asides, func(ctx context.Context, h *participant) (string, error) {
		_, err := act(ctx, d, PhaseUndoStop, h, h.client.Stop)
		return "stopped", err
	}); err != nil {
		return nil, err
	}
	if err := d.each(ctx, PhasePutBack, asides, d.putBackHost); err != nil {
		return nil, err
	}
	var incomplete []string
	done, err := d.reinstate(ctx)
	if err != nil {
		incomplete = append(incomplete, "the old timeline is not reinstated: "+err.Error())
		d.reporter.warn(incomplete[0])
	}
	started, warnings, notStarted := d.startOld(ctx)
	if ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), notStarted)
	}
	// A member that does not start is no reason to keep clients from the others.
	if err := d.each(ctx, PhaseUndoResume, d.present(), d.resumeHost); err != nil {
		return nil, errors.Join(notStarted, err)
	}
	if len(incomplete) > 0 {
		return d.undoReport(started, done, incomplete, warnings), errors.Join(notStarted, fmt.Errorf("the old data is back, and %w: %s. The same command completes it", snapshot.IncompleteError("not all is done"), strings.Join(incomplete, "; ")))
	}
	d.decision.Closed = undone
	if err := errors.Join(notStarted, d.store(ctx)); err != nil {
		return nil, err
	}
	return d.undoReport(started, done, incomplete, warnings), nil
}

// lastToUndo is the newest run that was not put back; nil where there is none.
func (d *coordinator) lastToUndo() *decision {
	for _, k := range slices.Backward(d.known) {
		if k.Closed == "" {
			return k
		}
	}
	return nil
}

func (d *coordinator) putBackHost(ctx context.Context, h *participant) (string, error) {
	done, err := act(ctx, d, PhasePutBack, h, h.client.Undo)
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.decision.Back[h.Member]
	defer func() { d.decision.Back[h.Member] = u }()
	switch {
	case err == nil:
		u.Kept = done.Kept
		d.warnAll(h, done.Warnings)
		return u.PutBack, nil
	case h.state.Dead && ctx.Err() == nil:
		u.PutBack, u.Failed = "", err.Error()
		return "declared dead, and not put back", nil
	}
	return "", err
}

// reinstate comes before the old members' start: hosts refuse those of
// a timeline that has ended.
func (d *coordinator) reinstate(ctx context.Context) (done []TimelinesDone, err error) {
	if len(d.cfg.Repositories) == 0 || d.decision.Built == nil { // no timeline was opened
		return nil, nil
	}
	err = d.timed(ctx, PhaseReinstate, "", func(ctx context.Context) (_ string, err error) {
		if done, err = d.lineage(ctx, ReinstateTimelines); err != nil {
			return "", err
		}
		if all := failures(done); len(all) > 0 {
			return "", errors.New(strings.Join(all, "; "))
		}
		return "", nil
	})
	return done, err
}

// startOld starts the old members: those whose data is back, and those that this run
// stopped. One that was found stopped may be so for a reason, which is reported and no more.
func (d *coordinator) startOld(ctx context.Context) (started map[string]bool, warnings []string, err error) {
	old := slices.DeleteFunc(d.present(), func(h *participant) bool {
		u, recorded := d.decision.Back[h.Member]
		is := d.decision.Built != nil && !recorded && slices.Contains(d.decision.names(), h.Member) // a new member lies there still
		return is || u.PutBack == "" && !slices.Contains(d.decision.Ran, h.Member)
	})
	started = map[string]bool{}
	failed := map[string]string{}
	err = d.each(ctx, PhaseUndoStart, old, func(ctx context.Context, h *participant) (string, error) {
		detail, err := d.startAgain(ctx, h)
		d.mu.Lock()
		defer d.mu.Unlock()
		if err != nil && (h.state.Dead || !slices.Contains(d.decision.Ran, h.Member)) && ctx.Err() == nil {
			failed[h.Member] = err.Error()
			return "does not start", nil
		}
		started[h.Member] = err == nil
		return detail, err
	})
	for _, name := range sortedKeys(failed) {
		why := "was stopped before the recovery"
		if d.host(name).state.Dead {
			why = "is declared dead"
		}
		w := fmt.Sprintf("%s %s, and does not start: %s", name, why, failed[name])
		d.reporter.warn(w)
		warnings = append(warnings, w)
	}
	return started, warnings, err
}

func (d *coordinator) undoReport(started map[string]bool, reinstated []TimelinesDone, incomplete, warnings []string) *UndoReport {
	r := &UndoReport{Cluster: d.cfg.Cluster, Run: d.run, Lineage: reinstated, Incomplete: incomplete, Warnings: warnings, Phases: d.phases}
	for _, h := range d.hosts {
		u := d.decision.Back[h.Member]
		u.Member, u.Started = h.Member, started[h.Member]
		if u.Dead = h.passedBy(); u.Dead {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s was passed by: should its host come back, it may have a member of cluster %s that was taken back", h.Member, d.decision.NewClusterID))
		}
		if u.Failed != "" {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s is declared dead, and its old data was not put back: %s", h.Member, u.Failed))
		}
		for _, k := range u.Kept {
			r.Next = append(r.Next, fmt.Sprintf("%s: what the new cluster had is in %s; remove it when you don't need it", h.Member, k))
		}
		r.Hosts = append(r.Hosts, u)
	}
	return r
}
