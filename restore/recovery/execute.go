package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/snapshot"
)

// execute does what was decided, from where the journal says that it is.
func (d *coordinator) execute(ctx context.Context, p *Preview) (*Report, error) {
	if !d.state.begun(PhaseStart, "*") {
		if err := d.ready(ctx, p); err != nil {
			return nil, err
		}
	}
	if !d.state.done(PhaseProve, "") {
		// Since the first time a host may have been rebooted, and have started them.
		if err := d.quiesce(ctx); err != nil {
			return nil, err
		}
		if err := d.start(ctx); err != nil {
			return nil, err
		}
		if err := d.prove(ctx); err != nil {
			return nil, err
		}
	}
	return d.complete(ctx)
}

// ready takes everything to where the new members can be started. Until that each
// step is done anew on each host, or made sure of: between two commands a host may
// have been started anew.
func (d *coordinator) ready(ctx context.Context, p *Preview) error {
	if err := d.takeOver(ctx); err != nil {
		return err
	}
	if err := d.quiesce(ctx); err != nil {
		return err
	}
	if err := d.fence(ctx, p); err != nil {
		return err
	}
	if err := d.completeAsides(ctx); err != nil {
		return err
	}
	if err := d.settled(ctx, p); err != nil {
		return err
	}
	if err := d.setAside(ctx, d.asideHosts()); err != nil {
		return err
	}
	if err := d.rebuild(ctx); err != nil {
		return err
	}
	return d.openTimeline(ctx)
}

// takeOver puts back what runs of coordinators elsewhere set aside. From the fence on
// they are refused.
func (d *coordinator) takeOver(ctx context.Context) error {
	runs := d.state.decision.TakesOver
	if len(runs) == 0 {
		return nil
	}
	return d.each(ctx, PhaseTakeOver, d.present(), false, func(ctx context.Context, h *participant) (outcome, error) {
		var back []string
		for _, r := range runs {
			if !heldAside(h, r) {
				continue // what the run let go serves, or did
			}
			c := h.line.As(r, "")
			if _, err := act(ctx, d, PhaseTakeOver, h, c.Stop); err != nil {
				return outcome{}, err
			}
			if _, err := act(ctx, d, PhaseTakeOver, h, c.Undo); err != nil && !isRefusal(err, host.NotFound) {
				return outcome{}, err
			}
			back = append(back, r)
		}
		if len(back) == 0 {
			return outcome{detail: "nothing to put back"}, nil
		}
		h.state.Aside = slices.DeleteFunc(h.state.Aside, func(r string) bool { return slices.Contains(back, r) })
		h.state.Holder = back[len(back)-1]
		h.client = h.line.As(d.run, h.state.Holder)
		return outcome{detail: "put back what run " + strings.Join(back, ", ") + " had set aside"}, nil
	})
}

// quiesce stops the clients, which could write in between.
func (d *coordinator) quiesce(ctx context.Context) error {
	return d.each(ctx, PhaseQuiesce, d.present(), true, func(ctx context.Context, h *participant) (outcome, error) {
		done, err := act(ctx, d, PhaseQuiesce, h, h.client.Quiesce)
		if err != nil {
			return outcome{}, err
		}
		d.warnAll(h, done.Warnings)
		return outcome{result: done.Clients, detail: clientWords(done.Clients)}, nil
	})
}

