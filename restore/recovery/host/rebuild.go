package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

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

// request is one that was found to make sense. The member is proved to be stopped, and
// its data was set aside by the same run.
type request struct {
	Run                     string
	Member, DataDir, WALDir string
	plan                    RebuildPlan
	source                  RebuildSource
	// Built is what the same run built before, or began to; nil where nothing.
	Built   *builtRecord
	journal *journal
}

// rebuilding is one request at work.
type rebuilding struct {
	*host
	*request
	folder       string // leads into the folder that it gathers in
	looked       bool   // for the repositories
	repositories []*opened
	unopened     error // of repositories
	keys         []age.Identity
	peers        map[Location]*peer
}

// rebuild builds the member as the plan says.
func (h *host) rebuild(ctx context.Context, a Header, r *rebuildArguments) (_ *Done, err error) {
	if err := h.writable(ctx); err != nil {
		return nil, err
	}
	known := h.Journal.Aside(a.Run)
	if known == nil || !known.Done || known.Undoing {
		return nil, refused(BadRequest, fmt.Errorf("run %s has not set the old data aside: do that first", a.Run))
	}
	if err := h.sameDirectories(known); err != nil {
		return nil, err
	}
	m := h.Config.Member
	q := &request{Run: a.Run, Member: m.Name, DataDir: m.DataDir, WALDir: m.WALDir, plan: r.Plan, source: r.Source, Built: h.Journal.Built(a.Run), journal: h.Journal}
	built, err := h.rebuilt(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("rebuild member %s: %w", q.Member, err)
	}
	return &Done{Result: built}, nil
}

func (h *host) rebuilt(ctx context.Context, q *request) (_ *Rebuilt, err error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if built, err := earlier(q); built != nil || err != nil {
		return built, errors.Join(err, removeOld(q, ""))
	}
	path, err := bringFolder(q)
	if err != nil {
		return nil, err
	}
	if err := removeOld(q, path); err != nil {
		return nil, err
	}
	g, err := openGather(path)
	if err != nil {
		return nil, err
	}
	s := &rebuilding{host: h, request: q, folder: g.dir.Path(), peers: map[Location]*peer{}}
	defer func() { err = errors.Join(err, closeAll(s.repositories), g.close()) }()
	built, err := s.rebuild(ctx)
	if err != nil {
		return nil, err
	}
	return built, g.remove()
}

// check refuses a plan that would build another cluster than it says.
func (q *request) check() error {
	p := q.plan
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
	if id != p.New {
		return fmt.Errorf("the plan is for cluster %s, and its token and its members give cluster %s: it was altered", p.New, id)
	}
	if !names(p.InitialCluster, q.Member) {
		return fmt.Errorf("this host's member is none of the plan's members %s", p.InitialCluster)
	}
	for name, l := range q.source.Owners {
		if err := checkRun(l.Run); err != nil {
			return fmt.Errorf("where the data of %s lies: %w", name, err)
		}
	}
	return nil
}

// names reports whether a member is among those that etcd's flag lists.
func names(initialCluster, member string) bool {
	for part := range strings.SplitSeq(initialCluster, ",") {
		if name, _, _ := strings.Cut(part, "="); strings.TrimSpace(name) == member {
			return true
		}
	}
	return false
}

// routes are the source, then its alternatives.
func (q *request) routes() []sources.Source {
	all := append([]sources.Source{q.plan.Source}, q.plan.Source.Others...)
	for i := range all {
		all[i].Others = nil
		all[i].Log = slices.Clone(all[i].Log)
	}
	return all
}

// location is where an owner's data lies.
func (q *request) location(owner string) (Location, error) {
	l, given := q.source.Owners[owner]
	switch {
	case !given && owner == q.Member:
		return Location{Member: q.Member, Run: q.Run}, nil
	case !given:
		return l, fmt.Errorf("the request does not say where the data of %s lies", owner)
	}
	return l, nil
}

