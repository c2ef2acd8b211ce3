package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// RunOptions say where a run ends. With neither Last nor MaxRevision it goes to
// the end of the entries.
type RunOptions struct {
	// Last is the index of the entry to end with.
	Last uint64
	// MaxRevision is the revision to end with: the run ends before the entry that
	// goes past it, so that the database is at the last index of that revision.
	MaxRevision int64
	// Watch is called with each change of a key, in their order; nil where nobody
	// looks. Its error ends the run.
	Watch func(Change) error
	// Progress is called now and then with the index applied last.
	Progress func(index uint64)
}

// Stopped is where a run ended: what the engine holds then.
type Stopped struct {
	Index, Term uint64
	Revision    int64
}

// gcSlack is memory that nobody touches. The collector starts when the heap has
// doubled; a replay leaves much garbage beside a small heap, and would be
// collected a hundred times a second. GOGC would be for the whole process.
const gcSlack = 32 << 20

// progressEvery is after how many entries Progress is called.
const progressEvery = 100

// Replayer is an Engine or a Bulk.
type Replayer interface {
	// Apply applies the entry after the one applied last.
	Apply(e raftlog.Entry) error
	// Applied is the index and the term of the entry that was applied last.
	Applied() (index, term uint64)
	// Revision is the newest one.
	Revision() int64
	// Has reports whether there is a key with a value, in a range.
	Has(ctx context.Context, key, end []byte) (bool, error)
	// Rollback takes back the entry that was applied last, and ends the replay; of an
	// Engine it is a *PastError.
	Rollback() error
	// Close keeps what was applied, and frees all else.
	Close() error

	apply(d *decoded) error
	watch(index uint64, see func(Change) error) error
}

// Run applies entries, which begin after the one applied last, until where the
// options say. Their data need not stay as it is when the next one is asked for. They are
// decoded ahead in other goroutines; a bounded number of them is in memory.
//
// What it applied may not be committed when it returns; Close does that. When
// MaxRevision ended it, a Bulk was rolled back to there, and can only be closed; an
// Engine cannot be, which is a *PastError. A database that is past Last or MaxRevision
// already is an error.
//
// When an entry cannot be had or applied, Stopped is after the last one that was.
func Run(ctx context.Context, eng Replayer, entries iter.Seq2[raftlog.Entry, error], o RunOptions) (Stopped, error) {
	run := &run{engine: eng, o: o}
	applied, _ := eng.Applied()
	var err error
	switch revision := eng.Revision(); {
	case o.Last != 0 && applied > o.Last:
		err = fmt.Errorf("the database is at index %d, past %d: begin with an older one", applied, o.Last)
	case o.MaxRevision != 0 && revision > o.MaxRevision:
		err = fmt.Errorf("the database is at revision %d, past %d: begin with an older one", revision, o.MaxRevision)
	case o.Last == 0 || applied < o.Last:
		err = run.all(ctx, entries)
	}
	stopped := Stopped{Revision: eng.Revision()}
	stopped.Index, stopped.Term = eng.Applied()
	return stopped, err
}

type run struct {
	engine  Replayer
	o       RunOptions
	counted int
}

func (r *run) all(ctx context.Context, entries iter.Seq2[raftlog.Entry, error]) error {
	slack := make([]byte, gcSlack)
	defer runtime.KeepAlive(slack)
	for d, err := range decodeAhead(ctx, entries) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if done, err := r.next(d); err != nil || done {
			return err
		}
	}
	return nil
}

// next applies one entry. done says that the run ends with it or before it.
func (r *run) next(d *decoded) (done bool, err error) {
	before := r.engine.Revision()
	if err := r.engine.apply(d); err != nil {
		return false, err
	}
	if after := r.engine.Revision(); after != before {
		if r.o.MaxRevision != 0 && after > r.o.MaxRevision {
			return true, r.engine.Rollback()
		}
		if r.o.Watch != nil {
			if err := r.engine.watch(d.entry.Index, r.o.Watch); err != nil {
				return false, err
			}
		}
	}
	if r.counted++; r.o.Progress != nil && r.counted%progressEvery == 0 {
		r.o.Progress(d.entry.Index)
	}
	return d.entry.Index == r.o.Last, nil
}

const (
	// A batch is handed from goroutine to goroutine as one: when it has so many
	// entries, or bytes.
	batchEntries = 256
	batchBytes   = 1 << 20
	// firstData is about what a batch of small entries needs.
	firstData = 128 << 10
	// batchesAhead are read and decoded ahead, for each decoder.
	batchesAhead = 2
	// maxDecoders is more than one applier can be fed by.
	maxDecoders = 4
)

// batch is a piece of the log on its way to the applier.
type batch struct {
	entries []decoded
	data    []byte        // theirs
	err     error         // what ended the log behind them
	ready   chan struct{} // gets something when they are decoded
}

// add takes an entry, and copies its data.
func (b *batch) add(e raftlog.Entry) {
	if n := len(e.Data); n > 0 {
		if n > cap(b.data)-len(b.data) { // what has the data so far stays with its entries
			b.data = make([]byte, 0, max(2*cap(b.data), firstData, n))
		}
		at := len(b.data)
		b.data = append(b.data, e.Data...)
		e.Data = b.data[at : at+n : at+n]
	}
	b.entries = b.entries[:len(b.entries)+1]
	b.entries[len(b.entries)-1].entry = e // the rest is as it was left, for decode
}

