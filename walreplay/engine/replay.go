package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"
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

	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Engine applies committed entries of the raft log to a database, as the member
// that the log is from did: it has those parts of a member that apply entries. It
// is for one goroutine.
type Engine struct {
	logger  *zap.Logger
	path    string
	backend backend.Backend
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

	applied, term       uint64 // of the entry applied last
	revision, compacted int64  // after it
	failed              error  // why nothing more can be applied
	stuck               bool   // etcd's parts gave up, maybe with locks held that nobody frees
	closed              bool

	closing    atomic.Bool // a backend is being closed, in a goroutine of etcd's
	brokenOnce sync.Once
	broken     chan struct{} // closed when a goroutine of etcd's gave up
	lastWords  error         // and why; to be read once broken is closed
}

// Applied is the index and the term of the entry that was applied last.
func (r *Engine) Applied() (index, term uint64) { return r.applied, r.term }

// Revision is the newest one.
func (r *Engine) Revision() int64 { return r.revision }

// CompactedRevision is that of the last compaction; 0: there was none.
func (r *Engine) CompactedRevision() int64 { return r.compacted }

// commit puts what was applied into the file.
func (r *Engine) commit() (err error) {
	defer r.rescue(&err)
	r.backend.ForceCommit()
	return nil
}

// PastError says that an Engine has applied an entry that goes past the revision which a
// run was to end with. Its file cannot be taken back to before that.
type PastError struct{ Index uint64 }

func (e *PastError) Error() string {
	return fmt.Sprintf("entry %d goes past the revision to end with: begin again, and end before it", e.Index)
}

// Rollback is a *PastError: etcd's backend takes nothing back.
func (r *Engine) Rollback() error { return &PastError{r.applied} }

// Close keeps what was applied, and closes the file. After a failed Apply nobody knows what
// the file holds.
func (r *Engine) Close() error {
	if r.closed {
		return ErrClosed
	}
	var err error
	if r.failed == nil {
		err = r.commit()
	}
	return errors.Join(err, r.abandon())
}

// abandon ends all goroutines and closes the file. Parts may be missing. The file of an
// engine that is stuck stays open until the process ends, but does not keep its space.
func (r *Engine) abandon() (err error) {
	defer r.rescue(&err)
	r.closed = true
	if r.failed == nil {
		r.failed = ErrClosed
	}
	if r.kv != nil {
		err = r.kv.Close()
	}
	if r.lessor != nil {
		r.lessor.Stop()
	}
	if r.auth != nil {
		err = errors.Join(err, r.auth.Close())
	}
	switch {
	case r.backend == nil:
		return err
	case r.stuck:
		return errors.Join(err, truncate(r.path))
	}
	err = errors.Join(err, r.closeBackend(r.backend), extend(r.path))
	if r.kv != nil {
		err = errors.Join(err, r.freeIndex())
	}
	return err
}

// closeBackend closes a backend of etcd's, which commits once more, in a goroutine of its own.
func (r *Engine) closeBackend(b backend.Backend) error {
	r.closing.Store(true)
	defer r.closing.Store(false)
	err := b.Close()
	select {
	case <-r.broken:
		err = errors.Join(err, r.lastWords)
	default:
	}
	return err
}

func truncate(path string) error {
	f, err := safedir.OpenWritable(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(0), f.Close())
}

// extend makes the file as long as its pages: bolt does not write free pages, and with
// NoGrowSync leaves those at the end out. Who copies the database would miss them.
func extend(path string) (err error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if err != nil {
		return err
	}
	var size int64
	err = db.View(func(tx *bolt.Tx) error {
		size = tx.Size()
		return nil
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	f, err := safedir.OpenWritable(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() < size {
		err = f.Truncate(size)
	}
	return errors.Join(err, f.Close())
}

// freeIndex frees the index of the keys: etcd's metrics hold on to the newest store for as
// long as the process lives, so an empty one takes its place; and its logger, to the engine.
func (r *Engine) freeIndex() (err error) {
	r.kv, r.lessor, r.applier = nil, nil, nil
	path := r.path + ".empty"
	defer func() { err = errors.Join(err, safedir.Remove(path)) }()
	b := openBackend(path, r.logger, nil)
	err = mvcc.NewStore(r.logger, b, &lease.FakeLessor{}, mvcc.StoreConfig{}).Close()
	return errors.Join(err, r.closeBackend(b))
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
		r.stuck = true
		return r.lastWords
	}
}

// rescue turns a panic of etcd's into an error.
func (r *Engine) rescue(err *error) {
	p := recover()
	if p == nil {
		return
	}
	r.stuck = true
	if e, ok := p.(error); ok {
		*err = e
	} else {
		*err = fmt.Errorf("etcd's applier gave up: %v", p)
	}
}

// Apply applies the entry after the one applied last; any other is an
// *OrderError, and changes nothing. What cannot be applied is an *EntryError, after which
// the engine can only be closed.
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
	err := d.err
	if err == nil {
		err = r.execute(d)
	}
	if err != nil {
		r.failed = &EntryError{Index: d.entry.Index, Kind: d.kind, Err: err}
		return r.failed
	}
	r.applied, r.term = d.entry.Index, d.entry.Term
	return nil
}

// execute does what the entry asks for. That the request was refused, as it was
// on the member, is no error.
func (r *Engine) execute(d *decoded) (err error) {
	defer r.rescue(&err)
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
	r.lookAtRevisions()
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
