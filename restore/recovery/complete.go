package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay/archive"
)

// complete lets clients on the proved cluster, and records it in repositories. What
// fails here leaves the cluster as it is: serving.
func (d *coordinator) complete(ctx context.Context) (*Report, error) {
	var incomplete []string
	failed := func(what string, err error) {
		if err != nil {
			d.reporter.warn(what + ": " + err.Error())
			incomplete = append(incomplete, what+": "+err.Error())
		}
	}
	var started error
	// Clients first: a repository that is away must not keep them waiting.
	if d.decision.Resumed.IsZero() {
		failed("clients do not run", d.each(ctx, PhaseResume, d.present(), d.resumeHost(true)))
		for _, h := range d.hosts {
			if h.lost() {
				failed("clients of "+h.Member+" were not started", errors.New(h.state.Unreachable))
			}
		}
		if len(incomplete) == 0 {
			d.decision.Resumed = time.Now()
		}
		started = d.starting.wait() // of each host that has started its clients it has ended
		// Repositories cannot refuse one whose run was taken up, or back, by another.
		if err := d.store(ctx); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		} else if err != nil {
			return d.report(), err
		}
	}
	failed("the old timeline is not ended", d.supersede(ctx))
	failed("no full snapshot was taken", d.snapshot(ctx))
	failed("not all members are up and proved", d.proveLate(ctx, started))
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	d.decision.Finished, d.decision.Incomplete = true, incomplete
	r := d.report()
	if err := d.store(ctx); err != nil {
		return r, err
	}
	if len(incomplete) > 0 {
		return r, fmt.Errorf("the cluster serves, and %w: %s. The same command completes it", snapshot.IncompleteError("not all is done"), strings.Join(incomplete, "; "))
	}
	return r, nil
}

// supersede ends the old cluster's timelines.
func (d *coordinator) supersede(ctx context.Context) error {
	if len(d.cfg.Repositories) == 0 || d.decision.Timelines != nil {
		return nil
	}
	return d.timed(ctx, PhaseSupersede, "", func(ctx context.Context) (string, error) {
		done, err := d.lineage(ctx, SupersedeTimelines)
		if err != nil {
			return "", err
		}
		if all := failures(done); len(all) > 0 {
			return "", errors.New(strings.Join(all, "; "))
		}
		d.decision.Timelines = done
		return timelineWords(done), nil
	})
}

// snapshot takes a full snapshot into each repository that has none of this run.
func (d *coordinator) snapshot(ctx context.Context) error {
	if len(d.decision.Snapshots) >= len(d.cfg.Repositories) {
		return nil
	}
	return d.timed(ctx, PhaseSnapshot, "", func(ctx context.Context) (_ string, err error) {
		err = d.take(ctx)
		return fmt.Sprintf("in %d of %d", len(d.decision.Snapshots), len(d.cfg.Repositories)), err
	})
}

func (d *coordinator) take(ctx context.Context) error {
	cfg, err := d.clientConfig(d.decision.clientURLs())
	if err != nil {
		return err
	}
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing is under way any more
	var errs []error
	for _, u := range d.cfg.Repositories {
		name := place.Name(u)
		if slices.ContainsFunc(d.decision.Snapshots, func(s Stored) bool { return place.Name(s.Repository) == name }) {
			continue
		}
		backup, err := d.takeInto(ctx, c, u)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		d.decision.Snapshots = append(d.decision.Snapshots, Stored{Repository: name, Backup: backup})
	}
	return errors.Join(errs...)
}

