package rebuilding

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/rebuild"
	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/walfile"
)

// logRoom is what etcd preallocates of a new log: two segments.
const logRoom = 128 << 20

// PhaseBring is the copying from other hosts.
const PhaseBring restore.Phase = "bring"

// session is one request.
type session struct {
	*Builder
	*request
	folder       string
	looked       bool // for the repositories
	repositories []*opened
	unopened     error // of repositories
	identities   []age.Identity
	peers        map[protocol.Location]*peer
}

// Rebuild builds the member as the request's plan says.
func (b *Builder) Rebuild(ctx context.Context, r control.Rebuild) (_ *protocol.Rebuilt, err error) {
	q, err := parse(r)
	if err != nil {
		return nil, fmt.Errorf("rebuild member %s: %w", r.Member, err)
	}
	if built, err := earlier(q); built != nil || err != nil {
		return built, errors.Join(err, removeOld(q, ""))
	}
	s := &session{Builder: b, request: q, folder: bringFolder(q), peers: map[protocol.Location]*peer{}}
	if err := removeOld(q, s.folder); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return nil, fmt.Errorf("rebuild member %s: a folder to gather in: %w", q.Member, err)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	built, err := s.rebuild(ctx)
	if err != nil {
		return nil, fmt.Errorf("rebuild member %s: %w", q.Member, err)
	}
	return built, os.RemoveAll(s.folder)
}

func (s *session) close() error {
	for _, p := range s.peers {
		p.client.Close()
	}
	return closeAll(s.repositories)
}

// rebuild goes the best way that can be gone to its end.
func (s *session) rebuild(ctx context.Context) (*protocol.Rebuilt, error) {
	ways, err := s.order(ctx)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, w := range ways {
		if len(failed) > 0 {
			w.why = "another way failed: " + oneLine(errors.Join(failed...))
		}
		built := &protocol.Rebuilt{PlanID: s.plan.ID}
		state, err := s.gather(ctx, w, built)
		if err == nil {
			err = s.build(ctx, w, state, built)
			return built, errors.Join(err, state.Close())
		}
		failed = append(failed, fmt.Errorf("from %s: %w", w, err))
		if ctx.Err() != nil {
			break
		}
		s.logger.Warn("a way to the state failed", "from", w.String(), "error", err)
	}
	return nil, errors.Join(failed...)
}

// gather brings what a way needs, and replays it. The caller closes the state.
func (s *session) gather(ctx context.Context, w *way, built *protocol.Rebuilt) (*walreplay.Rebuilt, error) {
	if err := s.checkRoom(w); err != nil {
		return nil, err
	}
	began := time.Now()
	places := map[string]rebuild.Place{}
	for _, o := range w.owners {
		b := protocol.Brought{Owner: o.name, From: protocol.HereName, Bytes: o.bytes, Why: w.why}
		if o.peer != nil {
			start := time.Now()
			var err error
			if b.Bytes, err = s.bring(ctx, o); err != nil {
				return nil, err
			}
			b.From, b.Took = o.at.Address, time.Since(start)
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
	state, err := rebuild.State(ctx, rebuild.Request{
		Source: w.source, Target: s.plan.Target, Places: places,
		Repositories: repositoriesOf(s.repositories), Identities: s.identities,
		ScratchDir: filepath.Join(s.folder, "replay"),
		Replay: walreplay.Options{
			MinLeaseTTL: r.MinLeaseTTL, PersistCheckpoints: r.PersistCheckpoints, SourceVersion: r.SourceVersion,
			Stamps: walreplay.StampsAtEnd, CheckBase: replaying.CheckBase, Logger: s.logger,
		},
	})
	if err != nil {
		return nil, err
	}
	if m := w.repository; m != nil {
		built.Brought = append(built.Brought, rated(protocol.Brought{
			Owner: repositoryOwner(w), From: m.name, Bytes: m.meter.bytes.Load() - before, Took: time.Duration(m.meter.nanoseconds.Load()), Why: w.why,
		}))
	}
	for _, p := range state.Phases {
		built.Phases = append(built.Phases, restore.PhaseTime{Phase: restore.Phase(p.Phase), Duration: p.Took})
	}
	return state, nil
}

func rated(b protocol.Brought) protocol.Brought {
	if b.Took > 0 {
		b.Rate = float64(b.Bytes) / b.Took.Seconds()
	}
	return b
}

// repositoryOwner is the owner of what is read of repositories.
func repositoryOwner(w *way) string {
	if w.source.Base.Backup != "" {
		return w.source.Base.Owner
	}
	for _, p := range w.source.Log {
		if len(p.Owner) > len(archived) && p.Owner[:len(archived)] == archived {
			return p.Owner
		}
	}
	return archived
}

// checkRoom looks before anything is copied: for the copies, the database that is
// replayed, and the one that is built.
func (s *session) checkRoom(w *way) error {
	need := 2*w.base + logRoom
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
	return checkRoom(s.folder, need, "what is copied, replayed and built")
}

// checkCluster refuses a log of another cluster than the plan's.
func (s *session) checkCluster(o *owned) error {
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
