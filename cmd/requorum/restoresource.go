package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
)

// restoreSource is what a restore reads: a backup in a repository, with or
// without the log after it, a file, or a stopped member's data directory.
type restoreSource struct {
	image   snapshot.Image
	highest int64 // revision that is known anywhere in the lineage

	// Where a log is replayed.
	history *walreplay.History
	point   *walreplay.Point  // what was asked for; nil with a plan's recipe
	recipe  *walreplay.Recipe // of the plan that was read
	rebuilt *walreplay.Rebuilt
	target  string   // as asked for
	notes   []string // about the point

	file *snapshot.File // that was named; nil otherwise

	// For a backup in a repository.
	repo       *repository.Repository
	manifest   *snapshot.Manifest
	all        *walreplay.Inventory // nil without a repository
	identities []age.Identity
}

func (s *restoreSource) close() error {
	err := s.closeRebuilt()
	if s.history != nil {
		err = errors.Join(err, s.history.Close())
	}
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	if s.repo != nil {
		err = errors.Join(err, s.repo.Sink().Close())
	}
	return err
}

// closeRebuilt removes the scratch folder, once nothing is read from it any more: not
// only at the end, which a process that serves, or prints to a pipe that is closed, may
// not live to see.
func (s *restoreSource) closeRebuilt() error {
	if s.rebuilt == nil {
		return nil
	}
	err := s.rebuilt.Close()
	s.rebuilt = nil
	return err
}

// openSource finds what to restore from, and the point to restore. A plan that
// was read names both itself; its repository or directory may be reached by
// another name from here.
func (g *globals) openSource(ctx context.Context, o *restoreOptions, args []string, plan *restore.Plan) (*restoreSource, error) {
	repo := o.repo
	if plan != nil {
		if len(args) > 0 {
			return nil, usageError{errors.New("the plan names the backup: leave the ID out")}
		}
		switch recipe := plan.Source.Recipe; {
		case plan.Source.BackupID != "":
			args = []string{plan.Source.BackupID}
			if len(repo.urls) == 0 {
				repo.urls = []string{plan.Source.Repository}
			}
		case recipe != nil && o.fromDir == "":
			o.fromDir, o.fromWAL = recipe.DataDir, recipe.WALDir
		case recipe == nil && o.file == "":
			o.file = plan.Source.Name
		}
	}
	switch {
	case o.fromDir != "":
		return g.openDataDir(ctx, o, plan)
	case o.file != "":
		if err := restore.CheckFileIdle(o.file); err != nil {
			return nil, err
		}
		return g.openFile(ctx, o, plan)
	}
	identities, err := o.identities.parse()
	if err != nil {
		return nil, err
	}
	s := &restoreSource{identities: identities}
	if s.repo, err = repo.openRepository(ctx, g); err != nil {
		return nil, err
	}
	g.noteUnchecked(s.repo.Checks())
	err = s.find(ctx, g, o, args, plan)
	g.noteUnusable(s.repo)
	if err != nil {
		return nil, errors.Join(s.nameOlder(ctx, g, err), s.close())
	}
	return s, nil
}

// openFile opens a file, and unpacks it if it is compressed.
func (g *globals) openFile(ctx context.Context, o *restoreOptions, plan *restore.Plan) (*restoreSource, error) {
	dir, err := o.scratchDir(plan)
	if err == nil {
		dir, _, err = safedir.Nearest(dir)
	}
	if err != nil {
		return nil, err
	}
	meter := g.newMeter()
	defer meter.finish()
	file, err := snapshot.OpenAny(ctx, o.file, dir, func(done, total int64) { meter.show("unpack "+o.file, done, total) })
	if err != nil {
		return nil, err
	}
	return &restoreSource{image: file, file: file}, nil
}

