package engine

import (
	"context"
	"iter"
	"runtime"
	"sync"

	"github.com/requorum/requorum/walreplay/raftlog"
)

const (
	// A batch is handed from goroutine to goroutine as one: when it has so many
	// entries, or bytes.
	batchEntries = 256
	batchBytes   = 1 << 20
	// batchesAhead are read and decoded ahead, for each decoder.
	batchesAhead = 2
	// maxDecoders is more than one applier can be fed by.
	maxDecoders = 4
)

// batch is a piece of the log on its way to the applier.
type batch struct {
	entries []decoded
	err     error         // what ended the log behind them
	ready   chan struct{} // gets something when they are decoded
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
						b.entries[i] = decode(b.entries[i].entry)
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
		b.entries = append(b.entries, decoded{entry: e})
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
		b.entries = b.entries[:0]
		return b
	default:
		return &batch{entries: make([]decoded, 0, batchEntries), ready: make(chan struct{}, 1)}
	}
}
