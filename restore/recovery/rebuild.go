// One database is built for all members: by the host whose own data leads there, or else here,
// from what is copied of hosts and read of repositories. It is compared with the other survivors' databases
// before any other host gets it.

package recovery

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
)

// DifferError says that databases hold different keys. Nothing was started.
type DifferError struct {
	Run      string // that has set the old data aside; empty if nothing was changed
	Compared *sources.Comparison
}

func (e *DifferError) Error() string {
	if e.Run == "" {
		return fmt.Sprintf("nothing was changed: %v", e.Compared.DifferError())
	}
	return fmt.Sprintf("run %s: nothing is started; put the old data back with --undo first: %v", e.Run, e.Compared.DifferError())
}

// Unwrap is a *snapshot.DamagedError.
func (e *DifferError) Unwrap() error { return e.Compared.DifferError() }

// rebuildPlan is what every host builds.
func (d *decision) rebuildPlan() host.RebuildPlan {
	p := host.RebuildPlan{
		ID: d.PlanID, Old: d.Plan.ClusterID, New: d.NewClusterID, Source: *d.candidate().Source, Target: d.Asked.Target,
		InitialCluster: d.initialCluster(), ClusterToken: d.ClusterToken, Learners: d.learners(),
		Bump: d.Bump, Replay: d.Asked.Replay,
	}
	// Of a source that is whole the highest revision is a bound, not one that was
	// seen.
	if raises(d.Bump) {
		p.HighestKnown = d.Plan.Bump.HighestKnown
	}
	return p
}

// builder is the host whose own data is all that the source is made of, if it gets a member;
// nil if there is none.
func (d *coordinator) builder() *participant {
	owners := d.decision.candidate().Source.Owners()
	i := slices.IndexFunc(d.getting(), func(h *participant) bool { return len(owners) == 1 && h.Member == owners[0] })
	if i < 0 {
		return nil
	}
	return d.getting()[i]
}

// rebuild builds the database, compares it, and has all hosts build their members of it.
func (d *coordinator) rebuild(ctx context.Context) (err error) {
	dec := d.decision
	plan := dec.rebuildPlan()
	var peers sources.PeerHashes
	var reading sync.WaitGroup
	reading.Go(func() { peers = plan.Source.ReadPeers(ctx, d.hashOf) })
	all := map[string]*host.Rebuilt{}
	rest := d.getting()
	if builder := d.builder(); builder != nil {
		err = d.rebuildOn(ctx, []*participant{builder}, plan, all)
		if err == nil {
			plan.Image = all[builder.Member].Image
		}
		rest = slices.DeleteFunc(rest, func(h *participant) bool { return h == builder })
	} else {
		var done func() error
		err = d.timed(ctx, PhaseRebuild, "", func(ctx context.Context) (_ string, err error) {
			plan.Image, done, err = d.buildHere(ctx, &plan)
			return stateWords(plan.Image), err
		})
		if done != nil {
			defer func() { err = errors.Join(err, done()) }()
		}
	}
	reading.Wait()
	if err != nil {
		return err
	}
	if plan.Image == nil {
		return fmt.Errorf("the host of %s does not say what was built: take the run back with --undo", d.builder().Member)
	}
	if index := dec.candidate().Source.Index; dec.Asked.Target == (walreplay.Target{}) && plan.Image.Index != index {
		return fmt.Errorf("run %s: the rebuild came to raft index %d, and %d was planned: nothing is started, put the old data back with --undo", d.run, plan.Image.Index, index)
	}
	if err := d.compare(ctx, plan.Image, peers); err != nil {
		return err
	}
	if err := d.rebuildOn(ctx, rest, plan, all); err != nil {
		return err
	}
	dec.branch(&plan.Image.State)
	dec.Built, dec.BuiltAt = all, time.Now()
	return d.store(ctx)
}

// rebuildOn has hosts build their members.
func (d *coordinator) rebuildOn(ctx context.Context, hosts []*participant, plan host.RebuildPlan, all map[string]*host.Rebuilt) error {
	return d.each(ctx, PhaseRebuild, hosts, func(ctx context.Context, h *participant) (string, error) {
		built, err := act(ctx, d, PhaseRebuild, h, func(ctx context.Context) (*host.Rebuilt, error) { return h.client.Rebuild(ctx, plan) })
		if err != nil {
			return "", err
		}
		if built.Restore == nil || built.Restore.Plan == nil || plan.Image != nil && (built.Index != plan.Image.Index || built.Revision != plan.Image.Revision || built.HashKV != plan.Image.HashKV) {
			return "", errors.New("it does not say what was built, or built something else: take the run back with --undo")
		}
		d.mu.Lock()
		all[h.Member] = built
		d.mu.Unlock()
		for _, n := range built.Notes {
			if plan.Image == nil {
				d.reporter.note(h.Member + ": " + n)
			}
		}
		return builtWords(built), nil
	})
}

func builtWords(b *host.Rebuilt) string {
	if b.Earlier {
		return "built before"
	}
	words := stateWords(&host.Image{State: b.State})
	for _, from := range b.Brought {
		words += fmt.Sprintf(", %s brought over from %s", humanize.IBytes(uint64(from.Bytes)), from.From)
	}
	return words
}

func stateWords(i *host.Image) string {
	if i == nil {
		return ""
	}
	return fmt.Sprintf("revision %d, raft index %d", i.Revision, i.Index)
}

// first is what any host built; nil where it is not known that all have.
func (d *decision) first() *host.Rebuilt {
	if d.Built == nil {
		return nil
	}
	return d.Built[sortedKeys(d.Built)[0]]
}