// decodeAhead gives the entries in their order, decoded. A goroutine reads,
// several decode; all have ended when the loop over it has. What is given is
// valid until the next one.
func decodeAhead(ctx context.Context, entries iter.Seq2[raftlog.Entry, error]) iter.Seq2[*decoded, error] {
	return func(yield func(*decoded, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		decoders := min(maxDecoders, max(1, runtime.GOMAXPROCS(0)-1))
		todo := make(chan *batch, decoders*batchesAhead)
		inOrder := make(chan *batch, decoders*batchesAhead)
		used := make(chan *batch, cap(inOrder)) // to be filled again
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() {
			defer close(inOrder)
			defer close(todo)
			readBatches(ctx, entries, used, todo, inOrder)
		})
		for range decoders {
			all.Go(func() {
				for b := range todo {
					for i := range b.entries {
						b.entries[i].decode()
					}
					b.ready <- struct{}{}
				}
			})
		}
		for b := range inOrder {
			<-b.ready
			for i := range b.entries {
				if !yield(&b.entries[i], nil) {
					return
				}
			}
			if b.err != nil {
				yield(nil, b.err)
				return
			}
			select {
			case used <- b:
			default:
			}
		}
		if err := ctx.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// readBatches sends each batch both to who decodes it and to who applies it.
func readBatches(ctx context.Context, entries iter.Seq2[raftlog.Entry, error], used <-chan *batch, todo, inOrder chan<- *batch) {
	b, size := newBatch(used), 0
	send := func() bool {
		for _, to := range [2]chan<- *batch{todo, inOrder} {
			select {
			case to <- b:
			case <-ctx.Done():
				return false
			}
		}
		b, size = newBatch(used), 0
		return true
	}
	for e, err := range entries {
		if err != nil {
			b.err = err
			break
		}
		b.add(e)
		if size += len(e.Data); len(b.entries) < batchEntries && size < batchBytes {
			continue
		}
		if !send() {
			return
		}
	}
	send()
}

func newBatch(used <-chan *batch) *batch {
	select {
	case b := <-used:
		if b.entries, b.data = b.entries[:0], b.data[:0]; cap(b.data) > 2*batchBytes {
			b.data = nil
		}
		return b
	default:
		return &batch{entries: make([]decoded, 0, batchEntries), ready: make(chan struct{}, 1)}
	}
}

// Change is what an entry did to one key. It is valid until Watch returns.
type Change struct {
	Index    uint64 // the entry
	Revision int64  // that it led to
	Key      []byte
	Deleted  bool

	row    []byte
	replay *Engine
}

// Value is what was put; nil where the key was deleted.
func (c Change) Value() ([]byte, error) {
	if c.Deleted {
		return nil, nil
	}
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(c.row, &kv); err != nil {
		return nil, fmt.Errorf("reading the row of revision %d: %w", c.Revision, err)
	}
	return kv.Value, nil
}

// Before is a key, this one or another, as it was just before the change: nil where
// it was not there. Without its value nothing but the index is read.
func (c Change) Before(key []byte, withValue bool) (*mvccpb.KeyValue, error) {
	// A compaction cannot be of a later revision than the one before: that one can
	// be read.
	tx := c.replay.kv.Read(mvcc.SharedBufReadTxMode, traceutil.TODO())
	defer tx.End()
	r, err := tx.Range(context.Background(), key, nil, mvcc.RangeOptions{Rev: c.Revision - 1, FastKeysOnly: !withValue})
	if err != nil {
		return nil, fmt.Errorf("reading a key before revision %d: %w", c.Revision, err)
	}
	if len(r.KVs) == 0 {
		return nil, nil
	}
	return r.KVs[0], nil
}

// watch reports what the newest revision put or deleted. It looks at what was
// written, so keys count that went with their lease or in a range, and requests
// that were refused do not.
func (r *Engine) watch(index uint64, see func(Change) error) (err error) {
	defer r.rescue(&err)
	from := mvcc.RevToBytes(mvcc.Revision{Main: r.revision}, mvcc.NewRevBytes())
	to := mvcc.RevToBytes(mvcc.Revision{Main: r.revision + 1}, mvcc.NewRevBytes())
	tx := r.backend.ReadTx()
	tx.RLock()
	names, rows := tx.UnsafeRange(schema.Key, from, to, 0)
	for i := range rows { // valid until the next commit
		names[i], rows[i] = bytes.Clone(names[i]), bytes.Clone(rows[i])
	}
	tx.RUnlock()
	for i, row := range rows {
		name, err := boltfile.ParseRow(names[i])
		if err != nil {
			return fmt.Errorf("reading what revision %d changed: %w", r.revision, err)
		}
		key, err := keyOf(row)
		if err != nil {
			return fmt.Errorf("reading what revision %d changed: %w", r.revision, err)
		}
		if err := see(Change{Index: index, Revision: r.revision, Key: key, Deleted: name.Deleted, row: row, replay: r}); err != nil {
			return err
		}
	}
	return nil
}

var errNoKey = errors.New("a row without a key")

// keyOf is the key of a row of the key bucket: field 1, which comes first.
func keyOf(row []byte) ([]byte, error) {
	field, kind, n := protowire.ConsumeTag(row)
	if n < 0 || field != 1 || kind != protowire.BytesType {
		return nil, errNoKey
	}
	key, n := protowire.ConsumeBytes(row[n:])
	if n < 0 {
		return nil, errNoKey
	}
	return key, nil
}
