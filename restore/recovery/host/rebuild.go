// Every member of the new cluster gets the same database. One host builds it, from its own
// member's data; if no single one can, the coordinator does. The others get that file, and write their
// own log: so members cannot differ, and a host needs nothing but its own disk.

package host

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/walfile"
)

// logSpace is what etcd preallocates of a new log: two segments.
const logSpace = 128 << 20

// PhaseBring is the copying from another host.
const PhaseBring restore.Phase = "bring"

// DatabaseName is the new member's database among its files.
const DatabaseName = "member/snap/db"

// rebuilding is a rebuild at work. The member is proved to be stopped, and its data was
// set aside by the same run.
type rebuilding struct {
	*host
	run    string
	plan   RebuildPlan
	folder string // leads into the folder that it works in
}

// rebuild builds the member as the plan says.
func (h *host) rebuild(ctx context.Context, a Header, plan *RebuildPlan) (*Rebuilt, error) {
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
	s := &rebuilding{host: h, run: a.Run, plan: *plan}
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
	if built, err := s.earlier(ctx); built != nil || err != nil {
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
	defer func() { err = errors.Join(err, g.close()) }()
	built := &Rebuilt{}
	if s.plan.Image == nil {
		err = s.replay(ctx, built)
	} else {
		err = s.receive(ctx, built)
	}
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
	name := h.Config.Member.Owner
	if name == "" {
		return nil, nil
	}
	owner, err := restore.ParseOwner(name)
	return &owner, err
}

// replay builds from the data that the run set aside on this host.
func (s *rebuilding) replay(ctx context.Context, built *Rebuilt) (err error) {
	source, name := s.plan.Source, s.Config.Member.Name
	if owners := source.Owners(); len(owners) != 1 || owners[0] != name {
		return refused(BadRequest, fmt.Errorf("the source is made of the data of %v, and this host has that of %s", owners, name))
	}
	aside, err := s.asideOf(s.run)
	if err != nil {
		return fmt.Errorf("this host has no data of %s: %w", name, err)
	}
	place := sources.Directories{DataDir: filepath.Join(s.folder, "aside")}
	if _, place.WALDir, err = aside.View(place.DataDir); err != nil {
		return err
	}
	if err := s.checkCluster(place, len(source.Log) > 0); err != nil {
		return err
	}
	base := int64(0)
	if path := source.Base.In(place); path != "" {
		info, err := safedir.Stat(path)
		if err != nil {
			return fmt.Errorf("%w: is it the data that was surveyed?", err)
		}
		base = info.Size()
	}
	if err := checkSpace(s.folder, 2*base+logSpace, "what is replayed and built"); err != nil {
		return err
	}
	state, err := sources.Rebuild(ctx, sources.RebuildRequest{
		Source: source, Target: s.plan.Target, Places: map[string]sources.Directories{name: place},
		Replay: walreplay.Options{
			ScratchDir: filepath.Join(s.folder, "replay"), SourceSettings: s.plan.Replay, CheckBase: s.CheckBase, Logger: s.Logger,
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	built.Phases = state.Phases
	began := time.Now()
	if built.State, err = StateOf(ctx, &source, state, place); err != nil {
		return err
	}
	built.Phases = append(built.Phases, restore.PhaseTime{Phase: "hash", Took: time.Since(began)})
	return s.build(ctx, state, s.plan.Bump, built)
}

// receive builds from the database that another host has built, or the coordinator.
func (s *rebuilding) receive(ctx context.Context, built *Rebuilt) error {
	image := s.plan.Image
	if image.ID == "" || !filepath.IsLocal(image.ID) || image.Size < 0 || image.Size > maxFiles {
		return refused(BadRequest, fmt.Errorf("an image %q of %d bytes is none that requorum made", image.ID, image.Size))
	}
	// Pieces of two images are never put together.
	file := &received{path: filepath.Join(s.folder, image.ID, "db")}
	began := time.Now()
	c := Copier{Logger: s.Logger, tuning: s.tuning, Fetch: func(ctx context.Context, a DataArguments, w io.Writer) (*Sent, error) {
		var sent Sent
		err := s.conn.Call(ctx, Header{}, verbFetch, FetchArguments{Member: image.From, DataArguments: a}, &sent, w)
		return &sent, err
	}}
	_, here, err := c.brought(file.path, image.Size)
	if err != nil {
		return err
	}
	if err := checkSpace(s.folder, image.Size-here+logSpace, "the rest of the database that is copied, and a log"); err != nil {
		return err
	}
	bytes, err := c.Copy(ctx, DataArguments{File: DatabaseName}, image.Size, file.path)
	if err != nil {
		return fmt.Errorf("copy the database from %s: %w", image.where(), err)
	}
	built.State = image.State
	built.Brought = []Brought{{From: image.where(), Bytes: bytes, Took: time.Since(began)}}
	built.Phases = []restore.PhaseTime{{Phase: PhaseBring, Took: time.Since(began)}}
	if file.File, err = snapshot.OpenUnsynced(file.path); err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	bump := s.plan.Bump
	if image.From != "" { // the host that built it has raised the revision
		bump = restore.BumpRequest{Mode: restore.BumpNone}
	}
	return s.build(ctx, file, bump, built)
}

// received is a database that came whole, and is moved to where it is to be.
type received struct {
	*snapshot.File
	path string
}

// Take moves it; false if the path is in another file system.
func (r *received) Take(path string) (bool, error) {
	err := safedir.Rename(r.path, path)
	if errors.Is(err, syscall.EXDEV) {
		return false, nil
	}
	return err == nil, err
}

// checkCluster refuses a log of another cluster than the plan's.
func (s *rebuilding) checkCluster(place sources.Directories, needed bool) error {
	if !needed {
		return nil
	}
	log, err := walfile.Open(restore.LogDir(place.DataDir, place.WALDir))
	if err != nil {
		return err
	}
	if id := snapshot.ID(log.Identity().ClusterID); id != s.plan.Old {
		return fmt.Errorf("the data is of cluster %s, and the plan is for cluster %s", id, s.plan.Old)
	}
	return nil
}

// build makes the member's directories of an image, and records it.
func (s *rebuilding) build(ctx context.Context, image snapshot.Image, bump restore.BumpRequest, built *Rebuilt) error {
	owner, err := s.owner()
	if err != nil {
		return err
	}
	p, m := s.plan, s.Config.Member
	plan, err := restore.NewPlan(ctx, restore.Request{
		Image: image, Target: p.Target.String(), Repository: p.Source.Base.Repository, BackupID: p.Source.Base.Backup,
		InitialCluster: p.InitialCluster, Learners: p.Learners, ClusterToken: p.ClusterToken,
		DataDir: m.DataDir, WALDir: m.WALDir, Owner: owner,
		Bump: bump, HighestKnownRevision: p.HighestKnown,
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
	result, err := restore.Execute(ctx, plan, image, restore.ExecOptions{
		Only: m.Name, Owner: owner, Logger: s.Logger,
		// What lies there beside a member is left alone; a member that could start is
		// somebody's, and refused, unless this run built it by a plan that was given up.
		SetAside: restore.CheckStartable(m.DataDir, m.WALDir) != nil || before,
	})
	if err != nil {
		return err
	}
	built.Restore, built.Phases = result, append(built.Phases, result.Phases...)
	return s.complete(ctx, built)
}

// complete records that the directories are built, with what their database shows.
func (s *rebuilding) complete(ctx context.Context, built *Rebuilt) error {
	m := s.Config.Member
	file, err := snapshot.OpenUnsynced(filepath.Join(m.DataDir, filepath.FromSlash(DatabaseName)))
	if err != nil {
		return err
	}
	facts, err := file.Facts(ctx)
	if err != nil {
		return err
	}
	built.AuthEnabled = facts.AuthEnabled
	if s.plan.Image == nil {
		built.Image = &Image{ID: rand.Text(), From: m.Name, Size: file.Size(), State: built.State}
	}
	return s.record(built, true)
}

// StateOf describes what was rebuilt, before it is changed. The source's owner has its data in place,
// if that was all that was read.
func StateOf(ctx context.Context, source *sources.Source, image *walreplay.Rebuilt, place sources.Directories) (State, error) {
	s := State{Source: source, Recipe: image.Recipe, Notes: image.Notes}
	facts, err := image.Facts(ctx)
	if err != nil {
		return s, err
	}
	s.Index, s.Term, s.Revision = facts.RaftIndex, facts.RaftTerm, facts.Revision
	path := image.Path()
	if r := image.Recipe; r != nil {
		s.Index, s.Term, s.Revision, s.HashKV = r.Index, r.Term, r.Revision, r.HashKV
	} else if image.Base != nil && image.Base.Manifest != nil {
		s.HashKV = image.Base.Manifest.HashKV
	}
	if path == "" {
		path = source.Base.In(place)
	}
	if s.Term == 0 && s.Index == source.Index {
		s.Term = source.Term
	}
	if s.Hashes, err = sources.HashPeers(ctx, path, source.Peers, s.HashKV); err != nil {
		return s, fmt.Errorf("hash what was rebuilt: %w", err)
	}
	return s, nil
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
func (s *rebuilding) earlier(ctx context.Context) (*Rebuilt, error) {
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
	if !known.Done || s.plan.Image == nil && built.Image == nil { // it got another one's, and is to give its own now
		built.Restore = result
		if err := s.complete(ctx, &built); err != nil {
			return nil, err
		}
	}
	return &built, nil
}
