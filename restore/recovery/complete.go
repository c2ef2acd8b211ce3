package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay/archive"
)

// complete lets clients on the proved cluster, and tells repositories of it. What
// fails here leaves the cluster as it is: serving.
func (d *coordinator) complete(ctx context.Context) (*Report, error) {
	var incomplete []string
	failed := func(what string, err error) {
		if err != nil {
			d.reporter.warn(what + ": " + err.Error())
			incomplete = append(incomplete, what+": "+err.Error())
		}
	}
	// Clients first: a repository that is away must not keep them waiting.
	if slices.ContainsFunc(d.present(), func(h *participant) bool { return !d.state.done(PhaseResume, h.Member) }) {
		failed("clients were not started", d.each(ctx, PhaseResume, d.present(), false, d.resumeHost))
	}
	for _, h := range d.hosts {
		if h.lost() {
			failed("clients of "+h.Member+" were not started", errors.New(h.state.Unreachable))
		}
	}
	failed("the old timeline is not ended", d.supersede(ctx))
	failed("no full snapshot was taken", d.snapshot(ctx))
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	r, err := d.report(incomplete)
	if err != nil {
		return nil, err
	}
	if err := d.write(host.Entry{Event: host.EventFinished}, r); err != nil {
		return r, err
	}
	if len(incomplete) > 0 {
		return r, fmt.Errorf("the cluster serves, and %w: %s. The same command completes it", notAll{}, strings.Join(incomplete, "; "))
	}
	return r, nil
}

// notAll is snapshot.ErrIncomplete in the words of a recovery.
type notAll struct{}

func (notAll) Error() string { return "not all is done" }

// Is makes it that error.
func (notAll) Is(target error) bool { return target == snapshot.ErrIncomplete }

// supersede ends the old cluster's timelines.
func (d *coordinator) supersede(ctx context.Context) error {
	if len(d.cfg.Repositories) == 0 || d.state.done(PhaseSupersede, "") {
		return nil
	}
	return d.whole(ctx, PhaseSupersede, func(ctx context.Context) (outcome, error) {
		done, err := d.lineage(ctx, SupersedeTimelines)
		if err != nil {
			return outcome{}, err
		}
		if all := failures(done); len(all) > 0 {
			return outcome{}, errors.New(strings.Join(all, "; "))
		}
		return outcome{result: done, detail: timelineWords(done)}, nil
	})
}

// snapshot takes a full snapshot into each repository that has none of this run.
func (d *coordinator) snapshot(ctx context.Context) error {
	if len(d.cfg.Repositories) == 0 || d.state.done(PhaseSnapshot, "") {
		return nil
	}
	var stored []Stored
	if s := d.state.steps[PhaseSnapshot]; s != nil && s.hosts[snapshotsKept] != nil {
		if _, err := d.state.result(PhaseSnapshot, snapshotsKept, &stored); err != nil {
			return err
		}
	}
	return d.whole(ctx, PhaseSnapshot, func(ctx context.Context) (outcome, error) {
		got, err := d.take(ctx, stored)
		if err != nil && len(got) > 0 { // what is stored is not stored again
			err = errors.Join(err, d.write(host.Entry{Event: host.EventDone, Phase: string(PhaseSnapshot), Host: snapshotsKept}, got))
		}
		return outcome{result: got, detail: fmt.Sprintf("in %d of %d", len(got), len(d.cfg.Repositories))}, err
	})
}

// snapshotsKept is what the journal calls the snapshots of an attempt that not all
// repositories took. No member is called so.
const snapshotsKept = "(stored)"

func (d *coordinator) take(ctx context.Context, stored []Stored) (_ []Stored, err error) {
	var all []sinks.Sink
	var names []string
	var errs []error
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, u := range d.cfg.Repositories {
		name := place.Name(u)
		if slices.ContainsFunc(stored, func(s Stored) bool { return place.Name(s.Repository) == name && s.Error == "" }) {
			continue
		}
		s, err := place.Open(ctx, u, sinks.Options{Retry: sinks.Retry{For: repositoryPatience, Logger: d.logger}})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all, names = append(all, repository.WithKeys(s, d.cfg.Keys())), append(names, name)
	}
	if len(all) == 0 {
		return stored, errors.Join(errs...)
	}
	cfg, err := d.clientConfig(d.state.decision.clientURLs())
	if err != nil {
		return stored, err
	}
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return stored, err
	}
	defer c.Close() //nolint:errcheck // nothing is under way any more
	o, err := codecOf(d.cfg)
	if err != nil {
		return stored, err
	}
	result, err := snapshot.Take(ctx, snapshot.Request{
		Client: c, Sinks: all, Codec: o, Tool: d.req.Tool, Labels: map[string]string{"recovery": d.run}, Reached: archive.Reached, Logger: d.logger,
		Progress: func(p snapshot.Progress) { d.reporter.progress(PhaseSnapshot, "", p.Phase, p.Done, p.Total) },
	})
	if result != nil {
		for i, o := range result.Outcomes {
			if o.Err == nil {
				stored = append(stored, Stored{Repository: names[i], Backup: o.Manifest.ID})
			}
		}
	}
	return stored, errors.Join(append(errs, err)...)
}

// asideOf is what a run has set aside on a host, as that remembers it; nil where it has
// set aside nothing.
func (h *participant) asideOf(run string) *restore.Aside {
	i := slices.IndexFunc(h.asides, func(a restore.Aside) bool { return a.Run == run })
	if i < 0 {
		return nil
	}
	return &h.asides[i]
}