// openDataDir opens a stopped member's directories.
func (g *globals) openDataDir(ctx context.Context, o *restoreOptions, plan *restore.Plan) (*restoreSource, error) {
	if err := restore.CheckMemberIdle(o.fromDir, o.fromWAL); err != nil {
		return nil, fmt.Errorf("--from-data-dir: %w", err)
	}
	s := &restoreSource{}
	var err error
	if s.history, err = walreplay.OpenDataDir(ctx, o.fromDir, o.fromWAL); err != nil {
		return nil, fmt.Errorf("--from-data-dir: %w", err)
	}
	if plan != nil {
		s.recipe = plan.Source.Recipe
		if s.recipe == nil {
			err = usageError{fmt.Errorf("plan %s was made from %s, not from a data directory with its log: leave --from-data-dir out", plan.ID, plan.Source.Name)}
		}
	} else {
		err = s.resolve(ctx, g, o, o.point.target, "")
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// find finds the backup and the point in a repository.
func (s *restoreSource) find(ctx context.Context, g *globals, o *restoreOptions, args []string, plan *restore.Plan) (err error) {
	target := o.point.target
	named := len(args) > 0 && args[0] != snapshot.Latest
	if s.all, err = walreplay.ReadInventory(ctx, s.repo, s.identities...); err != nil {
		return err
	}
	var timeline repository.TimelineID
	s.manifest, err = findBackup(ctx, s.all, args, o.timeline)
	var damaged *snapshot.Unusable
	switch {
	case err == nil:
		timeline = s.manifest.Timeline
	case errors.As(err, &damaged) && !named && target.Kind != walreplay.Latest:
		// An older backup may do for a point that is named.
		timeline = damaged.Timeline
	default:
		return err
	}
	compared := []repository.TimelineID{timeline}
	if !named && o.timeline == "" {
		compared = nil // all: one that was emptied is not the latest any more
	}
	if err := s.all.CheckReached(ctx, compared...); err != nil {
		return orRollback(err)
	}
	if s.highest, err = s.all.HighestRevision(ctx); err != nil {
		return err
	}
	asked := len(o.point.given()) > 0
	if plan != nil {
		s.recipe, asked = plan.Source.Recipe, false
	}
	if named && s.recipe == nil && !asked {
		s.image = snapshot.OpenStored(s.repo, s.manifest, s.identities...)
		return nil
	}
	if s.history, err = s.all.History(ctx, timeline); err != nil {
		return err
	}
	if named || s.recipe != nil { // a plan says what comes out
		if err := s.history.TakePlain(ctx); err != nil {
			return err
		}
	}
	if s.recipe != nil {
		return nil
	}
	if named {
		return s.resolve(ctx, g, o, target, s.manifest.ID)
	}
	here, of := target, s.timeline(timeline)
	if o.timeline == "" && target.Kind == walreplay.AtTime && of.Parent != nil && target.Time.Before(of.Created) {
		here.Nearest = false // what is nearest lies in another timeline: this one goes on from it
	}
	return s.nameParent(ctx, s.resolve(ctx, g, o, here, ""), target, timeline)
}

// needsRebuild reports whether the log has to be replayed now. A plan that is only
// shown does without where the point is known without; one that is written holds
// what came out.
func (s *restoreSource) needsRebuild(o *restoreOptions, planned *restore.Plan) bool {
	if planned != nil {
		return s.recipe != nil && !o.dryRun
	}
	if s.point == nil {
		return false
	}
	return !o.dryRun || o.plan != "" || s.point.MaxRevision > 0
}

// probe reads the beginnings of what the real run would read in the repository, for
// a run that only shows its plan.
func (s *restoreSource) probe(ctx context.Context) error {
	point := s.point
	switch {
	case s.repo == nil:
		return nil
	case s.recipe != nil:
		var err error
		at := walreplay.Target{Kind: walreplay.AtIndex, Index: s.recipe.Index}
		if point, err = s.history.Resolve(ctx, at, s.recipe.Base, walreplay.Options{}); err != nil {
			return err
		}
	case point == nil:
		return snapshot.Probe(ctx, s.image)
	}
	return s.history.Probe(ctx, point)
}

// nameOlder adds to an error about a damaged backup which older one is good, and to
// one about an identity whose it is.
func (s *restoreSource) nameOlder(ctx context.Context, g *globals, err error) error {
	var (
		damaged  *snapshot.DamagedError
		manifest *snapshot.Unusable
		older    *snapshot.Manifest
	)
	var log *walreplay.LogError
	var identity *codec.IdentityError
	switch {
	case errors.As(err, &identity) && len(identity.Recipients) == 0:
		return s.nameRecipients(err)
	case s.all == nil || !errors.As(err, &damaged):
		return err
	case errors.As(err, &log):
		return fmt.Errorf("%w\nNothing was restored", err)
	case errors.As(err, &manifest):
		older = s.all.OlderThanDamaged(manifest)
	case s.manifest != nil:
		older = s.all.Older(s.manifest)
	}
	meter := g.newMeter()
	defer meter.finish()
	for m := older; m != nil; m = s.all.Older(m) {
		if readWhole(ctx, snapshot.OpenStored(s.repo, m, s.identities...), meter) == nil {
			return fmt.Errorf("%w\nNothing was restored. The next older backup is whole: %s, revision %d, taken %s%s", err, m.ID, m.Facts.Revision, when(m.Started), s.reaches(m))
		}
	}
	return fmt.Errorf("%w\nNothing was restored. No older backup of this timeline is whole", err)
}

// nameRecipients adds to an error about an encrypted segment of the log, which does
// not say for whom, for whom the newest encrypted full snapshot is.
func (s *restoreSource) nameRecipients(err error) error {
	if s.all == nil {
		return err
	}
	for _, m := range slices.Backward(s.all.Manifests) {
		if len(m.Object.Recipients) > 0 {
			return fmt.Errorf("%w; full snapshot %s is encrypted to %s", err, m.ID, strings.Join(m.Object.Recipients, ", "))
		}
	}
	return err
}

// reaches says that the log after an older backup leads to the same point.
func (s *restoreSource) reaches(older *snapshot.Manifest) string {
	if s.history == nil || s.point == nil || s.point.Target.Searches() {
		return ""
	}
	for _, b := range s.history.Bases() {
		if b.ID == older.ID && s.history.Reach(b) >= s.point.Last {
			return "; the log leads from it to the same point: give its ID with --index " + fmt.Sprint(s.point.Last)
		}
	}
	return ""
}

func readWhole(ctx context.Context, image snapshot.Image, meter *meter) error {
	r, err := image.Open(ctx)
	if err != nil {
		return err
	}
	_, err = io.Copy(snapshot.CountBytes(func(n int64) { meter.update("look for an older backup", n, image.Size()) }), r)
	return errors.Join(err, r.Close())
}

// checkTimeline refuses to give a second history the cluster ID of one that
// the repository knows: their backups could not be distinguished.
func (s *restoreSource) checkTimeline(p *restore.Plan) error {
	if s.repo == nil || p.Path != "" {
		return nil
	}
	mine, _ := p.Timeline()
	for _, t := range s.all.Timelines {
		if t.ID.ClusterID == uint64(p.ClusterID) && t.Reason != mine.Reason {
			return usageError{fmt.Errorf("the repository knows cluster %s already (timeline %s: %s): with the same token and peer URLs the new cluster would get its ID, and their histories would mix; leave --initial-cluster-token out, or give another one",
				p.ClusterID, t.ID, t.Reason)}
		}
	}
	return nil
}

// recordTimeline notes in the repository where the new cluster's history comes from.
func (s *restoreSource) recordTimeline(ctx context.Context, p *restore.Plan, report *restoreReport) error {
	t, _ := p.Timeline()
	t.Created = time.Now().UTC().Truncate(time.Second)
	found, err := s.repo.EnsureTimeline(ctx, t)
	if err == nil && found.Reason != t.Reason {
		err = fmt.Errorf("another history has that name there: %s", found.Reason)
	}
	if err != nil {
		return fmt.Errorf("the restore is done, but --record could not write the new timeline %s into %s: %w", t.ID, s.repo, err)
	}
	report.Timeline = t.ID.String()
	return nil
}

// nameParent adds to an error about a point that a timeline does not cover whether
// one that it goes on from does: after a recovery all that was before it lies there.
// The point itself is not taken from there unasked: histories are not mixed.
func (s *restoreSource) nameParent(ctx context.Context, err error, t walreplay.Target, timeline repository.TimelineID) error {
	var not *walreplay.NotCoveredError
	if !errors.As(err, &not) {
		return err
	}
	seen := []repository.TimelineID{timeline}
	for {
		branch := s.timeline(timeline).Parent
		if branch == nil || slices.Contains(seen, branch.Timeline) {
			return err
		}
		hint, has := s.inParent(ctx, t, timeline, branch, not.Before == nil)
		if hint != "" {
			err = fmt.Errorf("%w\n%s", err, hint)
		}
		if has {
			return err
		}
		timeline = branch.Timeline
		seen = append(seen, timeline)
	}
}

// timeline is the one of that ID; a zero one where there is none.
func (s *restoreSource) timeline(id repository.TimelineID) (none repository.Timeline) {
	for _, t := range s.all.Timelines {
		if t.ID == id {
			return t
		}
	}
	return none
}

// inParent says what the parent has of a point, and whether it has it; nothing where
// it cannot be read: then it is no help. What is nearest is named on request: where the
// child has a point before it, that one is nearer.
func (s *restoreSource) inParent(ctx context.Context, t walreplay.Target, child repository.TimelineID, branch *repository.Branch, nearest bool) (hint string, has bool) {
	parent := branch.Timeline
	if t.Searches() {
		return fmt.Sprintf("%s branches off timeline %s, and an earlier change may be there: --timeline %s looks for it", child, parent, parent), true
	}
	h, err := s.all.History(ctx, parent)
	if err != nil {
		return "", false
	}
	defer h.Close() //nolint:errcheck // only read
	point, err := h.Resolve(ctx, t, "", walreplay.Options{})
	var not *walreplay.NotCoveredError
	switch {
	case err == nil && pastBranch(point, branch):
		return fmt.Sprintf("Timeline %s has that point, but after raft index %d, which is where %s left it: that is another history (--timeline %s restores it)", parent, branch.RaftIndex, child, parent), true
	case err == nil:
		return fmt.Sprintf("Timeline %s, which %s branches off, has that point: --timeline %s restores it", parent, child, parent), true
	case nearest && errors.As(err, &not) && not.Before != nil:
		return fmt.Sprintf("Timeline %s, which %s branches off, has the nearest point before it: %s (--timeline %s --index %d)", parent, child, not.Before, parent, not.Before.Index), true
	}
	return "", false
}

// pastBranch reports whether a point comes after the one at which a timeline was left.
func pastBranch(p *walreplay.Point, left *repository.Branch) bool {
	if p.Target.Kind == walreplay.AtRevision { // the index is known only once it is replayed
		return left.Revision > 0 && p.Target.Revision > left.Revision
	}
	return left.RaftIndex > 0 && p.Last > left.RaftIndex
}

func addTimelineFlag(f *pflag.FlagSet, timeline *string) {
	f.StringVar(timeline, "timeline", "", "look in this timeline only; needed for 'latest' where a cluster has separate histories")
}

// findBackup finds the backup that the arguments name, the newest without any.
func findBackup(ctx context.Context, r *walreplay.Inventory, args []string, timeline string) (*snapshot.Manifest, error) {
	ref := snapshot.Latest
	if len(args) > 0 {
		ref = args[0]
	}
	return r.Find(ctx, ref, timeline)
}