// takeInto takes a full snapshot into one repository, and returns its ID.
func (d *coordinator) takeInto(ctx context.Context, c *client.Client, url string) (backup string, err error) {
	s, err := place.Open(ctx, url, sinks.Options{Retry: sinks.Retry{For: repositoryPatience, Logger: d.logger}})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	result, err := snapshot.Take(ctx, snapshot.Request{
		Client: c, Sink: repository.WithKeys(s, d.cfg.Keys()), Codec: d.codec, Tool: "requorum " + d.req.Version, Labels: map[string]string{"recovery": d.run}, Reached: archive.Reached, Logger: d.logger,
		Progress: func(p snapshot.Progress) { d.reporter.progress(PhaseSnapshot, "", p.Phase, p.Done, p.Total) },
	})
	if err != nil {
		return "", err
	}
	return result.Manifest.ID, nil
}

// oldData says what to do in the end with what was set aside on a host; empty where
// nothing was.
func (d *coordinator) oldData(h *participant) string {
	aside := h.aside(d.run)
	if aside == nil || len(aside.Paths()) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: the old data is in %s; remove it when you are sure that you don't need it (--undo puts it back until then)", h.Member, strings.Join(aside.Paths(), " and "))
}

// branchOf is the timeline that the new cluster's history leaves, without the entry where
// it does: the archive's that is replayed, or the newest one of the old cluster that the
// chosen history is archived in, of those that have not ended if there are any. A zero one
// is none that is known.
func branchOf(p *sources.Plan, f *sources.Findings) repository.Branch {
	c := p.Candidate(p.Chosen)
	b := repository.Branch{Timeline: c.Source.Base.Timeline, Backup: c.Source.Base.Backup}
	if b.Timeline != (repository.TimelineID{}) {
		return b
	}
	lives := func(t repository.TimelineID) bool {
		return slices.ContainsFunc(f.Archives, func(a sources.Archive) bool { return a.Timeline == t && a.Superseded == nil })
	}
	for _, h := range p.Histories {
		for _, t := range h.Timelines {
			known := b.Timeline
			if h.Number == c.History && t.ClusterID == uint64(p.ClusterID) && (known.N == 0 || lives(t) && !lives(known) || lives(t) == lives(known) && t.N > known.N) {
				b.Timeline = t
			}
		}
	}
	return b
}

// branch says where: after what was rebuilt.
func (d *decision) branch(s *host.State) {
	d.Branch.RaftIndex, d.Branch.Revision = s.Index, s.Revision
	if s.Recipe != nil && s.Recipe.Chain != nil {
		d.Branch.Chain = s.Recipe.Chain.String()
	}
}

// lineage opens the repositories, and says what goes on in whose place.
func (d *coordinator) lineage(ctx context.Context, do func(context.Context, TimelinesRequest) []TimelinesDone) (done []TimelinesDone, err error) {
	repos := d.repositories(ctx)
	defer func() { err = errors.Join(err, repos.Close()) }()
	for _, u := range repos.Unread {
		done = append(done, TimelinesDone{Repository: u.Repository, Failed: u.Reason})
	}
	req := d.lineageRequest()
	req.Repositories = repos.Opened
	return append(do(ctx, req), done...), nil
}

// lineageRequest is about a run whose hosts came to the same.
func (d *coordinator) lineageRequest() TimelinesRequest {
	dec := d.decision
	return TimelinesRequest{
		NewCluster: uint64(dec.NewClusterID), Members: dec.names(), OldCluster: uint64(dec.Plan.ClusterID),
		Branch: dec.Branch, Reason: "recovered after the loss of its quorum, run " + d.run,
	}
}

// openTimeline opens the new cluster's timeline before its members start: an agent
// that finds none opens one itself, without a parent. A repository that is away
// must not keep the cluster down.
func (d *coordinator) openTimeline(ctx context.Context) error {
	if len(d.cfg.Repositories) == 0 {
		return nil
	}
	return d.timed(ctx, PhaseLineage, "", func(ctx context.Context) (string, error) {
		done, err := d.lineage(ctx, OpenTimelines)
		if err != nil {
			return "", err
		}
		d.timelines = done
		for _, f := range failures(done) {
			d.reporter.warn("the new timeline is not opened yet in " + f)
		}
		return timelineWords(done), nil
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
