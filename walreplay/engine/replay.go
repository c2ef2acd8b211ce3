package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3alarm"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/etcdserver/cindex"
	"go.etcd.io/etcd/server/v3/lease"
	serverstorage "go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/raft/v3/tracker"
	"go.uber.org/zap"
)

// errEtcdStuck is why BackendEtcd is for tests only.
var errEtcdStuck = errors.New("etcd's own backend cannot be closed after its applier gave up: the file stays open until the process ends")

// replay is the Engine: those parts of a member that apply entries.
type replay struct {
	logger  *zap.Logger
	backend backend.Backend
	direct  *direct // the same, or nil with etcd's own
	hooks   *serverstorage.BackendHooks
	index   cindex.ConsistentIndexer
	cluster *membership.RaftCluster
	voters  tracker.ProgressTracker // raft's view of the members
	lessor  lease.Lessor
	kv      mvcc.KV
	auth    auth.AuthStore
	alarms  *v3alarm.AlarmStore
	applier apply.UberApplier
	rules   rules

	position             // after the entry applied last
	committed  position  // in the file
	committing *position // what the commit that was begun leads to; nil: there is none
	alarmed    bool      // an alarm is raised
	failed     error     // why nothing more can be applied
	stuck      bool      // etcd's parts may hold locks that nobody frees
	closed     bool

	quiet, trace traceutil.Trace // see quietTrace
	traced       context.Context // has trace

	brokenOnce sync.Once
	broken     chan struct{} // closed when a goroutine of etcd's gave up
	lastWords  error         // and why; to be read once broken is closed
}

// position is what an Engine tells of itself.
type position struct {
	applied, term       uint64
	revision, compacted int64
}

// Applied is the index and the term of the entry applied last.
func (r *replay) Applied() (index, term uint64) { return r.applied, r.term }

// Revision is the newest one.
func (r *replay) Revision() int64 { return r.revision }

// CompactedRevision is that of the last compaction.
func (r *replay) CompactedRevision() int64 { return r.compacted }

// Commit puts what was applied into the file.
func (r *replay) Commit() error {
	if r.failed != nil {
		return r.failed
	}
	return r.orFail(r.commit())
}

func (r *replay) orFail(err error) error {
	if err != nil {
		r.stuck = true
		return r.fail(err)
	}
	return nil
}

func (r *replay) commit() error {
	if err := r.beginCommit(); err != nil {
		return err
	}
	return r.endCommit()
}

// beginCommit does not wait until it is done, but for the one before.
func (r *replay) beginCommit() (err error) {
	defer rescue(&err)
	if r.direct == nil {
		r.backend.ForceCommit()
		r.committed = r.position
		return nil
	}
	if err := errors.Join(r.endCommit(), r.direct.commit()); err != nil {
		return err
	}
	begun := r.position
	r.committing = &begun
	return nil
}

// endCommit waits for the commit that was begun, if any.
func (r *replay) endCommit() error {
	if r.committing == nil {
		return nil
	}
	leadsTo := *r.committing
	r.committing = nil
	err := r.direct.await()
	if err == nil {
		r.committed = leadsTo
	}
	return err
}

// Rollback takes back what was applied since the last commit.
func (r *replay) Rollback() error {
	if r.direct == nil {
		return fmt.Errorf("backend %q cannot be rolled back: use %q", BackendEtcd, BackendDirect)
	}
	if r.closed {
		return ErrClosed
	}
	err := r.endCommit()
	r.position = r.committed
	if r.failed == nil {
		r.failed = ErrClosed
	}
	return errors.Join(err, r.direct.rollback())
}

// fail ends the replay: what etcd's parts hold in memory is no longer what the
// file holds.
func (r *replay) fail(err error) error {
	if ended := r.endCommit(); ended != nil && !errors.Is(err, ended) {
		err = errors.Join(err, ended)
	}
	r.failed = err
	r.position = r.committed
	return err
}

// Close keeps what was applied, syncs and closes the file.
func (r *replay) Close() error {
	if r.closed {
		return ErrClosed
	}
	var err error
	if r.failed == nil {
		err = r.Commit()
	}
	return errors.Join(err, r.abandon())
}

// abandon ends all goroutines and closes the file without another commit. Parts
// may be missing.
func (r *replay) abandon() (err error) {
	defer rescue(&err)
	r.closed = true
	intact := !r.stuck && r.applier != nil
	if r.failed == nil {
		r.failed = ErrClosed
	}
	if r.direct != nil {
		err = r.direct.close()
	}
	if r.kv != nil {
		if intact && r.direct != nil {
			// etcd's metrics hold on to the store for as long as the process lives:
			// let it load the closed, empty database, so that its index is freed.
			r.lessor.Recover(r.backend, nil)
			err = errors.Join(err, r.kv.Restore(r.backend))
		}
		err = errors.Join(err, r.kv.Close())
	}
	if r.lessor != nil {
		r.lessor.Stop()
	}
	if r.auth != nil {
		err = errors.Join(err, r.auth.Close())
	}
	switch {
	case r.direct != nil || r.backend == nil:
	case r.stuck:
		err = errors.Join(err, errEtcdStuck)
	default:
		err = errors.Join(err, r.backend.Close())
	}
	return err
}

// gaveUp is called from a goroutine of etcd's that ends.
func (r *replay) gaveUp(err error) {
	r.brokenOnce.Do(func() {
		r.lastWords = err
		close(r.broken)
	})
}

// wait waits for a compaction. nil is done.
func (r *replay) wait(done <-chan struct{}) error {
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-r.broken:
		return r.lastWords
	}
}

// rescue turns a panic into an error.
func rescue(err *error) {
	switch p := recover().(type) {
	case nil:
	case error:
		*err = p
	default:
		*err = fmt.Errorf("etcd's applier gave up: %v", p)
	}
}