// hashOf hashes the database that a member had.
func (d *coordinator) hashOf(ctx context.Context, owner string, revision int64) (snapshot.HashKV, error) {
	h := d.host(owner)
	if h == nil || h.state.Unreachable != "" {
		return snapshot.HashKV{}, errors.New("its host cannot be reached")
	}
	return act(ctx, d, PhaseRebuild, h, func(ctx context.Context) (snapshot.HashKV, error) {
		return h.client.Hash(ctx, d.readOf(h), revision)
	})
}

// compare ends a run if another survivor's database holds other keys than what was rebuilt, unless
// it was named what to recover from.
func (d *coordinator) compare(ctx context.Context, image *host.Image, peers sources.PeerHashes) error {
	source := d.decision.candidate().Source
	if !source.Unguarded() {
		return nil
	}
	c, err := source.Compare(ctx, image.Hashes, peers, d.hashOf)
	if err != nil {
		return err
	}
	switch here := d.req.Local != nil; {
	case !c.Differ() || d.decision.Plan.Named || here && c.Trusted():
	case here:
		return &DifferError{Compared: c}
	default:
		return &DifferError{Run: d.run, Compared: c}
	}
	d.decision.Compared = c
	if len(source.Peers) > 0 && (c.Differ() || len(c.NotCompared) > 0) {
		d.reporter.warn(c.String())
	}
	return nil
}

// buildHere builds the database on this machine. done removes it.
func (d *coordinator) buildHere(ctx context.Context, plan *host.RebuildPlan) (_ *host.Image, done func() error, err error) {
	source := plan.Source
	scratch, err := walreplay.NewScratchFolder(cmp.Or(d.req.ScratchDir, os.TempDir()))
	if err != nil {
		return nil, nil, err
	}
	var closers []func() error
	done = func() error {
		d.image.Store(nil)
		var errs []error
		for _, c := range slices.Backward(closers) {
			errs = append(errs, c())
		}
		return errors.Join(append(errs, scratch.Remove())...)
	}
	places := map[string]sources.Directories{}
	for _, owner := range source.Owners() {
		if _, archived := sources.TimelineOf(owner); archived {
			continue
		}
		places[owner], err = d.copyHere(ctx, &source, owner, filepath.Join(scratch.Path(), owner))
		if err != nil {
			return nil, done, fmt.Errorf("copy the data of %s: %w", owner, err)
		}
	}
	state, repos, err := d.replay(ctx, plan, places, scratch.Path())
	if err != nil {
		return nil, done, err
	}
	closers = append(closers, repos.Close, state.Close)
	image := &host.Image{ID: rand.Text()}
	if image.State, err = host.StateOf(ctx, &source, state, places[source.Base.Owner]); err != nil {
		return nil, done, err
	}
	for _, n := range state.Notes {
		d.reporter.note(n)
	}
	file, err := fileOf(ctx, state, filepath.Join(scratch.Path(), "image"))
	if err != nil {
		return nil, done, err
	}
	closers = append(closers, file.Close)
	info, err := file.Stat()
	if err != nil {
		return nil, done, err
	}
	image.Size = info.Size()
	d.image.Store(file)
	return image, done, nil
}

// replay rebuilds the database from what is in places and in the repositories. The caller closes
// both results.
func (d *coordinator) replay(ctx context.Context, plan *host.RebuildPlan, places map[string]sources.Directories, scratch string) (*walreplay.Rebuilt, *Repositories, error) {
	identities, err := d.identities()
	if err != nil {
		return nil, nil, err
	}
	opts := walreplay.Options{
		ScratchDir: scratch, SourceSettings: plan.Replay, CheckBase: d.req.CheckBase, Logger: d.logger,
		Progress: func(p walreplay.Phase, done, total int64) {
			d.reporter.progress(PhaseRebuild, "", string(p), done, total)
		},
	}
	if d.req.Local != nil {
		opts.Engine = d.req.Local.Engine
	}
	repos := d.repositories(ctx)
	state, err := sources.Rebuild(ctx, sources.RebuildRequest{Source: plan.Source, Target: plan.Target, Places: places, Repositories: repos.Opened, Identities: identities, Replay: opts})
	if err != nil {
		return nil, nil, errors.Join(append([]error{err, repos.Close()}, repos.Errors...)...)
	}
	return state, repos, nil
}

// fileOf is the file of what was rebuilt: a full snapshot that is the state itself is written
// to one.
func fileOf(ctx context.Context, state *walreplay.Rebuilt, path string) (_ *os.File, err error) {
	if at := state.Path(); at != "" {
		return safedir.Open(at)
	}
	in, err := state.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := safedir.Create(path)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(out, in); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// copyHere copies what a source reads of a member's data.
func (d *coordinator) copyHere(ctx context.Context, source *sources.Source, owner, dir string) (place sources.Directories, err error) {
	place.DataDir = dir
	h := d.host(owner)
	if h == nil || h.state.Unreachable != "" {
		return place, errors.New("its host cannot be reached")
	}
	run := d.readOf(h)
	files, err := h.client.Files(ctx, run)
	if err == nil {
		err = host.CheckFiles(files)
	}
	if err != nil {
		return place, err
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	copier := host.Copier{Fetch: h.client.Data, Logger: d.logger}
	needed := source.Needed(owner, names)
	for _, f := range files {
		if !slices.Contains(needed, f.Name) {
			continue
		}
		if strings.HasPrefix(f.Name, "wal/") {
			place.WALDir = filepath.Join(dir, "wal")
		}
		if _, err := copier.Copy(ctx, host.DataArguments{Run: run, File: f.Name}, f.Size, filepath.Join(dir, filepath.FromSlash(f.Name))); err != nil {
			return place, err
		}
	}
	return place, nil
}