// inheritAsides writes down what the other coordinator's run has set aside, as its hosts
// remember it.
func (d *coordinator) inheritAsides(run string) error {
	for _, h := range d.present() {
		if aside := h.asideOf(run); aside != nil {
			if err := d.write(host.Entry{Event: host.EventDone, Phase: string(PhaseSetAside), Host: h.Member}, aside); err != nil {
				return err
			}
		}
	}
	return nil
}

// leftBy are the hosts on which a run has set data aside, and which get no new member.
func (d *coordinator) leftBy(run string, names []string) (all []string) {
	for _, h := range d.present() {
		if h.asideOf(run) != nil && !slices.Contains(names, h.Member) {
			all = append(all, h.Member)
		}
	}
	return all
}

// oldData says what to do in the end with what was set aside on a host; empty where
// nothing was.
func (d *coordinator) oldData(h *participant) string {
	var aside restore.Aside
	if done, err := d.state.result(PhaseSetAside, h.Member, &aside); err != nil || !done || len(aside.Paths()) == 0 {
		return ""
	}
	text := fmt.Sprintf("%s: the old data is in %s; remove it when you are sure that you don't need it", h.Member, strings.Join(aside.Paths(), " and "))
	if d.state.decision.Inherited == "" {
		text += " (--undo puts it back until then)"
	}
	return text
}

// branch is the timeline that the new cluster's history leaves.
type branch struct {
	Timeline repository.TimelineID `json:"timeline,omitzero"`
	Backup   string                `json:"backup,omitempty"`
}

// branchOf finds it: the archive's that is replayed, or the newest one of the old
// cluster that the chosen history is archived in. A zero one is none that is known.
func branchOf(p *Preview) *branch {
	c := p.Plan.Candidate(p.Plan.Chosen)
	b := &branch{Timeline: c.Source.Base.Timeline, Backup: c.Source.Base.Backup}
	if b.Timeline != (repository.TimelineID{}) || c.History == 0 {
		return b
	}
	for _, h := range p.Plan.Histories {
		if h.Number != c.History {
			continue
		}
		for _, t := range h.Timelines {
			if t.ClusterID == uint64(p.Plan.ClusterID) && (b.Timeline.ClusterID == 0 || t.N > b.Timeline.N) && lives(p.Findings, t) {
				b.Timeline = t
			}
		}
	}
	return b
}

func lives(f *sources.Findings, t repository.TimelineID) bool {
	for _, a := range f.Archives {
		if a.Timeline == t {
			return a.Superseded == nil
		}
	}
	return false
}

// lineage opens the repositories, and says what goes on in whose place.
func (d *coordinator) lineage(ctx context.Context, do func(context.Context, TimelinesRequest) []TimelinesDone) (done []TimelinesDone, err error) {
	if len(d.cfg.Repositories) == 0 {
		return nil, nil
	}
	repos, err := d.repositories(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, repos.close()) }()
	for _, u := range repos.unread() {
		done = append(done, TimelinesDone{Repository: u.Repository, Failed: u.Reason})
	}
	if len(repos.opened()) == 0 {
		return done, nil
	}
	req, err := d.lineageRequest()
	if err != nil {
		return nil, err
	}
	req.Repositories = repos.opened()
	return append(do(ctx, req), done...), nil
}

func (d *coordinator) lineageRequest() (TimelinesRequest, error) {
	dec := d.state.decision
	req := TimelinesRequest{
		NewCluster: uint64(dec.NewClusterID), Members: dec.names(), OldCluster: uint64(dec.Plan.ClusterID),
		Reason: "recovered after the loss of its quorum, run " + d.run, Now: d.now,
	}
	if dec.Branch != nil {
		req.Branch = repository.Branch{Timeline: dec.Branch.Timeline, Backup: dec.Branch.Backup}
	}
	all, err := d.rebuilt()
	if err != nil {
		return req, err
	}
	first := all[sortedKeys(all)[0]]
	req.Branch.RaftIndex, req.Branch.Revision = first.Index, first.Revision
	for _, b := range all {
		if b.Recipe != nil && b.Recipe.Chain != nil {
			req.Branch.Chain = b.Recipe.Chain.String()
		}
	}
	return req, nil
}

// openTimeline opens the new cluster's timeline before its members start: an agent
// that finds none opens one itself, without a parent. A repository that is away
// must not keep the cluster down.
func (d *coordinator) openTimeline(ctx context.Context) error {
	if len(d.cfg.Repositories) == 0 || d.state.done(PhaseLineage, "") {
		return nil
	}
	return d.whole(ctx, PhaseLineage, func(ctx context.Context) (outcome, error) {
		done, err := d.lineage(ctx, OpenTimelines)
		if err != nil {
			return outcome{}, err
		}
		for _, f := range failures(done) {
			d.reporter.warn("the new timeline is not opened yet in " + f)
		}
		return outcome{result: done, detail: timelineWords(done)}, nil
	})
}

func timelineWords(done []TimelinesDone) string {
	for _, l := range done {
		if l.Failed == "" {
			return "timeline " + l.Timeline.String()
		}
	}
	return "in no repository"
}

func failures(done []TimelinesDone) (all []string) {
	for _, l := range done {
		if l.Failed != "" {
			all = append(all, fmt.Sprintf("%s: %s", l.Repository, l.Failed))
		}
	}
	return all
}
