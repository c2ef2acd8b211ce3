package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"filippo.io/age"
	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/serve"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/walfile"
)

// logSpace is what etcd preallocates of a new log: two segments.
const logSpace = 128 << 20

// PhaseBring is the copying from other hosts.
const PhaseBring restore.Phase = "bring"

// rebuilding is a rebuild at work. The member is proved to be stopped, and its data was
// set aside by the same run.
type rebuilding struct {
	*host
	run          string
	plan         RebuildPlan
	owners       []string // whose data other hosts have
	folder       string   // leads into the folder that it gathers in
	looked       bool     // for the repositories
	repositories []*opened
	unopened     error // of repositories
	keys         []age.Identity
	held         map[string]*held // by owner
}

// rebuild builds the member as the plan says.
func (h *host) rebuild(ctx context.Context, a Header, r *rebuildArguments) (*Rebuilt, error) {
	if err := h.writable(ctx); err != nil {
		return nil, err
	}
	known := h.State.Aside(a.Run)
	if known == nil || !known.Done || known.Undoing {
		return nil, refused(BadRequest, fmt.Errorf("run %s has not set the old data aside: do that first", a.Run))
	}
	if err := h.sameDirectories(known); err != nil {
		return nil, err
	}
	s := &rebuilding{host: h, run: a.Run, plan: r.Plan, owners: r.Owners, held: map[string]*held{}}
	built, err := s.rebuilt(ctx)
	if err != nil {
		return nil, fmt.Errorf("rebuild member %s: %w", h.Config.Member.Name, err)
	}
	return built, nil
}

func (s *rebuilding) rebuilt(ctx context.Context) (_ *Rebuilt, err error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if built, err := s.earlier(); built != nil || err != nil {
		return built, errors.Join(err, s.removeOld(""))
	}
	path, err := s.bringFolder()
	if err != nil {
		return nil, err
	}
	if err := s.removeOld(path); err != nil {
		return nil, err
	}
	g, err := openGather(path)
	if err != nil {
		return nil, err
	}
	s.folder = g.dir.Path()
	defer func() { err = errors.Join(err, closeAll(s.repositories), g.close()) }()
	built, err := s.goBest(ctx)
	if err != nil {
		return nil, err
	}
	return built, g.remove()
}

// check refuses a plan that would build another cluster than it says.
func (s *rebuilding) check() error {
	p := s.plan
	switch {
	case p.ID == "":
		return errors.New("the plan has no ID")
	case p.Old == 0 || p.New == 0 || p.Old == p.New:
		return fmt.Errorf("the plan is to put cluster %s in the place of cluster %s: want two that differ", p.New, p.Old)
	case p.ClusterToken == "":
		return errors.New("the plan has no cluster token: each host would draw another one")
	}
	id, err := restore.ClusterID(p.InitialCluster, p.ClusterToken)
	if err != nil {
		return fmt.Errorf("the plan: %w", err)
	}
	members, err := types.NewURLsMap(p.InitialCluster)
	if err != nil {
		return fmt.Errorf("the plan: %w", err)
	}
	if id != p.New {
		return fmt.Errorf("the plan is for cluster %s, and its token and its members give cluster %s: it was altered", p.New, id)
	}
	if _, is := members[s.Config.Member.Name]; !is {
		return fmt.Errorf("this host's member is none of the plan's members %s", p.InitialCluster)
	}
	return nil
}

// owner is who the new files belong to; nil: as found.
func (h *host) owner() (*restore.Owner, error) {
	name := cmp.Or(h.Config.Member.Owner, h.Config.Member.Store.User)
	if name == "" {
		return nil, nil
	}
	owner, err := restore.ParseOwner(name)
	return &owner, err
}