func clientWords(all []host.ClientState) string {
	if len(all) == 0 {
		return "none configured"
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

func (d *coordinator) warnAll(h *participant, all []string) {
	for _, w := range all {
		d.reporter.warn(h.Member + ": " + w)
	}
}

// fence stops what is left of the old members, and keeps the proofs.
func (d *coordinator) fence(ctx context.Context, p *Preview) error {
	err := d.each(ctx, PhaseFence, d.present(), true, func(ctx context.Context, h *participant) (outcome, error) {
		done, err := act(ctx, d, PhaseFence, h, h.client.Stop)
		if err != nil {
			return outcome{}, err
		}
		h.state.Stopped, h.state.Runs, h.state.Unclear = true, false, ""
		return outcome{result: done.Stopped, detail: "stopped"}, nil
	})
	d.show(p)
	return err
}

// completeAsides ends what a crash left half-way: only what was set aside whole can
// be read.
func (d *coordinator) completeAsides(ctx context.Context) error {
	var half []*participant
	for _, h := range d.present() {
		if d.state.begun(PhaseSetAside, h.Member) && !d.state.done(PhaseSetAside, h.Member) {
			half = append(half, h)
		}
	}
	if len(half) == 0 {
		return nil
	}
	return d.setAside(ctx, half)
}

// settled makes sure that the decision is about what is there: where more can be
// read than when it was made, or a member has run since, it is made anew.
func (d *coordinator) settled(ctx context.Context, p *Preview) error {
	fetched, err := d.summaries(ctx)
	if err != nil {
		return err
	}
	old := d.state.decision
	if old.Final && !fetched && old.Plan.Fence.Enough && !d.declared() {
		return nil
	}
	if err := d.survey(ctx, p); err != nil {
		if chooses(err) {
			err = fmt.Errorf("%w\nMembers and clients stay stopped as they are: run the same command again with what is missing, or with --undo to start again what ran", err)
		}
		return err
	}
	if !p.Plan.Fence.Enough {
		return &FenceError{Run: d.run, Why: p.Plan.Fence.Why}
	}
	if all, _ := d.blockers(p); len(all) > 0 {
		return fmt.Errorf("run %s does not go on as things are: %w", d.run, errors.New(strings.Join(all, "\n")))
	}
	reasons := old.worse(p)
	typed := false
	if len(reasons) > 0 {
		q := Question{Kind: AskChanged, Preview: p, Reasons: slices.Concat(reasons, p.Warnings),
			Text: fmt.Sprintf("All old members are stopped, and what they hold is read. Recover cluster %s from %s?", d.cfg.Cluster, p.Plan.Chosen)}
		if !p.Plan.Proven {
			q.Text += " It is unproven that no acknowledged write is lost."
			q.Type = d.cfg.Cluster
		}
		if err := d.ask(ctx, q); err != nil {
			return d.callOff(ctx, err)
		}
		typed = q.Type != ""
	}
	decided, err := d.decide(p, typed)
	if err != nil {
		return err
	}
	decided.Final = true
	return d.write(host.Entry{Event: host.EventDecided}, decided)
}

// declared reports whether more was declared dead than the plan says.
func (d *coordinator) declared() bool {
	dead := d.state.decision.Asked.DeclareDead
	return len(d.state.decision.Plan.Fence.DeclaredDead) != len(dead)
}

// callOff starts again what was stopped, where the operator refuses the plan. No data was
// touched yet; where it was, an undo puts it back.
func (d *coordinator) callOff(ctx context.Context, why error) error {
	if d.state.begun(PhaseSetAside, "*") || ctx.Err() != nil {
		return why
	}
	d.reporter.note("Not confirmed: what was stopped is started again")
	err := d.each(ctx, PhaseUndoStart, d.ran(), true, d.startAgain)
	if err == nil {
		err = d.each(ctx, PhaseUndoResume, d.present(), true, d.resumeHost)
	}
	if err == nil {
		err = d.write(host.Entry{Event: host.EventDeclined}, nil)
	}
	return errors.Join(why, err)
}

// ran are the hosts whose members ran when the run was begun.
func (d *coordinator) ran() []*participant {
	return slices.DeleteFunc(d.present(), func(h *participant) bool { return !slices.Contains(d.state.decision.Ran, h.Member) })
}

func (d *coordinator) startAgain(ctx context.Context, h *participant) (outcome, error) {
	done, err := act(ctx, d, PhaseUndoStart, h, h.client.Start)
	if err != nil {
		return outcome{}, err
	}
	d.warnAll(h, done.Warnings)
	return outcome{detail: "started"}, nil
}

func (d *coordinator) resumeHost(ctx context.Context, h *participant) (outcome, error) {
	done, err := act(ctx, d, PhaseResume, h, h.client.Resume)
	if err != nil {
		return outcome{}, err
	}
	return outcome{result: done.Clients, detail: clientWords(done.Clients)}, nil
}

// asideHosts are those that get a member, and all others that can be reached and
// have data, or had an old member: what is startable there would come back with a
// reboot, and a majority of that would serve beside the new cluster. From an empty
// directory a member begins a cluster anew.
func (d *coordinator) asideHosts() []*participant {
	all := d.getting()
	for _, h := range d.present() {
		old := slices.ContainsFunc(d.state.decision.Plan.Members, func(m snapshot.Member) bool { return m.Name == h.Member })
		if (!h.empty || old) && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all
}

// spare tells of a host that the recovery can do without: it is declared dead, gets
// no member, and nothing is read there.
func (d *coordinator) spare(h *participant) bool {
	return h.state.Dead && !slices.Contains(d.getting(), h) && !slices.Contains(owners(d.state.decision.candidate().Source), h.Member)
}

func (d *coordinator) setAside(ctx context.Context, hosts []*participant) error {
	return d.each(ctx, PhaseSetAside, hosts, false, func(ctx context.Context, h *participant) (outcome, error) {
		done, err := act(ctx, d, PhaseSetAside, h, h.client.SetAside)
		if err != nil && d.spare(h) && ctx.Err() == nil {
			d.reporter.warn(fmt.Sprintf("%s is declared dead, and its old data is not set aside: keep it from starting: %v", h.Member, err))
			return outcome{result: restore.Aside{}, detail: "declared dead, and left as it is"}, nil
		}
		if err != nil {
			return outcome{}, err
		}
		detail := "there was nothing"
		if a := done.Aside; a != nil && a.Folder != "" {
			detail = a.Folder
		}
		if !slices.Contains(h.state.Aside, d.run) {
			h.state.Aside = append(h.state.Aside, d.run)
		}
		return outcome{result: done.Aside, detail: detail}, nil
	})
}
