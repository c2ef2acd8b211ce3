package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/backend"

	"github.com/requorum/requorum/store/safedir"
)

const (
	// mmapSize is etcd's: address space, not memory. Growing a map copies all
	// that a transaction has changed.
	mmapSize = 10 << 30
	// lockTimeout is how long to wait for who still has the file open.
	lockTimeout = time.Second
	// maxPending bounds what a transaction keeps in memory, in bytes of keys and
	// values with what bolt needs beside them.
	maxPending = 2 << 20
	// maxPendingCompaction is the same before a compaction.
	maxPendingCompaction = 256 << 10
	// rowOverhead is about what bolt keeps for a row beside key and value.
	rowOverhead = 100
)

var (
	errNoHash   = errors.New("the replay has no use for hashes and snapshots of its backend")
	errNoDefrag = errors.New("the replay's backend does not defragment")
)

// direct is a backend.Backend over one bolt write transaction. Reads see what
// was written, so there are no read buffers, no read transactions, and no
// commits but those between two entries, which commit asks for.
//
// The applier and a compaction, in a goroutine of etcd's, take turns: whichever lock
// they ask for is the same one.
//
// Nothing here panics: the first error is kept in err, for the applier to look
// at after each entry. Once closed it is an empty database.
type direct struct {
	mu    sync.Mutex // held by whoever uses tx
	db    *bolt.DB
	tx    *bolt.Tx // nil when a commit failed, and once closed
	hooks backend.Hooks

	err     error
	pending int   // bytes since the last commit
	newest  int64 // the highest main revision written to the key bucket
	moves   int   // how often newest moved
	size    atomic.Int64
}

func openDirect(path string, hooks backend.Hooks) (*direct, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout:         lockTimeout,
		FreelistType:    bolt.FreelistMapType,
		NoFreelistSync:  true, // as etcd has it
		InitialMmapSize: mmapSize,
		NoSync:          true,
		NoGrowSync:      true,
	})
	if err != nil {
		return nil, fmt.Errorf("opening the database %s: %w", path, err)
	}
	d := &direct{db: db, hooks: hooks}
	if err := d.begin(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return d, nil
}

func (d *direct) begin() (err error) {
	if d.tx, err = d.db.Begin(true); err != nil {
		return fmt.Errorf("beginning a transaction on %s: %w", d.db.Path(), err)
	}
	d.size.Store(d.tx.Size())
	return nil
}

// commit puts everything into the file.
func (d *direct) commit() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hooks != nil {
		d.hooks.OnPreCommitUnsafe(directTx{d})
	}
	if d.err != nil {
		return d.err
	}
	tx := d.tx
	d.tx, d.pending = nil, 0
	if err := tx.Commit(); err != nil {
		d.err = fmt.Errorf("writing to %s: %w", d.db.Path(), err)
		return d.err
	}
	d.err = d.begin()
	return d.err
}

// rollback takes back what was written since the last commit. Nothing can be
// written afterwards.
func (d *direct) rollback() error {
	if d.tx == nil {
		return nil // it was, or a commit that failed has done so
	}
	tx := d.tx
	d.tx = nil
	if err := tx.Rollback(); err != nil {
		return fmt.Errorf("rolling back %s: %w", d.db.Path(), err)
	}
	return nil
}

// close closes the file, without what was not committed.
func (d *direct) close() error {
	path := d.db.Path()
	err := errors.Join(d.rollback(), extend(path, d.Size()))
	if closeErr := d.db.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("closing %s: %w", path, closeErr))
	}
	return err
}

// extend makes the file as long as its pages: bolt does not write free pages,
// and with NoGrowSync leaves those at the end out. Who copies the database would
// miss them.
func extend(path string, size int64) error {
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

// note keeps the first error.
func (d *direct) note(what string, bucket backend.Bucket, err error) {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("%s bucket %s: %w", what, bucket, err)
	}
}

// ReadTx reads what was written, committed or not.
func (d *direct) ReadTx() backend.ReadTx { return directTx{d} }

// BatchTx is the transaction itself.
func (d *direct) BatchTx() backend.BatchTx { return directTx{d} }

// ConcurrentReadTx is the same: nobody reads concurrently.
func (d *direct) ConcurrentReadTx() backend.ReadTx { return directTx{d} }

// Snapshot is never asked for: members send snapshots, replays do not.
func (d *direct) Snapshot() backend.Snapshot { return noSnapshot{} }

// Hash is never asked for.
func (d *direct) Hash(func(bucket, key []byte) bool) (uint32, error) { return 0, errNoHash }

// Size is the file's, as of the last commit. Metrics ask for it at any time.
func (d *direct) Size() int64 { return d.size.Load() }

// SizeInUse is the same: nobody needs it here.
func (d *direct) SizeInUse() int64 { return d.size.Load() }

// OpenReadTxN is 0: there are none.
func (d *direct) OpenReadTxN() int64 { return 0 }

// Defrag is never asked for.
func (d *direct) Defrag() error { return errNoDefrag }

// ForceCommit does nothing: it is asked for in the middle of entries.
func (d *direct) ForceCommit() {}

