package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
)

// execute does what was decided, from where the run is.
func (d *coordinator) execute(ctx context.Context, p *Preview) (*Report, error) {
	if d.decision.Built == nil {
		if err := d.build(ctx, p); err != nil {
			return nil, err
		}
	}
	if d.decision.Proved == nil {
		if err := d.openTimeline(ctx); err != nil {
			return nil, err
		}
		// Since the first time a host may have been rebooted, and have started them.
		if err := d.quiesce(ctx); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer func() { // who fails does not wait for the slowest
			cancel()
			_ = d.starting.wait()
		}()
		// One that was lost since, and declared dead, is missing in the proof.
		if err := d.start(ctx, slices.DeleteFunc(d.getting(), (*participant).passedBy)); err != nil {
			return nil, err
		}
		if err := d.prove(ctx); err != nil {
			return nil, err
		}
	}
	return d.complete(ctx)
}

// build takes everything to where the new members can be started. Until that each
// step is done anew on each host, or made sure of: between two commands a host may
// have been started anew.
func (d *coordinator) build(ctx context.Context, p *Preview) error {
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
	return d.rebuild(ctx)
}

// quiesce stops the clients, which could write in between.
func (d *coordinator) quiesce(ctx context.Context) error {
	return d.each(ctx, PhaseQuiesce, d.present(), func(ctx context.Context, h *participant) (string, error) {
		kill := !d.decision.Asked.Force // else the cluster may serve
		done, err := act(ctx, d, PhaseQuiesce, h, func(ctx context.Context) (*host.Done, error) { return h.client.Quiesce(ctx, kill) })
		if err != nil {
			return "", err
		}
		d.warnAll(h, done.Warnings)
		return clientWords(done.Clients), nil
	})
}

