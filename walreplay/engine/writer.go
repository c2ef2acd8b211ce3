package engine

import (
	"fmt"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/backend"
)

const (
	// Rows are handed to the writer when there are so many, or so many bytes.
	queueRows  = 256
	queueBytes = 256 << 10
	// handedAhead is how often that is before the applier waits for the writer:
	// about as long as a commit takes.
	handedAhead = 16
)

// row is one to be put or deleted.
type row struct {
	bucket     backend.Bucket
	key, value []byte
	what       effect
}

// effect is what happens to a row.
type effect int

const (
	putRow    effect = iota
	appendRow        // it comes behind all others of the bucket
	deleteRow        // it need not be there
)

// work is what the writer does next: change rows, commit, and tell that it has.
type work struct {
	rows   []row
	commit bool
	done   chan<- error
}

// writer changes rows in a bolt transaction and commits it, in a goroutine of its
// own, while the applier goes on. It alone uses the transaction from start until
// it has done what it was given; wait says when that is. All but run belongs to
// the applier's goroutine.
type writer struct {
	db    *bolt.DB
	tx    *bolt.Tx // nil when it failed, or has ended
	size  func(int64)
	queue []row
	bytes int // in queue

	handed  chan work
	used    chan []row // to be filled again
	done    chan error
	ended   chan struct{}
	busy    bool // something was handed that was not waited for
	stopped bool
	err     error // why nothing more is written
}

func newWriter(db *bolt.DB, size func(int64)) (*writer, error) {
	w := &writer{
		db: db, size: size, handed: make(chan work, handedAhead), used: make(chan []row, handedAhead),
		done: make(chan error, 1), ended: make(chan struct{}),
	}
	if err := w.begin(); err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

func (w *writer) begin() error {
	tx, err := w.db.Begin(true)
	if err != nil {
		return fmt.Errorf("beginning a transaction on %s: %w", w.db.Path(), err)
	}
	w.tx = tx
	w.size(tx.Size())
	return nil
}

// change changes a row, some time before what comes after it. It takes the key
// and the value for its own.
func (w *writer) change(r row) {
	w.queue = append(w.queue, r)
	if w.bytes += len(r.key) + len(r.value); len(w.queue) >= queueRows || w.bytes >= queueBytes {
		w.hand(work{})
	}
}

// commit begins to put everything into the file. wait says how it went.
func (w *writer) commit() { w.hand(work{commit: true}) }

func (w *writer) hand(k work) {
	k.rows = w.queue
	w.handed <- k
	w.busy, w.bytes = true, 0
	select {
	case w.queue = <-w.used:
	default:
		w.queue = make([]row, 0, queueRows)
	}
}

// wait comes back when all that was handed is done, and gives the error that
// ended it. What is still queued is not.
func (w *writer) wait() error {
	if w.busy {
		w.handed <- work{done: w.done}
		w.err = <-w.done
		w.busy = false
	}
	return w.err
}

// settle changes all rows. The transaction is the caller's then, until the next
// change.
func (w *writer) settle() error {
	if err := w.wait(); err != nil {
		return err
	}
	if len(w.queue) > 0 {
		w.err = w.write(w.queue)
		w.queue, w.bytes = reuse(w.queue), 0
	}
	return w.err
}

// stop ends the goroutine, and drops what is queued.
func (w *writer) stop() {
	if w.stopped {
		return
	}
	_ = w.wait() // who asked for a commit has waited, or is not interested
	close(w.handed)
	<-w.ended
	w.queue, w.handed, w.used, w.stopped = nil, nil, nil, true // etcd's metrics hold on to it
}

// run is the goroutine.
func (w *writer) run() {
	defer close(w.ended)
	var failed error
	for k := range w.handed {
		if failed == nil {
			failed = w.do(k)
		}
		if k.done != nil {
			k.done <- failed
		}
		if k.rows != nil {
			select {
			case w.used <- reuse(k.rows):
			default:
			}
		}
	}
}

// reuse empties rows, so that they hold on to nothing.
func reuse(rows []row) []row {
	clear(rows)
	return rows[:0]
}

func (w *writer) do(k work) (err error) {
	defer rescue(&err)
	if err := w.write(k.rows); err != nil || !k.commit {
		return err
	}
	tx := w.tx
	w.tx = nil
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("writing to %s: %w", w.db.Path(), err)
	}
	return w.begin()
}

func (w *writer) write(rows []row) error {
	var bucket *bolt.Bucket
	for i, r := range rows {
		if i == 0 || r.bucket.ID() != rows[i-1].bucket.ID() {
			if bucket = w.tx.Bucket(r.bucket.Name()); bucket == nil {
				return fmt.Errorf("writing to bucket %s: %w", r.bucket, errNoBucket)
			}
		}
		if err := r.write(bucket); err != nil {
			return fmt.Errorf("writing to bucket %s: %w", r.bucket, err)
		}
	}
	return nil
}

func (r row) write(bucket *bolt.Bucket) error {
	switch r.what {
	case deleteRow:
		return bucket.Delete(r.key)
	case appendRow:
		bucket.FillPercent = appendFill
	default:
	}
	return bucket.Put(r.key, r.value)
}