// Close does nothing: see close.
func (d *direct) Close() error { return nil }

// SetTxPostLockInsideApplyHook keeps the consistent index up to date inside of
// entries, which only matters to commits inside of entries.
func (d *direct) SetTxPostLockInsideApplyHook(func()) {}

type noSnapshot struct{}

// Size is nothing.
func (noSnapshot) Size() int64 { return 0 }

// WriteTo says that there is nothing.
func (noSnapshot) WriteTo(io.Writer) (int64, error) { return 0, errNoHash }

// Close does nothing.
func (noSnapshot) Close() error { return nil }

// appendFill is how full bolt's pages are made where rows are only appended, as
// etcd has it.
const appendFill = 0.9

var errNoBucket = errors.New("it is not there")

// directTx is all of etcd's kinds of transactions on a direct backend.
type directTx struct{ d *direct }

// Lock waits for who else uses the transaction, as all of the locks do.
func (t directTx) Lock() { t.d.mu.Lock() }

// Unlock is for the next one.
func (t directTx) Unlock() { t.d.mu.Unlock() }

// RLock is Lock.
func (t directTx) RLock() { t.d.mu.Lock() }

// RUnlock is Unlock.
func (t directTx) RUnlock() { t.d.mu.Unlock() }

// LockInsideApply is Lock.
func (t directTx) LockInsideApply() { t.d.mu.Lock() }

// LockOutsideApply is Lock.
func (t directTx) LockOutsideApply() { t.d.mu.Lock() }

// Commit does nothing: it is called in the middle of entries.
func (t directTx) Commit() {}

// CommitAndStop does nothing.
func (t directTx) CommitAndStop() {}

// bucket is nil where there is none, or the database is closed.
func (t directTx) bucket(b backend.Bucket) *bolt.Bucket {
	if t.d.tx == nil {
		return nil
	}
	return t.d.tx.Bucket(b.Name())
}

// UnsafeCreateBucket creates it unless it is there.
func (t directTx) UnsafeCreateBucket(b backend.Bucket) {
	if t.d.tx == nil {
		return
	}
	_, err := t.d.tx.CreateBucketIfNotExists(b.Name())
	t.d.note("creating", b, err)
}

// UnsafeDeleteBucket deletes it with its rows.
func (t directTx) UnsafeDeleteBucket(b backend.Bucket) {
	if t.d.tx == nil {
		return
	}
	if err := t.d.tx.DeleteBucket(b.Name()); !errors.Is(err, bolterrors.ErrBucketNotFound) {
		t.d.note("deleting", b, err)
	}
}

// UnsafePut writes a row. The value is not copied.
func (t directTx) UnsafePut(b backend.Bucket, key, value []byte) {
	t.change(b, len(key)+len(value), func(bucket *bolt.Bucket) error { return bucket.Put(key, value) })
}

// UnsafeSeqPut writes a row behind all others: of the key bucket, whose keys
// begin with the main revision.
func (t directTx) UnsafeSeqPut(b backend.Bucket, key, value []byte) {
	t.change(b, len(key)+len(value), func(bucket *bolt.Bucket) error {
		bucket.FillPercent = appendFill
		return bucket.Put(key, value)
	})
	if len(key) >= 8 {
		if main := int64(binary.BigEndian.Uint64(key)); main != t.d.newest {
			t.d.newest = main
			t.d.moves++
		}
	}
}

// UnsafeDelete deletes a row; it need not be there.
func (t directTx) UnsafeDelete(b backend.Bucket, key []byte) {
	t.change(b, len(key), func(bucket *bolt.Bucket) error { return bucket.Delete(key) })
}

func (t directTx) change(b backend.Bucket, size int, write func(*bolt.Bucket) error) {
	if t.d.tx == nil {
		return
	}
	t.d.pending += size + rowOverhead
	if bucket := t.bucket(b); bucket == nil {
		t.d.note("writing to", b, errNoBucket)
	} else {
		t.d.note("writing to", b, write(bucket))
	}
}

// UnsafeRange reads the row of key, or with an end the rows from key up to end.
// What it gives is valid until the next commit.
func (t directTx) UnsafeRange(b backend.Bucket, key, end []byte, limit int64) (keys, values [][]byte) {
	bucket := t.bucket(b)
	if bucket == nil {
		return nil, nil
	}
	c := bucket.Cursor()
	if len(end) == 0 {
		if k, v := c.Seek(key); bytes.Equal(k, key) {
			return [][]byte{k}, [][]byte{v}
		}
		return nil, nil
	}
	if limit <= 0 {
		limit = math.MaxInt64
	}
	for k, v := c.Seek(key); k != nil && bytes.Compare(k, end) < 0; k, v = c.Next() {
		keys, values = append(keys, k), append(values, v)
		if int64(len(keys)) == limit {
			break
		}
	}
	return keys, values
}

// UnsafeForEach visits all rows.
func (t directTx) UnsafeForEach(b backend.Bucket, visit func(k, v []byte) error) error {
	bucket := t.bucket(b)
	if bucket == nil {
		return nil
	}
	return bucket.ForEach(visit)
}
