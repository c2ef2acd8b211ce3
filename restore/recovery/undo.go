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
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/snapshot"
)

// Undo has the hosts put back what the run under way, or the last one that finished, set
// aside, and start the old members and the clients. It asks first. A report comes with an
// error too once all data is back; that wraps a snapshot.IncompleteError if a repository
// could not be written.
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
	last, since := d.lastToUndo()
	if last != nil {
		d.setRun(last.Run, last)
	}
	d.markDead()
	if all := d.away(); len(all) > 0 {
		return nil, &HostsError{Phase: PhasePreflight, Errs: all}
	}
	if last == nil {
		return nil, fmt.Errorf("%w: no host knows of a recovery that is under way or done", ErrNothingToUndo)
	}
	if err := d.allKnown(); err != nil {
		return nil, err
	}
	if last.Undoing {
		d.reporter.note(fmt.Sprintf("Going on with the undo of run %s, which was confirmed before", d.run))
	} else if err := d.askUndo(ctx, since); err != nil {
		return nil, err
	}
	last.Undoing = true
	if err := d.adopt(ctx); err != nil {
		return nil, err
	}
	return d.takeBack(ctx)
}

// lastToUndo returns the newest run that left a new cluster or is under way, and the last
// run after it that was undone.
func (d *coordinator) lastToUndo() (last *decision, undoneSince string) {
	for _, k := range slices.Backward(d.known) {
		switch k.Closed {
		case "":
			return k, undoneSince
		case undone:
			undoneSince = cmp.Or(undoneSince, k.Run)
		case givenUp:
		}
	}
	return nil, ""
}

// allKnown returns an error if a new member could run that no host would stop.
func (d *coordinator) allKnown() error {
	var missing, forgot []string
	for _, h := range d.decision.Hosts {
		if h.Joined && d.host(h.Member) == nil && !slices.Contains(d.req.DeclareDead, h.Member) {
			missing = append(missing, h.Member)
		}
	}
	for _, h := range d.getting() {
		if d.decision.Built != nil && h.state.Unreachable == "" && !h.state.Stopped && !h.touched(d.run) {
			forgot = append(forgot, h.Member)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("run %s has been at work on hosts that %s has not any more: %s. Write them there again or, if they are gone for good: --declare-dead %s", d.run, d.cfg.File(), strings.Join(missing, ", "), strings.Join(missing, ","))
	case len(forgot) > 0:
		return fmt.Errorf("run %s had a new member built on %s, whose state.json (in state-dir) does not know of it any more: it would go on beside the old members. Stop it there, and keep it from being started; then run the same command again", d.run, strings.Join(forgot, ", "))
	}
	return nil
}

// askUndo warns if the new cluster has taken writes, which are set aside with it.
func (d *coordinator) askUndo(ctx context.Context, undoneSince string) error {
	q := Question{Text: fmt.Sprintf("Take run %s back: stop the new members of cluster %s, put the old data back, and start the old members?", d.run, d.cfg.Cluster)}
	if d.anyAside() { // a host that was rebooted since may have started what was built there
		why, err := d.written(ctx)
		if err != nil {
			return err
		}
		if why != "" {
			q.Reasons = append(q.Reasons, why)
		}
	}
	if undoneSince != "" {
		q.Reasons = append(q.Reasons, fmt.Sprintf("the last recovery, run %s, is undone already: this is one before it, of %s", undoneSince, d.decision.Began.Format(time.DateTime)))
	}
	if len(q.Reasons) > 0 {
		q.Type = d.cfg.Cluster
	}
	return d.reporter.confirm(ctx, q)
}

// longAgo is more than it takes to prove a new cluster: by then somebody may have gone
// on with it without us.
const longAgo = time.Hour

// written returns why the new cluster may hold writes that the old one lacks; empty if it
// is known to hold none.
func (d *coordinator) written(ctx context.Context) (string, error) {
	dec := d.decision
	q, err := d.quorum(ctx, dec.clientURLs())
	if err != nil {
		return "", err
	}
	what := "the new cluster does not answer, and may have taken writes"
	if q.Serves {
		what = fmt.Sprintf("cluster %s serves, at revision %d", q.ClusterID, q.Revision)
	}
	switch {
	case !q.Serves && dec.Proved == nil && (dec.Built == nil || time.Since(dec.BuiltAt) < longAgo),
		q.Serves && q.ClusterID == dec.Plan.ClusterID: // it is the old one
		return "", nil
	case q.Serves && q.ClusterID == dec.NewClusterID:
		left := int64(0) // the revision before any client wrote
		if first := dec.first(); dec.Proved != nil {
			left = dec.Proved.Left
		} else if first != nil {
			left = first.Restore.RevisionAfter
		}
		if err := d.grown(q); err != nil || q.Revision <= left {
			return "", err
		}
		what += fmt.Sprintf(", and was left at %d: it has taken writes", left)
	}
	return what + ". What it holds on these hosts is set aside, and missing in the old cluster", nil
}

// grown refuses to undo a cluster with members that this run did not build: no host would
// stop them, and they could serve beside the old cluster.
func (d *coordinator) grown(q Quorum) error {
	first := d.decision.first()
	var added []string
	for id, name := range q.Members {
		if first != nil && !slices.ContainsFunc(first.Restore.Plan.Members, func(m restore.Member) bool { return m.ID == id }) ||
			first == nil && !slices.Contains(d.decision.names(), name) {
			added = append(added, fmt.Sprintf("%s (%s)", cmp.Or(name, "one that was not started yet"), id))
		}
	}
	if len(added) == 0 {
		return nil
	}
	slices.Sort(added)
	return fmt.Errorf("run %s: the new cluster has grown since: %s would not be stopped, and could serve on beside the old cluster. Remove them from it first (etcdctl member remove ID), stop etcd there, and undo then", d.run, strings.Join(added, ", "))
}

// takeBack has each host take the run back, in steps that may be repeated. The next step
// begins once all hosts have done the one before: no old member starts while a new one
// runs, or could be started by a reboot.
func (d *coordinator) takeBack(ctx context.Context) (*UndoReport, error) {
	if d.anyAside() { // else no new member can serve clients
		if err := d.each(ctx, PhaseUndoStop, d.present(), d.stopNew); err != nil {
			return nil, err
		}
	}
	touched := slices.DeleteFunc(d.present(), func(h *participant) bool { return !h.touched(d.run) })
	if err := d.each(ctx, PhasePutBack, touched, d.putBack); err != nil {
		return nil, err
	}
	lineage, incomplete := d.reinstate(ctx)
	old := slices.DeleteFunc(d.present(), func(h *participant) bool { return !d.hasOld(h) })
	ended := d.ended(ctx)
	notStarted := d.each(ctx, PhaseUndoStart, old, func(ctx context.Context, h *participant) (string, error) { return d.startOld(ctx, h, ended) })
	if ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), notStarted)
	}
	// A member that does not start is no reason to keep clients from the others.
	if err := d.each(ctx, PhaseUndoResume, d.present(), d.resumeHost(false)); err != nil {
		return nil, errors.Join(notStarted, err)
	}
	if incomplete == nil {
		d.decision.Closed = undone
		if err := d.store(ctx); err != nil {
			return nil, errors.Join(notStarted, err)
		}
	}
	r := &UndoReport{Cluster: d.cfg.Cluster, Run: d.run, Lineage: lineage}
	for _, h := range d.hosts {
		h.undo.Member, h.undo.Dead = h.Member, h.passedBy()
		r.Hosts = append(r.Hosts, h.undo)
	}
	return r, errors.Join(notStarted, incomplete)
}

