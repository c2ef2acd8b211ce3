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
)

// Undo puts back what the run under way, or the last one that finished, set aside,
// starts the old members, and lets the clients on them. It asks first. A report
// comes with an error that wraps snapshot.ErrIncomplete where repositories could
// not be told.
//
// Errors to tell apart: ErrNothingToUndo, ErrDeclined, *HostsError, *ConflictError.
func Undo(ctx context.Context, req Request) (_ *UndoReport, err error) {
	d, err := newCoordinator(req)
	if err != nil {
		return nil, err
	}
	if req.Events == nil {
		return nil, errors.New("recover --undo: nobody is there to confirm: Request.Events is nil")
	}
	folder, err := host.OpenFolder(d.cfg.StateDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	d.runs = folder.Runs()
	last, state, err := d.lastToUndo()
	switch {
	case err != nil:
		return nil, err
	case last == nil:
		return nil, fmt.Errorf("%w: %s holds no recovery that is under way or done", ErrNothingToUndo, d.cfg.StateDir)
	}
	if r := state.decision.Inherited; r != "" {
		return nil, fmt.Errorf("%w from here: what run %s completed was begun by run %s, whose journal is where that was begun. Undo it there, or, by hand, on each host: stop etcd, and put back what is set aside in its data directory", ErrNothingToUndo, last.ID(), r)
	}
	d.run, d.journal, d.state, d.continued, d.takesBack = last.ID(), last, state, state.undoing, true
	if err := d.reach(); err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.states(ctx); err != nil {
		return nil, err
	}
	d.takeHold()
	if held := d.holders(); held != nil && !req.TakeOver {
		return nil, held
	}
	if err := d.newest(); err != nil {
		return nil, err
	}
	if all := d.away(); len(all) > 0 {
		return nil, &HostsError{Phase: PhasePreflight, Errs: all}
	}
	if !state.undoing {
		if err := d.askUndo(ctx); err != nil {
			return nil, err
		}
		if err := d.write(host.Entry{Event: host.EventUndoing}, nil); err != nil {
			return nil, err
		}
	} else {
		d.reporter.note(fmt.Sprintf("Going on with the undo of run %s, which was confirmed before", d.run))
	}
	return d.putBack(ctx)
}

// newest refuses to go under a later recovery, begun elsewhere: its cluster would be
// stopped, and what came before could not be put back.
func (d *coordinator) newest() error {
	for _, h := range d.hosts {
		if i := slices.Index(h.state.Aside, d.run); i >= 0 && i < len(h.state.Aside)-1 {
			last := h.state.Aside[len(h.state.Aside)-1]
			return fmt.Errorf("run %s cannot be undone: on %s run %s has set data aside after it. Nothing was changed; undo that one first, where it was begun", d.run, h.Member, last)
		}
	}
	return nil
}

// askUndo warns where the new cluster has taken writes, which would be set aside
// with it.
func (d *coordinator) askUndo(ctx context.Context) error {
	q := Question{Kind: AskUndo, Text: fmt.Sprintf("Take run %s back: stop the new members of cluster %s, put the old data back, and start the old members?", d.run, d.cfg.Cluster)}
	if d.state.begun(PhaseRebuild, "*") { // a host that was rebooted since may have started it
		why, err := d.written(ctx)
		if err != nil {
			return err
		}
		if why != "" {
			q.Reasons, q.Type = append(q.Reasons, why), d.cfg.Cluster
		}
	}
	if last := d.undoneSince(); last != "" {
		q.Reasons = append(q.Reasons, fmt.Sprintf("the last recovery, run %s, is undone already: this is one before it, of %s", last, d.state.first.Format(time.DateTime)))
		q.Type = d.cfg.Cluster
	}
	return d.ask(ctx, q)
}

// undoneSince is the last run after this one that was undone; empty where none was.
func (d *coordinator) undoneSince() string {
	for _, r := range slices.Backward(d.runs) {
		if r.ID() == d.run {
			break
		}
		if k, err := read(r); err == nil && k.closed && k.undoing {
			return r.ID()
		}
	}
	return ""
}

// written says why the new cluster may hold what the old one does not; empty where
// it is known that it does not.
func (d *coordinator) written(ctx context.Context) (string, error) {
	var was proved
	done, err := d.state.result(PhaseProve, "", &was)
	if err != nil {
		return "", err
	}
	left := was.Left
	if !done { // no client was let on it
		if all, err := d.rebuilt(); err == nil {
			left = all[sortedKeys(all)[0]].Restore.RevisionAfter
		}
	}
	done = done || d.letOn(d.run) // by one elsewhere, which took over
	q, err := d.quorum(ctx, d.state.decision.clientURLs())
	switch {
	case err != nil:
		return "", err
	case !q.Serves && !done:
		return "", nil
	case !q.Serves:
		return "the new cluster was proved and let clients on, and cannot be asked now whether it has taken writes: what it has taken is set aside with its data, and missing in the old one", nil
	case d.state.decision.Plan != nil && q.ClusterID == d.state.decision.Plan.ClusterID:
		return "", nil // it is the old one that answers
	case q.ClusterID != d.state.decision.NewClusterID:
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
	all, err := d.rebuilt()
	if err != nil {
		return err
	}
	built := members(all[sortedKeys(all)[0]])
	var added []string
	for id, name := range q.Members {
		if !slices.ContainsFunc(built, func(m restore.Member) bool { return m.ID == id }) {
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
	// Where nothing was set aside no new member can serve clients.
	var serving []*participant
	if slices.ContainsFunc(d.present(), d.mayBeAside) {
		serving = d.present()
	}
	if err := d.each(ctx, PhaseUndoQuiesce, serving, false, func(ctx context.Context, h *participant) (outcome, error) {
		done, err := act(ctx, d, PhaseUndoQuiesce, h, h.client.Quiesce)
		if err != nil {
			return outcome{}, err
		}
		return outcome{detail: clientWords(done.Clients)}, nil
	}); err != nil {
		return nil, err
	}
	// By now no action is under way that an earlier command had begun.
	if err := d.states(ctx); err != nil {
		return nil, err
	}
	if all := d.away(); len(all) > 0 {
		return nil, &HostsError{Phase: PhasePreflight, Errs: all}
	}
	asides := d.asided()
	old := d.oldMembers(asides)
	// Hosts where nothing was set aside and whose member this run did not stop are
	// as they were.
	if err := d.each(ctx, PhaseUndoStop, asides, false, func(ctx context.Context, h *participant) (outcome, error) {
		_, err := act(ctx, d, PhaseUndoStop, h, h.client.Stop)
		return outcome{detail: "stopped"}, err
	}); err != nil {
		return nil, err
	}
	if err := d.each(ctx, PhasePutBack, asides, false, d.putBackHost); err != nil {
		return nil, err
	}
	var incomplete []string
	done, err := d.reinstate(ctx)
	if err != nil {
		incomplete = append(incomplete, "the old timeline is not reinstated: "+err.Error())
		d.reporter.warn(incomplete[0])
	}
	warnings, err := d.startOld(ctx, old)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, d.write(host.Entry{Event: host.EventDone, Phase: string(PhaseUndoStart), Host: startFailed}, nil))
	}
	if ctx.Err() == nil { // a member that does not start is no reason to keep clients from the others
		err = errors.Join(err, d.each(ctx, PhaseUndoResume, d.present(), false, d.resumeHost))
	}
	if err != nil {
		return nil, err
	}
	r, err := d.undoReport(old, done, incomplete, warnings)
	if err != nil {
		return nil, err
	}
	if len(incomplete) > 0 {
		return r, fmt.Errorf("the old data is back, and %w: %s. The same command completes it", notAll{}, strings.Join(incomplete, "; "))
	}
	return r, d.write(host.Entry{Event: host.EventUndone}, r)
}

// asided are the hosts on which data is set aside that this run puts back, or began
// to. The hosts know it best: a coordinator elsewhere may have taken the run over.
func (d *coordinator) asided() []*participant {
	return slices.DeleteFunc(d.present(), func(h *participant) bool {
		return !d.state.begun(PhasePutBack, h.Member) && !slices.Contains(h.state.Aside, d.run)
	})
}

// mayBeAside tells also of a host where a set-aside may be under way.
func (d *coordinator) mayBeAside(h *participant) bool {
	return slices.Contains(h.state.Aside, d.run) || d.state.begun(PhasePutBack, h.Member) ||
		d.state.begun(PhaseSetAside, h.Member) && !d.state.done(PhaseSetAside, h.Member)
}

// lastToUndo is the newest run that changed something and was not put back.
func (d *coordinator) lastToUndo() (*host.Run, *runState, error) {
	for _, r := range slices.Backward(d.runs) {
		k, err := read(r)
		if err != nil {
			return nil, nil, fmt.Errorf("journal of run %s: %w", r.ID(), err)
		}
		if !k.closed && k.decision != nil && !k.inheriting() {
			return r, k, nil
		}
	}
	return nil, nil, nil
}

// oldMembers are the hosts whose old members are to run: those whose data comes
// back, and those that this run stopped.
func (d *coordinator) oldMembers(asides []*participant) []*participant {
	return slices.DeleteFunc(d.present(), func(h *participant) bool {
		if slices.Contains(d.state.decision.Ran, h.Member) {
			return !d.state.begun(PhaseFence, h.Member)
		}
		if !slices.Contains(asides, h) {
			return true
		}
		var a restore.Aside
		done, err := d.state.result(PhaseSetAside, h.Member, &a)
		return err == nil && done && a.Folder == "" // there was nothing
	})
}

func (d *coordinator) putBackHost(ctx context.Context, h *participant) (outcome, error) {
	done, err := act(ctx, d, PhasePutBack, h, h.client.Undo)
	if err != nil && h.state.Dead && ctx.Err() == nil && !isRefusal(err, host.NotFound) {
		return outcome{result: HostUndo{Member: h.Member, Failed: err.Error()}, detail: "declared dead, and not put back"}, nil
	}
	if isRefusal(err, host.NotFound) {
		// An earlier command may have put it back, and have been killed before it knew.
		var a restore.Aside
		d.mu.Lock()
		done, err := d.state.result(PhaseSetAside, h.Member, &a)
		d.mu.Unlock()
		u := HostUndo{Member: h.Member}
		if done && a.Folder != "" {
			u.PutBack = a.DataDir
		}
		return outcome{result: u, detail: u.PutBack}, err
	}
	if err != nil {
		return outcome{}, err
	}
	u := HostUndo{Member: h.Member, Kept: done.Kept}
	if done.Aside != nil {
		u.PutBack = done.Aside.DataDir
	}
	d.warnAll(h, done.Warnings)
	return outcome{result: u, detail: u.PutBack}, nil
}

// reinstate comes before the old members' start: hosts refuse those of
// a timeline that has ended.
func (d *coordinator) reinstate(ctx context.Context) (done []TimelinesDone, err error) {
	if len(d.cfg.Repositories) == 0 || !d.state.begun(PhaseLineage, "*") && !d.state.begun(PhaseSupersede, "*") {
		return nil, nil
	}
	if found, err := d.state.result(PhaseReinstate, "", &done); found || err != nil {
		return done, err
	}
	err = d.whole(ctx, PhaseReinstate, func(ctx context.Context) (outcome, error) {
		if done, err = d.lineage(ctx, ReinstateTimelines); err != nil {
			return outcome{}, err
		}
		if all := failures(done); len(all) > 0 {
			return outcome{}, errors.New(strings.Join(all, "; "))
		}
		return outcome{result: done}, nil
	})
	return done, err
}

// startOld starts the old members. One that was found stopped may be so for a
// reason, which is told and no more.
func (d *coordinator) startOld(ctx context.Context, old []*participant) (warnings []string, err error) {
	failed := map[string]string{}
	err = d.each(ctx, PhaseUndoStart, old, false, func(ctx context.Context, h *participant) (outcome, error) {
		out, err := d.startAgain(ctx, h)
		if err != nil && (h.state.Dead || !slices.Contains(d.state.decision.Ran, h.Member)) && ctx.Err() == nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			failed[h.Member] = err.Error()
			return outcome{result: started{[]string{err.Error()}}, detail: "does not start"}, nil
		}
		return out, err
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
	return warnings, err
}

func (d *coordinator) undoReport(old []*participant, reinstated []TimelinesDone, incomplete, warnings []string) (*UndoReport, error) {
	r := &UndoReport{Cluster: d.cfg.Cluster, Run: d.run, Lineage: reinstated, Incomplete: incomplete, Warnings: warnings}
	for _, h := range d.hosts {
		u := HostUndo{Member: h.Member}
		if _, err := d.state.result(PhasePutBack, h.Member, &u); err != nil {
			return nil, err
		}
		var s started
		done, err := d.state.result(PhaseUndoStart, h.Member, &s)
		if err != nil {
			return nil, err
		}
		u.Started = done && len(s.Warnings) == 0 && slices.Contains(old, h)
		if u.Dead = h.passedBy(); u.Dead {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s was passed by: should its host come back, it may have a member of cluster %s that was taken back", h.Member, d.state.decision.NewClusterID))
		}
		if u.Failed != "" {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s is declared dead, and its old data was not put back: %s", h.Member, u.Failed))
		}
		for _, k := range u.Kept {
			r.Next = append(r.Next, fmt.Sprintf("%s: what the new cluster had is in %s; remove it when you don't need it", h.Member, k))
		}
		r.Hosts = append(r.Hosts, u)
	}
	for _, t := range d.state.times() {
		if slices.Contains([]Phase{PhaseUndoQuiesce, PhaseUndoStop, PhasePutBack, PhaseReinstate, PhaseUndoStart, PhaseUndoResume}, t.Phase) {
			r.Phases = append(r.Phases, t)
		}
	}
	return r, nil
}
