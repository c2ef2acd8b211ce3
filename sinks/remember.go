package sinks

import (
	"bytes"
	"container/list"
	"context"
	"io"
	"sync"
)

// rememberLargest is what one object may take of a memory: documents do, and
// snapshots must not.
const rememberLargest = 64 << 10

// Remember returns s with a memory of small objects that were read whole, of at
// most limit bytes in all, for a caller that reads the same documents now and
// again. Names are written once, so what was read stays true; which objects
// there are is always asked of s. Which names are worth it, match tells. An
// object that was deleted elsewhere may still be read.
func Remember(s Sink, limit int64, match func(name string) bool) Sink {
	return &remembering{Sink: s, limit: limit, match: match, recent: list.New(), known: map[string]*list.Element{}}
}

type remembering struct {
	Sink
	limit int64
	match func(name string) bool

	mu     sync.Mutex
	size   int64
	recent *list.List // of remembered, the newest first
	known  map[string]*list.Element
}

// Unwrap returns the sink without the memory.
func (r *remembering) Unwrap() Sink { return r.Sink }

type remembered struct {
	name string
	data []byte
}

// Open reads from memory what is known.
func (r *remembering) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	// What is asked for as more than a memory takes is the whole object, or too large.
	if whole := length < 0 || length > rememberLargest; offset != 0 || !whole || !r.match(name) {
		return r.Sink.Open(ctx, name, offset, length)
	}
	if data, ok := r.recall(name); ok {
		return io.NopCloser(bytes.NewReader(data)), nil
	}
	body, err := r.Sink.Open(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	return &rememberedReader{ReadCloser: body, from: r, name: name}, nil
}

// Delete forgets.
func (r *remembering) Delete(ctx context.Context, name string) error {
	r.mu.Lock()
	if e := r.known[name]; e != nil {
		r.drop(e)
	}
	r.mu.Unlock()
	return r.Sink.Delete(ctx, name)
}

func (r *remembering) recall(name string) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.known[name]
	if e == nil {
		return nil, false
	}
	r.recent.MoveToFront(e)
	return e.Value.(remembered).data, true
}

func (r *remembering) keep(name string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[name] != nil || int64(len(data)) > r.limit {
		return
	}
	r.known[name] = r.recent.PushFront(remembered{name, data})
	for r.size += int64(len(data)); r.size > r.limit; {
		r.drop(r.recent.Back())
	}
}

func (r *remembering) drop(e *list.Element) {
	gone := r.recent.Remove(e).(remembered)
	delete(r.known, gone.name)
	r.size -= int64(len(gone.data))
}

// rememberedReader keeps what passes, until it is known to be all, or too much.
type rememberedReader struct {
	io.ReadCloser
	from *remembering
	name string
	data []byte
	over bool
}

// Read keeps the object when its end is reached.
func (r *rememberedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.over {
		return n, err
	}
	r.data = append(r.data, p[:n]...)
	switch {
	case len(r.data) > rememberLargest:
		r.over, r.data = true, nil
	case err == io.EOF:
		r.over = true
		r.from.keep(r.name, r.data)
	case err != nil:
		r.over, r.data = true, nil
	}
	return n, err
}
