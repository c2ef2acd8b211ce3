package rescue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/schedule/rescue/journal"
	"github.com/requorum/requorum/schedule/rescue/lineage"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay/archive"
)

// complete lets clients on the proved cluster, and tells repositories of it. What
// fails here leaves the cluster as it is: serving.
func (d *driver) complete(ctx context.Context) (*Report, error) {
	var incomplete []string
	failed := func(what string, err error) {
		if err != nil {
			d.told.warn(what + ": " + err.Error())
			incomplete = append(incomplete, what+": "+err.Error())
		}
	}
	// Clients first: a repository that is away must not keep them waiting.
	if slices.ContainsFunc(d.present(), func(h *host) bool { return !d.known.done(PhaseResume, h.Member) }) {
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
	if err := d.write(journal.Entry{Event: journal.Finished}, r); err != nil {
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
func (d *driver) supersede(ctx context.Context) error {
	if len(d.cfg.Repositories) == 0 || d.known.done(PhaseSupersede, "") {
		return nil
	}
	return d.whole(ctx, PhaseSupersede, func(ctx context.Context) (outcome, error) {
		done, err := d.lineage(ctx, lineage.Supersede)
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
func (d *driver) snapshot(ctx context.Context) error {
	if len(d.cfg.Repositories) == 0 || d.known.done(PhaseSnapshot, "") {
		return nil
	}
	var stored []Stored
	if s := d.known.steps[PhaseSnapshot]; s != nil && s.hosts[snapshotsKept] != nil {
		if _, err := d.known.result(PhaseSnapshot, snapshotsKept, &stored); err != nil {
			return err
		}
	}
	return d.whole(ctx, PhaseSnapshot, func(ctx context.Context) (outcome, error) {
		got, err := d.take(ctx, stored)
		if err != nil && len(got) > 0 { // what is stored is not stored again
			err = errors.Join(err, d.write(journal.Entry{Event: journal.Done, Phase: string(PhaseSnapshot), Host: snapshotsKept}, got))
		}
		return outcome{result: got, detail: fmt.Sprintf("in %d of %d", len(got), len(d.cfg.Repositories))}, err
	})
}

// snapshotsKept is what the journal calls the snapshots of an attempt that not all
// repositories took. No member is called so.
const snapshotsKept = "(stored)"

func (d *driver) take(ctx context.Context, stored []Stored) (_ []Stored, err error) {
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
		s, err := place.Open(ctx, u, repositoryPatience)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all, names = append(all, sinks.Retry(s, sinks.RetryPolicy{For: repositoryPatience, Logger: d.logger})), append(names, name)
	}
	if len(all) == 0 {
		return stored, errors.Join(errs...)
	}
	cfg, err := d.clientConfig(d.known.decision.clientURLs())
	if err != nil {
		return stored, err
	}
	c, err := store.Dial(ctx, cfg)
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
		Progress: func(p snapshot.Progress) { d.told.progress(PhaseSnapshot, "", p.Phase, p.Done, p.Total) },
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