// asideOf is what a run set aside whole, in the member's directories.
func (h *host) asideOf(run string) *restore.Aside {
	a := h.Journal.Aside(run)
	if a == nil || !a.Done || a.Undoing || h.sameDirectories(a) != nil {
		return nil
	}
	return &a.Aside
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

// rebuild goes the best way that can be gone to its end.
func (s *rebuilding) rebuild(ctx context.Context) (*Rebuilt, error) {
	ways, err := s.order(ctx)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, w := range ways {
		if len(failed) > 0 {
			w.why = "another way failed: " + oneLine(errors.Join(failed...))
		}
		built := &Rebuilt{PlanID: s.plan.ID}
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
		if o.peer != nil {
			start := time.Now()
			var err error
			if b.Bytes, err = s.bring(ctx, o); err != nil {
				return nil, err
			}
			b.From, b.Took = o.at.Member, time.Since(start)
		}
		if err := s.checkCluster(o); err != nil {
			return nil, err
		}
		places[o.name] = o.place
		built.Brought = append(built.Brought, rated(b))
	}
	built.Phases = append(built.Phases, restore.PhaseTime{Phase: PhaseBring, Duration: time.Since(began)})
	before := int64(0)
	if w.repository != nil {
		before = w.repository.meter.bytes.Load()
	}
	r := s.plan.Replay
	state, err := sources.Rebuild(ctx, sources.RebuildRequest{
		Source: w.source, Target: s.plan.Target, Places: places,
		Repositories: repositoriesOf(s.repositories), Identities: s.keys,
		ScratchDir: filepath.Join(s.folder, "replay"),
		Replay: walreplay.Options{
			MinLeaseTTL: r.MinLeaseTTL, PersistCheckpoints: r.PersistCheckpoints, SourceVersion: r.SourceVersion,
			CheckpointHashes: walreplay.CheckpointHashesAtEnd, CheckBase: s.CheckBase, Logger: s.Logger,
		},
	})
	if err != nil {
		return nil, err
	}
	if m := w.repository; m != nil {
		built.Brought = append(built.Brought, rated(Brought{
			Owner: repositoryOwner(w), From: m.name, Bytes: m.meter.bytes.Load() - before, Took: time.Duration(m.meter.nanoseconds.Load()), Why: w.why,
		}))
	}
	built.Notes = state.Notes
	for _, p := range state.Phases {
		built.Phases = append(built.Phases, restore.PhaseTime{Phase: restore.Phase(p.Phase), Duration: p.Took})
	}
	return state, nil
}

func rated(b Brought) Brought {
	if b.Took > 0 {
		b.Rate = float64(b.Bytes) / b.Took.Seconds()
	}
	return b
}

// repositoryOwner is the owner of what is read of repositories.
func repositoryOwner(w *route) string {
	if w.source.Base.Backup != "" {
		return w.source.Base.Owner
	}
	for _, p := range w.source.Log {
		if strings.HasPrefix(p.Owner, sources.ArchivePrefix) {
			return p.Owner
		}
	}
	return sources.ArchivePrefix
}

// checkSpace looks before anything is copied: for the copies, the database that is
// replayed, and the one that is built.
func (s *rebuilding) checkSpace(w *route) error {
	need := 2*w.base + logSpace
	for _, o := range w.owners {
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
	log, err := walfile.Open(logDir(o.place))
	if err != nil {
		return fmt.Errorf("the data of %s: %w", o.name, err)
	}
	if id := snapshot.ID(log.Identity().ClusterID); id != s.plan.Old {
		err = fmt.Errorf("the data of %s is of cluster %s, and the plan is for cluster %s", o.name, id, s.plan.Old)
	}
	return errors.Join(err, log.Close())
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
	p := s.plan
	plan, err := restore.NewPlan(ctx, restore.Request{
		Image: state, Target: p.Target.String(), Repository: w.source.Base.Repository, BackupID: w.source.Base.Backup,
		InitialCluster: p.InitialCluster, Learners: p.Learners, ClusterToken: p.ClusterToken,
		DataDir: s.DataDir, WALDir: s.WALDir, Owner: owner,
		Bump: p.Bump, HighestKnownRevision: p.HighestKnown,
	})
	if err != nil {
		return err
	}
	if plan.ClusterID != p.New {
		return fmt.Errorf("the plan is for cluster %s, and cluster %s would be built", p.New, plan.ClusterID)
	}
	// By it an attempt that was cut off is known again.
	plan.ID = restorePlanID(p.ID)
	built.Restore = &restore.Result{Plan: plan}
	if err := s.record(s.begun, built); err != nil {
		return err
	}
	result, err := restore.Execute(ctx, plan, state, restore.ExecOptions{
		Only: s.Member, Owner: owner, Logger: s.Logger,
		// What lies there beside a member is left alone; a member that could start is
		// somebody's, and refused, unless this run built it by a plan that was given up.
		SetAside: restore.CheckStartable(s.DataDir, s.WALDir) != nil || s.Built != nil,
	})
	if err != nil {
		return err
	}
	built.Restore, built.Phases = result, append(built.Phases, result.Phases...)
	if built.Image, err = imageOf(ctx, filepath.Join(s.DataDir, "member", "snap", "db")); err != nil {
		return err
	}
	return s.record(s.done, built)
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

// describe tells the state before it is changed.
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

// begun records that the directories are about to be built, and done that they were.
func (q *request) begun(b builtRecord) error { return q.add(stepRebuild, b) }
func (q *request) done(b builtRecord) error  { return q.add(stepSuperseded, b) }

func (q *request) add(step step, b builtRecord) error {
	return q.journal.Add(record{Run: q.Run, Step: step, Built: &b})
}

func (s *rebuilding) record(step func(builtRecord) error, built *Rebuilt) error {
	raw, err := json.Marshal(built)
	if err != nil {
		return err
	}
	return step(builtRecord{Plan: s.plan.ID, Old: s.plan.Old, New: s.plan.New, Result: raw})
}

func restorePlanID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// earlier is what the same run built by this plan; nil where it has not, or where
// that is not there any more.
func earlier(q *request) (*Rebuilt, error) {
	if q.Built == nil || q.Built.Plan != q.plan.ID || q.Built.New != q.plan.New {
		return nil, nil
	}
	var built Rebuilt
	err := json.Unmarshal(q.Built.Result, &built)
	if err == nil && (built.Restore == nil || built.Restore.Plan == nil) {
		err = errors.New("it names no plan of the directories")
	}
	if err != nil {
		return nil, fmt.Errorf("what the journal says of the rebuild by plan %s cannot be read: %w", q.plan.ID, err)
	}
	result, free, err := restore.Restored(q.DataDir)
	if err != nil || !free || result.Plan.ID != built.Restore.Plan.ID {
		return nil, err
	}
	built.Earlier = true
	if !q.Built.Done {
		built.Restore = result
		if err := (&rebuilding{request: q}).record(q.done, &built); err != nil {
			return nil, err
		}
	}
	return &built, nil
}
