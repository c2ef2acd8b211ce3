package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
)

// buildOptions are what a restore and a recovery build, where, and as it was at
// which point.
type buildOptions struct {
	set        *pflag.FlagSet
	point      pointOptions
	req        restore.Request
	learners   []string
	name       string
	plan       string
	toSnapshot string
	dryRun     bool
	start      startOptions
}

func (o *buildOptions) addFlags(f *pflag.FlagSet) {
	o.set = f
	o.point.addFlags(f)
	f.StringVar(&o.req.InitialCluster, "initial-cluster", "", "the new cluster's members, `name=peer-url,…`")
	f.StringVar(&o.req.DataDir, "data-dir", "", "the members' data directories, with {name} for the member's name")
	f.StringVar(&o.req.WALDir, "wal-dir", "", "the members' WAL directories, with {name}, if they are separate ones")
	f.StringVar(&o.plan, "plan", "", "write the plan to this `file`, or read it if it exists, so that every host builds the same cluster")
	f.StringVar(&o.req.ClusterToken, "initial-cluster-token", "", "the new cluster's token (default: a fresh one)")
	f.StringSliceVar(&o.learners, "learners", nil, "the members that do not vote, or none (default: those that were learners in the backup)")
	parsedVar(f, &o.req.Bump, "bump-revision", "auto", "auto: beyond every known revision by 1,000,000,000; off; or an amount", parseBump)
	f.BoolVar(&o.req.SetAside, "set-aside", false, "where a data directory holds something, move that aside within it instead of refusing")
	parsedVar(f, &o.req.Owner, "owner", "", "`user:group` of the new files (default: as found on what they replace)", func(s string) (*restore.Owner, error) {
		owner, err := restore.ParseOwner(s)
		return &owner, err
	})
	f.StringVar(&o.req.TargetVersion, "target-version", "", "the oldest etcd that must be able to start the result, such as 3.5; refused if it cannot")
	choiceVar(f, &o.req.Engine, "engine", restore.EngineRequorum, "what builds the members: requorum, or etcdutl (etcd's own library, slower)", restore.EngineRequorum, restore.EngineEtcdutl)
	f.StringVar(&o.toSnapshot, "to-snapshot", "", "write one plain snapshot `file` instead of data directories, for k3s, RKE2, Talos or etcdutl")
	f.BoolVar(&o.dryRun, "dry-run", false, "only show the plan and check this host")
	o.start.addFlags(f)
}

// memberFlags say how members are built: of no use where none is.
var memberFlags = []string{"initial-cluster", "data-dir", "wal-dir", "initial-cluster-token", "learners", "set-aside", "engine", "start", "client-urls", "start-timeout"}

// check refuses what cannot be meant, before anything is read.
func (o *buildOptions) check(g *globals) error {
	if err := o.point.check(time.Now()); err != nil {
		return err
	}
	if !o.start.start {
		if err := g.unfit("without --start", "client-urls", "start-timeout"); err != nil {
			return err
		}
	}
	if o.start.start && o.dryRun {
		return usageError{errors.New("--start and --dry-run exclude each other")}
	}
	if o.toSnapshot != "" {
		o.start.start, o.start.clientURLs = false, nil // what the environment has of them is for members
	}
	return nil
}

// forAll is what all hosts are to do, or what is written into the file at path.
func (o *buildOptions) forAll(path string) restore.Request {
	req := o.req
	req.Path, req.SetAside = path, false
	if path == "" {
		req.Owner = nil // this host's, as SetAside is, and given to Execute
	}
	return req
}

func parseBump(s string) (restore.BumpRequest, error) {
	switch s {
	case "auto":
		return restore.BumpRequest{Mode: restore.BumpAuto}, nil
	case "off":
		return restore.BumpRequest{Mode: restore.BumpOff}, nil
	}
	amount, err := strconv.ParseInt(s, 10, 64)
	if err != nil || amount <= 0 {
		return restore.BumpRequest{}, errors.New("want auto, off or an amount above 0")
	}
	return restore.BumpRequest{Mode: restore.BumpBy, Amount: amount}, nil
}

