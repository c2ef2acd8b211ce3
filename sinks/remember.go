package sinks

import (
	"bytes"
	"container/list"
	"context"
	"io"
	"os"
	"sync"
)

// rememberLargest is what one object may take of a memory: documents do, and
// snapshots must not.
const rememberLargest = 64 << 10

// Remember returns s with a memory of small objects that were read whole, of at
// most limit bytes in all, for a caller that reads the same documents now and
// again. Names are written once, so what was read stays true; which objects
// there are is always asked of s. Which names are worth it, match says. An
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
	return &wholeReader{ReadCloser: body, most: rememberLargest, keep: func(data []byte) { r.keep(name, data) }}, nil
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

// wholeReader keeps what passes, until it is known to be all, or too much.
type wholeReader struct {
	io.ReadCloser
	most int
	keep func(data []byte)
	data []byte
	over bool
}

// Read keeps the object when its end is reached.
func (r *wholeReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.over {
		return n, err
	}
	r.data = append(r.data, p[:n]...)
	switch {
	case len(r.data) > r.most:
		r.over, r.data = true, nil
	case err == io.EOF:
		r.over = true
		r.keep(r.data)
	case err != nil:
		r.over, r.data = true, nil
	}
	return n, err
}

// keepLargest is what one object may have that is kept in a file: it is in memory until
// it was read.
const keepLargest = 4 << 20

// KeepIn returns s with the objects that were read whole kept in a file, as they are
// stored, for a caller that reads the same ones twice: their names are written once, so
// what was read stays true. What is larger than 4 MiB, or does not fit on the disk, is
// read of s again. The caller closes the file, after the sink was used.
func KeepIn(s Sink, f *os.File) Sink { return &keeping{Sink: s, file: f, kept: map[string]part{}} }

type keeping struct {
	Sink
	file *os.File

	mu   sync.Mutex
	end  int64
	kept map[string]part // of the file
}

type part struct{ offset, size int64 }

// Unwrap returns the sink without the file.
func (k *keeping) Unwrap() Sink { return k.Sink }

// Open reads from the file what is there.
func (k *keeping) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if offset != 0 || length >= 0 {
		return k.Sink.Open(ctx, name, offset, length)
	}
	k.mu.Lock()
	p, ok := k.kept[name]
	k.mu.Unlock()
	if ok {
		return io.NopCloser(io.NewSectionReader(k.file, p.offset, p.size)), nil
	}
	body, err := k.Sink.Open(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	return &wholeReader{ReadCloser: body, most: keepLargest, keep: func(data []byte) { k.keep(name, data) }}, nil
}

// Delete forgets.
func (k *keeping) Delete(ctx context.Context, name string) error {
	k.mu.Lock()
	delete(k.kept, name)
	k.mu.Unlock()
	return k.Sink.Delete(ctx, name)
}

func (k *keeping) keep(name string, data []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := k.file.WriteAt(data, k.end); err != nil {
		return // it is read again, no more
	}
	k.kept[name] = part{k.end, int64(len(data))}
	k.end += int64(len(data))
}