// stopNew stops the host's clients, and the member if the run may have built it: where
// nothing was set aside it is as it was.
func (d *coordinator) stopNew(ctx context.Context, h *participant) (string, error) {
	done, err := act(ctx, d, PhaseUndoStop, h, func(ctx context.Context) (*host.Done, error) { return h.client.Quiesce(ctx, false) })
	if err != nil || h.aside(d.run) == nil {
		return "", err
	}
	_, err = act(ctx, d, PhaseUndoStop, h, h.client.Stop)
	return "the member, and clients: " + clientWords(done.Clients), err
}

func (d *coordinator) putBack(ctx context.Context, h *participant) (string, error) {
	done, err := act(ctx, d, PhasePutBack, h, h.client.Undo)
	switch {
	case err == nil:
		h.undo.PutBack, h.undo.Kept = done.Undone.PutBack, done.Undone.Kept
		return h.undo.PutBack, nil
	case h.state.Dead && ctx.Err() == nil:
		h.undo.Failed = "the old data is not put back: " + err.Error()
		return "declared dead, and not put back", nil
	}
	return "", err
}

// reinstate comes before the old members' start: hosts refuse to start members of a
// timeline that has ended.
func (d *coordinator) reinstate(ctx context.Context) (done []TimelinesDone, err error) {
	if len(d.cfg.Repositories) == 0 || d.decision.Built == nil { // no timeline was opened
		return nil, nil
	}
	err = d.timed(ctx, PhaseReinstate, "", func(ctx context.Context) (_ string, err error) {
		if done, err = d.lineage(ctx, ReinstateTimelines); err == nil && len(failures(done)) > 0 {
			err = errors.New(strings.Join(failures(done), "; "))
		}
		return "", err
	})
	if err != nil {
		err = fmt.Errorf("the old data is back, and %w: the old timeline is not reinstated: %w. The same command completes it", snapshot.IncompleteError("not all is done"), err)
	}
	return done, err
}

// hasOld reports whether a host has an old member to start: its data is back, or the run
// stopped it and set nothing aside.
func (d *coordinator) hasOld(h *participant) bool {
	if h.undo.Failed != "" || d.decision.Built != nil && !h.touched(d.run) && slices.Contains(d.decision.names(), h.Member) {
		return false // it has a new one
	}
	return h.undo.PutBack != "" || slices.Contains(d.decision.Ran, h.Member)
}

// startOld starts an old member. If the run found it stopped, that may have a reason: then
// it is only reported that it does not start.
func (d *coordinator) startOld(ctx context.Context, h *participant, ended []host.Ended) (string, error) {
	detail, err := d.startAgain(ctx, h, ended)
	if h.undo.Started = err == nil; h.undo.Started {
		return detail, nil
	}
	h.undo.Failed = "it does not start: " + err.Error()
	if ctx.Err() == nil && (h.state.Dead || !slices.Contains(d.decision.Ran, h.Member)) {
		return "does not start", nil
	}
	return "", err
}
