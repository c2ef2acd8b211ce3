package engine

import (
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/types"
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

	"github.com/requorum/requorum/walreplay/raftlog"
)

// errEtcdStuck is why etcd's own backend is for tests only.
var errEtcdStuck = errors.New("etcd's own backend cannot be closed after its applier gave up: the file stays open until the process ends")

// Engine applies committed entries of the raft log to a database, as the member
// that the log is from did: it has those parts of a member that apply entries. It
// is for one goroutine.
type Engine struct {
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

	position           // after the entry applied last
	committed position // in the file
	failed    error    // why nothing more can be applied
	stuck     bool     // etcd's parts may hold locks that nobody frees
	closed    bool

	brokenOnce sync.Once
	broken     chan struct{} // closed when a goroutine of etcd's gave up
	lastWords  error         // and why; to be read once broken is closed
}

// position is what an engine reports of itself.
type position struct {
	applied, term       uint64
	revision, compacted int64
}

// Applied is the index and the term of the entry that was applied last.
func (r *Engine) Applied() (index, term uint64) { return r.applied, r.term }

// Revision is the newest one; what the file holds after Rollback.
func (r *Engine) Revision() int64 { return r.revision }

// CompactedRevision is that of the last compaction; 0: there was none.
func (r *Engine) CompactedRevision() int64 { return r.compacted }

// Commit puts what was applied so far into the file. The engine commits by itself
// too, to bound its memory, always between two entries.
func (r *Engine) Commit() error {
	if r.failed != nil {
		return r.failed
	}
	return r.orFail(r.commit())
}

func (r *Engine) orFail(err error) error {
	if err != nil {
		r.stuck = true
		return r.fail(err)
	}
	return nil
}

func (r *Engine) commit() (err error) {
	defer rescue(&err)
	if r.direct == nil {
		r.backend.ForceCommit()
	} else if err := r.direct.commit(); err != nil {
		return err
	}
	r.committed = r.position
	return nil
}

// Rollback takes back what was applied since the last commit, whether asked for
// or not: right after Commit and one Apply, exactly that entry. Applied and the
// revisions then say what the file holds. The engine can only be closed afterwards.
func (r *Engine) Rollback() error {
	if r.direct == nil {
		return errors.New("etcd's own backend cannot be rolled back")
	}
	if r.closed {
		return ErrClosed
	}
	r.position = r.committed
	if r.failed == nil {
		r.failed = ErrClosed
	}
	return r.direct.rollback()
}

// fail ends the replay: what etcd's parts hold in memory is no longer what the
// file holds.
func (r *Engine) fail(err error) error {
	r.failed = err
	r.position = r.committed
	return err
}

// Close keeps what was applied (after Rollback or a failed Apply: what the last
// commit left) and closes the file.
func (r *Engine) Close() error {
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
func (r *Engine) abandon() (err error) {
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
func (r *Engine) gaveUp(err error) {
	r.brokenOnce.Do(func() {
		r.lastWords = err
		close(r.broken)
	})
}

// wait waits for a compaction. nil is done.
func (r *Engine) wait(done <-chan struct{}) error {
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

// Apply applies the entry after the one applied last; any other is an
// *OrderError, and changes nothing. What cannot be applied is an *EntryError: the
// file then stays as the last commit left it, and the engine can only be closed.
func (r *Engine) Apply(e raftlog.Entry) error {
	return r.apply(decode(e))
}

func (r *Engine) apply(d *decoded) error {
	if r.failed != nil {
		return r.failed
	}
	if d.entry.Index != r.applied+1 {
		return &OrderError{Applied: r.applied, Index: d.entry.Index}
	}
	// Not after the entry: it must be one that Rollback can take back.
	if r.direct != nil && r.direct.pending > pendingLimit(d) {
		if err := r.orFail(r.commit()); err != nil {
			return err
		}
	}
	err := d.err
	if err == nil {
		err = r.execute(d)
		r.stuck = err != nil
	}
	if err != nil {
		return r.fail(&EntryError{Index: d.entry.Index, Kind: d.kind, Err: err})
	}
	r.applied, r.term = d.entry.Index, d.entry.Term
	return nil
}

// pendingLimit is how much may be pending before an entry. A compaction deletes
// rows one by one, and rows that were never committed are all in one page, out
// of which each deletion moves all that are behind it.
func pendingLimit(d *decoded) int {
	if d.request != nil && d.request.Compaction != nil {
		return maxPendingCompaction
	}
	return maxPending
}

// execute does what the entry asks for. That the request was refused, as it was
// on the member, is no error.
func (r *Engine) execute(d *decoded) (err error) {
	defer func() {
		if r.direct != nil && r.direct.err != nil {
			err = errors.Join(r.direct.err, err)
		}
	}()
	defer rescue(&err)
	r.index.SetConsistentApplyingIndex(d.entry.Index, d.entry.Term)
	switch {
	case d.change != nil:
		err = r.changeMembers(d.change)
	case d.operation.kind != noOperation || d.request != nil:
		err = r.request(d)
	}
	if err != nil {
		return err
	}
	r.index.SetConsistentIndex(d.entry.Index, d.entry.Term)
	return r.follow(d)
}

// follow learns the revision that the entry led to.
func (r *Engine) follow(d *decoded) error {
	before := r.revision
	switch {
	case r.direct == nil:
		r.lookAtRevisions()
	case r.direct.moves > 1:
		return fmt.Errorf("it wrote %d revisions, up to %d: more than one", r.direct.moves, r.direct.newest)
	case r.direct.moves == 1:
		r.revision = r.direct.newest
		r.direct.moves = 0
	}
	if moved := r.revision - before; moved != 0 && (moved != 1 || !d.moves()) {
		return fmt.Errorf("it led from revision %d to %d", before, r.revision)
	}
	return nil
}

// lookAtRevisions asks etcd's store.
func (r *Engine) lookAtRevisions() {
	tx := r.kv.Read(mvcc.SharedBufReadTxMode, traceutil.TODO())
	defer tx.End()
	r.revision, r.compacted = tx.Rev(), max(0, tx.FirstRev())
	if r.direct != nil {
		r.direct.newest, r.direct.moves = r.revision, 0
	}
}

// advanceIndex is called by etcd's backend when an entry begins to write, which
// may commit before the entry ends.
func (r *Engine) advanceIndex() {
	index, term := r.index.ConsistentApplyingIndex()
	if index > r.index.UnsafeConsistentIndex() {
		r.index.SetConsistentIndex(index, term)
	}
}

// status is what etcd's applier asks a member for, to fill in answers that
// nobody reads here.
type status struct{ r *Engine }

// MemberID is nobody's.
func (s status) MemberID() types.ID { return 0 }

// Leader is nobody.
func (s status) Leader() types.ID { return 0 }

// CommittedIndex is that of the entry applied last.
func (s status) CommittedIndex() uint64 { return s.r.applied }

// AppliedIndex is the same.
func (s status) AppliedIndex() uint64 { return s.r.applied }

// Term is that of the same entry.
func (s status) Term() uint64 { return s.r.term }

// ForceSnapshot is asked for by a downgrade; there is no raft log to shorten.
func (s status) ForceSnapshot() {}