func clientWords(all []host.ClientState) string {
	if len(all) == 0 {
		return "none"
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

// fence stops what is left of the old members.
func (d *coordinator) fence(ctx context.Context, p *Preview) error {
	err := d.each(ctx, PhaseFence, d.present(), func(ctx context.Context, h *participant) (string, error) {
		if _, err := act(ctx, d, PhaseFence, h, h.client.Stop); err != nil {
			return "", err
		}
		h.state.Stopped, h.state.Runs, h.state.Unclear = true, false, ""
		return "stopped", nil
	})
	d.show(p)
	return err
}

// completeAsides ends what a crash left half-way: only what was set aside whole can
// be read.
func (d *coordinator) completeAsides(ctx context.Context) error {
	var half []*participant
	for _, h := range d.present() {
		if a := h.aside(d.run); a != nil && !a.Done {
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
	changed, err := d.eachSurveyable(ctx, d.changed)
	if err != nil {
		return err
	}
	old := d.decision
	if old.Final && !changed && old.Plan.Fence.Enough && !d.declared() {
		return nil
	}
	if err := d.survey(ctx, p); err != nil {
		if sources.AboutSource(err) {
			err = fmt.Errorf("%w\nMembers and clients stay stopped as they are: run the same command again with what is missing, or with --undo to start again what ran", err)
		}
		return err
	}
	if !p.Plan.Fence.Enough {
		return &restore.RequestError{Err: fmt.Errorf("run %s does not go on: %s", d.run, p.Plan.Fence.Why)}
	}
	if all, _ := d.blockers(p); len(all) > 0 {
		return fmt.Errorf("run %s does not go on as things are: %w", d.run, errors.New(strings.Join(all, "\n")))
	}
	reasons := old.worse(p)
	typed := false
	if len(reasons) > 0 {
		q := Question{Preview: p, Reasons: reasons,
			Text: fmt.Sprintf("All old members are stopped, and what they hold is read. Recover cluster %s from %s?", d.cfg.Cluster, p.Plan.Chosen)}
		if !p.Plan.Proven {
			q.Text += " It is unproven that no acknowledged write is lost."
			q.Type = d.cfg.Cluster
		}
		if err := d.reporter.confirm(ctx, q); err != nil {
			return d.declined(ctx, err)
		}
		typed = q.Type != ""
	}
	if err := d.decide(p, typed); err != nil {
		return err
	}
	d.decision.Final = true
	return d.store(ctx)
}

// declared reports whether more was declared dead than the plan says.
func (d *coordinator) declared() bool {
	dead := d.decision.Asked.DeclareDead
	return len(d.decision.Plan.Fence.DeclaredDead) != len(dead)
}

// declined starts again what was stopped, where the operator refuses the plan. No data was
// touched yet; where it was, an undo puts it back.
func (d *coordinator) declined(ctx context.Context, why error) error {
	if d.anyAside() || ctx.Err() != nil {
		return why
	}
	d.reporter.note("Not confirmed: what was stopped is started again")
	return errors.Join(why, d.endUnchanged(ctx))
}

// endUnchanged starts what the run stopped, and ends it. It has set nothing aside.
func (d *coordinator) endUnchanged(ctx context.Context) error {
	ran := slices.DeleteFunc(d.present(), func(h *participant) bool { return !slices.Contains(d.decision.Ran, h.Member) })
	ended := d.ended(ctx)
	err := d.each(ctx, PhaseUndoStart, ran, func(ctx context.Context, h *participant) (string, error) { return d.startAgain(ctx, h, ended) })
	if err != nil {
		return err
	}
	if err := d.each(ctx, PhaseUndoResume, d.present(), d.resumeHost(false)); err != nil {
		return err
	}
	d.decision.Closed = givenUp
	return d.store(ctx)
}

func (d *coordinator) startAgain(ctx context.Context, h *participant, ended []host.Ended) (string, error) {
	_, err := act(ctx, d, PhaseUndoStart, h, func(ctx context.Context) (*host.Done, error) { return h.client.Start(ctx, ended) })
	return "started", err
}

// ended are the clusters that have ended by the marks in the repositories: hosts start no member of them.
func (d *coordinator) ended(ctx context.Context) []host.Ended {
	ended, warnings := host.ReadEnded(ctx, d.cfg.Repositories, d.cfg.Keys())
	for _, w := range warnings {
		d.reporter.warn(w)
	}
	return ended
}

// resumeHost starts a host's clients: all, or those that ran before the run.
func (d *coordinator) resumeHost(all bool) func(context.Context, *participant) (string, error) {
	return func(ctx context.Context, h *participant) (string, error) {
		done, err := act(ctx, d, PhaseResume, h, func(ctx context.Context) (*host.Done, error) { return h.client.Resume(ctx, all) })
		if err != nil {
			return "", err
		}
		d.warnAll(h, done.Warnings)
		left := slices.DeleteFunc(done.Clients, func(c host.ClientState) bool { return c.Phase == host.ClientLeft })
		return clientWords(left), nil
	}
}

// asideHosts are those that get a member, and all others that can be reached and
// have data, or had an old member: what is startable there would come back with a
// reboot, and a majority of that would serve beside the new cluster. From an empty
// directory a member begins a cluster anew.
func (d *coordinator) asideHosts() []*participant {
	all := d.getting()
	for _, h := range d.present() {
		old := slices.ContainsFunc(d.decision.Plan.Members, func(m snapshot.Member) bool { return m.Name == h.Member })
		if (!h.empty || old) && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all
}

// spare reports whether the recovery can do without a host: it is declared dead, gets
// no member, and nothing is read there.
func (d *coordinator) spare(h *participant) bool {
	return h.state.Dead && !slices.Contains(d.getting(), h) && !slices.Contains(d.decision.candidate().Source.Owners(), h.Member)
}

func (d *coordinator) setAside(ctx context.Context, hosts []*participant) error {
	hosts = slices.DeleteFunc(hosts, func(h *participant) bool { a := h.aside(d.run); return a != nil && a.Done })
	return d.each(ctx, PhaseSetAside, hosts, func(ctx context.Context, h *participant) (string, error) {
		done, err := act(ctx, d, PhaseSetAside, h, h.client.SetAside)
		if err != nil && d.spare(h) && ctx.Err() == nil {
			d.reporter.warn(fmt.Sprintf("%s is declared dead, and its old data is not set aside: keep it from starting: %v", h.Member, err))
			return "declared dead, and left as it is", nil
		}
		if err != nil {
			return "", err
		}
		h.asides = append(slices.DeleteFunc(h.asides, func(a host.SetAside) bool { return a.Run == d.run }), host.SetAside{Aside: *done.Aside, Done: true})
		return cmp.Or(done.Aside.Folder, "there was nothing"), nil
	})
}