// goBest goes the best way that can be gone to its end.
func (s *rebuilding) goBest(ctx context.Context) (*Rebuilt, error) {
	ways, err := s.order(ctx)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, w := range ways {
		if len(failed) > 0 {
			w.why = "another way failed: " + oneLine(errors.Join(failed...))
		}
		built := &Rebuilt{}
		state, err := s.gather(ctx, w, built)
		if err == nil {
			err = s.build(ctx, w, state, built)
			return built, errors.Join(err, state.Close())
		}
		failed = append(failed, fmt.Errorf("from %s: %w", w, err))
		if ctx.Err() != nil {
			break
		}
		s.Logger.Warn("a way to the state failed", "from", w.String(), "error", err)
	}
	return nil, errors.Join(failed...)
}

// gather brings what a way needs, and replays it. The caller closes the state.
func (s *rebuilding) gather(ctx context.Context, w *route, built *Rebuilt) (*walreplay.Rebuilt, error) {
	if err := s.checkSpace(w); err != nil {
		return nil, err
	}
	began := time.Now()
	places := map[string]sources.Directories{}
	for _, o := range w.owners {
		b := Brought{Owner: o.name, From: HereName, Bytes: o.bytes, Why: w.why}
		if !o.here {
			start := time.Now()
			var err error
			if b.Bytes, err = s.bring(ctx, o); err != nil {
				return nil, err
			}
			b.From, b.Took = o.name, time.Since(start)
		}
		if err := s.checkCluster(o); err != nil {
			return nil, err
		}
		places[o.name] = o.place
		built.Brought = append(built.Brought, b)
	}
	built.Phases = append(built.Phases, restore.PhaseTime{Phase: PhaseBring, Took: time.Since(began)})
	before := int64(0)
	if w.repository != nil {
		before = w.repository.meter.bytes.Load()
	}
	r := s.plan.Replay
	state, err := sources.Rebuild(ctx, sources.RebuildRequest{
		Source: w.source, Target: s.plan.Target, Places: places,
		Repositories: repositoriesOf(s.repositories), Identities: s.keys,
		Replay: walreplay.Options{
			ScratchDir: filepath.Join(s.folder, "replay"), MinLeaseTTL: r.MinLeaseTTL, PersistCheckpoints: r.PersistCheckpoints, SourceVersion: r.SourceVersion,
			CheckpointHashes: walreplay.CheckpointHashesAtEnd, CheckBase: s.CheckBase, Logger: s.Logger,
		},
	})
	if err != nil {
		return nil, err
	}
	if m := w.repository; m != nil {
		built.Brought = append(built.Brought, Brought{
			Owner: archiveOf(w.source), From: m.String(), Bytes: m.meter.bytes.Load() - before, Took: time.Duration(m.meter.nanoseconds.Load()), Why: w.why,
		})
	}
	built.Notes, built.Phases = state.Notes, append(built.Phases, state.Phases...)
	return state, nil
}

// checkSpace looks before anything is copied: for the copies, the database that is
// replayed, and the one that is built.
func (s *rebuilding) checkSpace(w *route) error {
	need := 2*w.base + logSpace
	for _, o := range w.owners {
		if o.here {
			continue
		}
		for _, f := range o.files {
			whole, offset, err := s.brought(filepath.Join(o.place.DataDir, filepath.FromSlash(f.Name)), f.Size)
			if err != nil {
				return err
			}
			if !whole {
				need += f.Size - offset
			}
		}
	}
	return checkSpace(s.folder, need, "what is copied, replayed and built")
}

// checkCluster refuses a log of another cluster than the plan's.
func (s *rebuilding) checkCluster(o *owned) error {
	if !o.log {
		return nil
	}
	log, err := walfile.Open(restore.LogDir(o.place.DataDir, o.place.WALDir))
	if err != nil {
		return fmt.Errorf("the data of %s: %w", o.name, err)
	}
	if id := snapshot.ID(log.Identity().ClusterID); id != s.plan.Old {
		return fmt.Errorf("the data of %s is of cluster %s, and the plan is for cluster %s", o.name, id, s.plan.Old)
	}
	return nil
}