func parseAuth(s string) (off bool, err error) {
	if s != "keep" && s != "off" {
		return false, errors.New("want keep or off")
	}
	return s == "off", nil
}

// planFlags are decided by a plan that exists.
var planFlags = slices.Concat(targetFlags, []string{"initial-cluster", "data-dir", "wal-dir", "initial-cluster-token", "learners", "bump-revision", "auth", "target-version", "engine", "timeline",
	"at-nearest", "min-lease-ttl", "lease-checkpoint-persist", "source-version"})

// readPlan reads the plan file, if there is one.
func (o *buildOptions) readPlan() (*restore.Plan, error) {
	if o.plan == "" {
		return nil, nil
	}
	// It decides what is written where, and whose that is.
	if err := safedir.TrustedFile(o.plan); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	data, err := sinks.ReadFile(o.plan, sinks.SmallFile)
	if errors.Is(err, os.ErrNotExist) {
		// A second plan in its place would make another cluster.
		if o.req.InitialCluster == "" {
			return nil, usageError{fmt.Errorf("--plan %s: there is no such file: copy it from the host that wrote it, or write a new plan with --initial-cluster and --data-dir", o.plan)}
		}
		return nil, o.checkPlanFolder()
	}
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	plan, err := restore.ParsePlan(data)
	if err != nil {
		return nil, fmt.Errorf("--plan %s: %w", o.plan, err)
	}
	for _, name := range planFlags {
		if o.set.Changed(name) && !o.agrees(name, plan) {
			return nil, usageError{fmt.Errorf("--%s: the plan in %s has decided otherwise; leave it out, or name a new file to plan anew", name, o.plan)}
		}
	}
	return plan, nil
}

// checkPlanFolder refuses a plan that cannot be written before hours of replay.
func (o *buildOptions) checkPlanFolder() error {
	dir, err := above(o.plan)
	if err == nil {
		err = unix.Access(dir, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return fmt.Errorf("--plan %s: it cannot be written to the folder %s: %w: name a file elsewhere", o.plan, dir, err)
	}
	return nil
}

// agrees reports whether an option says what the plan says, as it does when the
// command that made the plan is run again.
func (o *buildOptions) agrees(name string, p *restore.Plan) bool {
	sorted := func(s string) []string { return slices.Sorted(strings.SplitSeq(s, ",")) }
	same := func(template string, planned func(restore.Member) string) bool {
		return !slices.ContainsFunc(p.Members, func(m restore.Member) bool {
			path, err := filepath.Abs(strings.ReplaceAll(template, "{name}", m.Name))
			return err != nil || path != planned(m)
		})
	}
	if name == "at-nearest" || slices.Contains(targetFlags, name) {
		return o.point.asked() == p.Source.Target
	}
	switch name {
	case "initial-cluster":
		return slices.Equal(sorted(o.req.InitialCluster), sorted(p.InitialCluster()))
	case "initial-cluster-token":
		return o.req.ClusterToken == p.ClusterToken
	case "data-dir":
		return same(o.req.DataDir, func(m restore.Member) string { return m.DataDir })
	case "wal-dir":
		return same(o.req.WALDir, func(m restore.Member) string { return m.WALDir })
	case "engine":
		return o.req.Engine == p.Engine
	case "source-version":
		return p.Source.Recipe == nil || p.Source.Recipe.SourceVersion == o.point.replay.SourceVersion
	case "min-lease-ttl":
		return p.Source.Recipe == nil || p.Source.Recipe.MinLeaseTTL == o.point.replay.MinLeaseTTL
	case "lease-checkpoint-persist":
		return p.Source.Recipe == nil || p.Source.Recipe.PersistCheckpoints == o.point.replay.PersistCheckpoints
	case "auth":
		return o.req.AuthOff == p.AuthOff
	case "target-version":
		return o.req.TargetVersion == p.TargetVersion
	}
	return false
}

// writePlan writes the plan for other hosts to read.
func (o *buildOptions) writePlan(plan *restore.Plan) error {
	data, err := plan.Marshal()
	if err == nil {
		err = writeNew(o.plan, data)
	}
	if err != nil {
		return fmt.Errorf("--plan: %w", err)
	}
	return nil
}

// chooseLearners are those asked for, or else those that the backup has under
// the same names.
func (o *buildOptions) chooseLearners(members []snapshot.Member) []string {
	if slices.Equal(o.learners, []string{"none"}) {
		return nil
	}
	if o.set.Changed("learners") {
		return o.learners
	}
	var names []string
	for _, m := range members {
		if m.IsLearner && strings.Contains(","+o.req.InitialCluster, ","+m.Name+"=") {
			names = append(names, m.Name)
		}
	}
	return names
}

// bytesPerKey is what etcd's index takes in memory for each key, about.
const bytesPerKey = 400

// replayOptions are how this restore replays the log, without a progress.
func (o *buildOptions) replayOptions(g *globals, plan *restore.Plan, meter *meter) (walreplay.Options, error) {
	dir, err := o.scratchDir(plan)
	if err != nil {
		return walreplay.Options{}, err
	}
	opts := o.point.replay
	opts.ScratchDir, opts.Logger = dir, g.logger()
	opts.Progress = func(p walreplay.Phase, done, total int64) { meter.show(string(p), done, total) }
	return opts, nil
}

// scratchDir is where to replay: as asked for, or on the file system that the
// result goes to.
func (o *buildOptions) scratchDir(plan *restore.Plan) (string, error) {
	if o.point.replay.ScratchDir != "" {
		info, err := os.Stat(o.point.replay.ScratchDir)
		if err == nil && !info.IsDir() {
			err = errors.New("it is no folder")
		}
		if err != nil {
			return "", usageError{fmt.Errorf("--scratch-dir: %w", err)}
		}
		return filepath.Abs(o.point.replay.ScratchDir)
	}
	if o.toSnapshot != "" {
		return above(o.toSnapshot)
	}
	dir := ""
	if plan != nil {
		for _, m := range plan.Members {
			if dir == "" || m.Name == o.name {
				dir = m.DataDir
			}
		}
	} else {
		name := o.name
		if name == "" {
			name, _, _ = strings.Cut(o.req.InitialCluster, "=")
		}
		dir = strings.ReplaceAll(o.req.DataDir, "{name}", name)
	}
	if dir == "" {
		return "", usageError{errors.New("no data directory: give --data-dir, with {name} in it for several members on one host")}
	}
	beside, err := above(dir)
	if err != nil || o.dryRun {
		return beside, err
	}
	// A data directory that is a mount of its own: what lies beside it is on
	// another file system, and often not to be written to.
	if info, err := os.Stat(dir); err == nil && info.IsDir() && (!sameFileSystem(dir, beside) || unix.Access(beside, unix.W_OK|unix.X_OK) != nil) {
		return filepath.Abs(dir)
	}
	return beside, nil
}

// sweep removes what runs that were killed have left of the databases that they rebuilt:
// this one may have had nothing to rebuild.
func (o *buildOptions) sweep(plan *restore.Plan) error {
	of, only := *o, []string{o.name}
	if plan.Path == "" && o.name == "" {
		only = nil
		for _, m := range plan.Members {
			only = append(only, m.Name)
		}
	}
	for _, of.name = range only {
		dir, err := of.scratchDir(plan)
		if err == nil {
			err = walreplay.SweepScratch(dir)
		}
		if err != nil {
			return fmt.Errorf("the restore is done; what a run that was killed has left could not be removed: %w", err)
		}
	}
	return nil
}

// above is the folder that a path is in, whether or not it is there.
func above(path string) (string, error) {
	path, err := filepath.Abs(path)
	return filepath.Dir(path), err
}

func sameFileSystem(a, b string) bool {
	var of, other unix.Stat_t
	return unix.Stat(a, &of) == nil && unix.Stat(b, &other) == nil && of.Dev == other.Dev
}

// resolve finds the point that was asked for in the source's history.
func (s *restoreSource) resolve(ctx context.Context, g *globals, o *restoreOptions, t walreplay.Target, base string) error {
	meter := g.newMeter()
	defer meter.finish()
	var opts walreplay.Options
	var err error
	if t.NeedsReplay() {
		if opts, err = o.replayOptions(g, nil, meter); err != nil {
			return err
		}
	}
	if s.point, err = s.history.Resolve(ctx, t, base, opts); err != nil {
		return err
	}
	s.manifest, s.target = s.point.Base.Manifest, o.point.asked()
	if s.repo != nil && base == "" {
		if err := s.all.CheckEncrypted(s.manifest); err != nil {
			return err
		}
	}
	s.highest = max(s.highest, s.history.HighestRevision(), s.point.Reached)
	if s.point.AsIs {
		s.image, s.notes = s.point.Base.Image, s.pointNotes()
		return nil
	}
	s.image, s.notes = s.point.Preview(), append(s.pointNotes(), s.memoryNote())
	return nil
}

// pointNotes are what a user should know of the point.
func (s *restoreSource) pointNotes() []string {
	notes := slices.Clone(s.point.Notes)
	if base := s.point.Base.Facts.DamagedMeta; base != "" && !s.point.AsIs { // else the plan notes it
		notes = append(notes, restore.DamagedMetaNote(base))
	}
	if s.point.Found != nil {
		notes = append(notes, s.point.Found.Notes()...)
	}
	return notes
}

func (s *restoreSource) memoryNote() string {
	p := s.point
	if p.Base.Manifest != nil && p.Base.Manifest.Keys.Count != nil {
		keys := *p.Base.Manifest.Keys.Count + int64(p.Entries())
		return fmt.Sprintf("the replay needs up to about %s of memory (%d bytes a key, of up to %d keys), beside the database itself in the page cache", size(bytesPerKey*keys), bytesPerKey, keys)
	}
	return fmt.Sprintf("the replay needs up to about %d bytes of memory a key, beside the database itself in the page cache", bytesPerKey)
}

// rebuild makes the image of the point, or of the plan's recipe.
func (s *restoreSource) rebuild(ctx context.Context, g *globals, o *restoreOptions, plan *restore.Plan) error {
	if s.point == nil && s.recipe == nil || s.point != nil && s.point.AsIs {
		return nil
	}
	meter := g.newMeter()
	defer meter.finish()
	opts, err := o.replayOptions(g, plan, meter)
	if err != nil {
		return err
	}
	if s.recipe != nil {
		s.rebuilt, err = s.history.Repeat(ctx, s.recipe, opts)
	} else {
		s.rebuilt, err = s.history.Rebuild(ctx, s.point, opts)
	}
	if err != nil {
		return s.nameOlder(ctx, g, err)
	}
	s.image, s.notes = s.rebuilt, append(s.notes, s.rebuilt.Notes...)
	if s.point == nil || s.point.MaxRevision == 0 || s.rebuilt.Recipe == nil {
		return nil
	}
	if c := s.rebuilt.Recipe; c.Index < s.history.Reach(s.rebuilt.Base) {
		s.highest = max(s.highest, s.point.MaxRevision+1) // the entry that was not replayed made it
	} else {
		s.notes = append(s.notes, fmt.Sprintf("what can be replayed ends at raft index %d, before the cluster went on to revision %d: changes of leases, users or alarms that may have followed at revision %d are not in it",
			c.Index, c.Revision+1, c.Revision))
	}
	return nil
}

// host is how a plan is carried out here, with a meter that shows the progress.
func (o *buildOptions) host(g *globals) (restore.ExecOptions, *meter) {
	m := g.newMeter()
	return restore.ExecOptions{
		Only: o.name, SetAside: o.req.SetAside, Owner: o.req.Owner, Logger: g.logger(),
		Progress: func(p restore.Phase, done, total int64) { m.update(string(p), done, total) },
	}, m
}