// build makes the member's directories of a state, and records it.
func (s *rebuilding) build(ctx context.Context, w *route, state *walreplay.Rebuilt, built *Rebuilt) error {
	if err := describe(ctx, w, state, built); err != nil {
		return err
	}
	owner, err := s.owner()
	if err != nil {
		return err
	}
	p, m := s.plan, s.Config.Member
	plan, err := restore.NewPlan(ctx, restore.Request{
		Image: state, Target: p.Target.String(), Repository: w.source.Base.Repository, BackupID: w.source.Base.Backup,
		InitialCluster: p.InitialCluster, Learners: p.Learners, ClusterToken: p.ClusterToken,
		DataDir: m.DataDir, WALDir: m.WALDir, Owner: owner,
		Bump: p.Bump, HighestKnownRevision: p.HighestKnown,
	})
	if err != nil {
		return err
	}
	if plan.ClusterID != p.New {
		return fmt.Errorf("the plan is for cluster %s, and cluster %s would be built", p.New, plan.ClusterID)
	}
	// By it an attempt that was cut off is known again.
	plan.ID = p.ID
	built.Restore = &restore.Result{Plan: plan}
	before := s.State.BuiltBy(s.run) != nil
	if err := s.record(built, false); err != nil {
		return err
	}
	result, err := restore.Execute(ctx, plan, state, restore.ExecOptions{
		Only: m.Name, Owner: owner, Logger: s.Logger,
		// What lies there beside a member is left alone; a member that could start is
		// somebody's, and refused, unless this run built it by a plan that was given up.
		SetAside: restore.CheckStartable(m.DataDir, m.WALDir) != nil || before,
	})
	if err != nil {
		return err
	}
	built.Restore, built.Phases = result, append(built.Phases, result.Phases...)
	if built.Image, err = imageOf(ctx, filepath.Join(m.DataDir, "member", "snap", "db")); err != nil {
		return err
	}
	return s.record(built, true)
}

// imageOf reads what the proof of the new cluster goes by.
func imageOf(ctx context.Context, path string) (_ *serve.Expected, err error) {
	f, err := safedir.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return serve.ReadExpected(ctx, f, info.Size())
}

// describe records the state before it is changed.
func describe(ctx context.Context, w *route, state *walreplay.Rebuilt, built *Rebuilt) error {
	facts, err := state.Facts(ctx)
	if err != nil {
		return err
	}
	built.Source = &w.source
	built.Index, built.Term, built.Revision = facts.RaftIndex, facts.RaftTerm, facts.Revision
	if r := state.Recipe; r != nil {
		built.Recipe = r
		built.Index, built.Term, built.Revision, built.HashKV = r.Index, r.Term, r.Revision, r.HashKV
	} else if state.Base != nil && state.Base.Manifest != nil {
		built.HashKV = state.Base.Manifest.HashKV
	}
	if built.Term == 0 && built.Index == w.source.Index {
		built.Term = w.source.Term
	}
	return nil
}

// record stores that the directories are about to be built or, once that is done, that
// they were.
func (s *rebuilding) record(built *Rebuilt, done bool) error {
	raw, err := json.Marshal(built)
	if err != nil {
		return err
	}
	return s.State.build(builtRecord{Run: s.run, Plan: s.plan.ID, Old: s.plan.Old, New: s.plan.New, Done: done, Result: raw})
}

// earlier is what the same run built by this plan; nil where it has not, or where
// that is not there any more.
func (s *rebuilding) earlier() (*Rebuilt, error) {
	known := s.State.BuiltBy(s.run)
	if known == nil || known.Plan != s.plan.ID || known.New != s.plan.New {
		return nil, nil
	}
	var built Rebuilt
	err := json.Unmarshal(known.Result, &built)
	if err == nil && (built.Restore == nil || built.Restore.Plan == nil) {
		err = errors.New("it names no plan of the directories")
	}
	if err != nil {
		return nil, fmt.Errorf("what %s says of the rebuild by plan %s cannot be read: %w", s.State.path, s.plan.ID, err)
	}
	result, free, err := restore.Restored(s.Config.Member.DataDir)
	if err != nil || !free || result.Plan.ID != built.Restore.Plan.ID {
		return nil, err
	}
	built.Earlier = true
	if !known.Done {
		built.Restore = result
		if err := s.record(&built, true); err != nil {
			return nil, err
		}
	}
	return &built, nil
}
