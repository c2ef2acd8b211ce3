// Package sinktest holds what tests of sinks share: the conformance suite that
// every sink passes, a sink that injects faults, one that lives in memory, and
// real S3 servers.
package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
)

// Memory is the simplest sink that keeps the contract: what others are
// compared with, and a place for tests that run in fake time.
type Memory struct {
	mu      sync.Mutex
	objects map[string]stored
}

type stored struct {
	data []byte
	time time.Time
}

// NewMemory returns an empty sink.
func NewMemory() *Memory { return &Memory{objects: map[string]stored{}} }

// Create implements sinks.Sink.
func (m *Memory) Create(ctx context.Context, name string, _ sinks.CreateOptions) (sinks.Writer, error) {
	if err := check(ctx, name); err != nil {
		return nil, err
	}
	return &memoryWriter{ctx: ctx, sink: m, name: name}, nil
}

// Open implements sinks.Sink.
func (m *Memory) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	object, err := m.find(ctx, name)
	if err != nil {
		return nil, err
	}
	data := object.data
	if offset < 0 || offset > int64(len(data)) {
		return nil, fmt.Errorf("open %s in %s: offset %d is outside of its %d bytes", name, m, offset, len(data))
	}
	if data = data[offset:]; length >= 0 {
		data = data[:min(length, int64(len(data)))]
	}
	return &memoryReader{ctx, bytes.NewReader(data)}, nil
}

// Stat implements sinks.Sink.
func (m *Memory) Stat(ctx context.Context, name string) (sinks.Object, error) {
	object, err := m.find(ctx, name)
	if err != nil {
		return sinks.Object{}, err
	}
	return object.describe(name), nil
}

// List implements sinks.Sink.
func (m *Memory) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	return func(yield func(sinks.Object, error) bool) {
		m.mu.Lock()
		objects := maps.Clone(m.objects)
		m.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			if ctx.Err() != nil {
				yield(sinks.Object{}, fmt.Errorf("list %s: %w", m, ctx.Err()))
				return
			}
			if strings.HasPrefix(name, prefix) && name > after && !yield(objects[name].describe(name), nil) {
				return
			}
		}
	}
}

// Delete implements sinks.Sink.
func (m *Memory) Delete(ctx context.Context, name string) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}

// Abilities implements sinks.Sink.
func (m *Memory) Abilities(ctx context.Context) (sinks.Abilities, error) {
	return sinks.Abilities{ExclusiveCreate: true}, ctx.Err()
}

// String implements sinks.Sink.
func (m *Memory) String() string { return "memory:" }

// Close implements sinks.Sink.
func (m *Memory) Close() error { return nil }

func (m *Memory) find(ctx context.Context, name string) (stored, error) {
	if err := check(ctx, name); err != nil {
		return stored{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	object, ok := m.objects[name]
	if !ok {
		return stored{}, fmt.Errorf("%s in %s: %w", name, m, sinks.ErrNotFound)
	}
	return object, nil
}

func (o stored) describe(name string) sinks.Object {
	return sinks.Object{Name: name, Size: int64(len(o.data)), ModTime: o.time}
}

func check(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return sinks.ValidName(name)
}

type memoryWriter struct {
	ctx    context.Context
	sink   *Memory
	name   string
	data   []byte
	closed bool
}

func (w *memoryWriter) Write(p []byte) (int, error) {
	if w.closed {
		return 0, sinks.ErrClosed
	}
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	w.data = append(w.data, p...)
	return len(p), nil
}

// Commit stores the object unless the name is taken.
func (w *memoryWriter) Commit(ctx context.Context) (sinks.Object, error) {
	if w.closed {
		return sinks.Object{}, sinks.ErrClosed
	}
	w.closed = true
	if err := ctx.Err(); err != nil {
		return sinks.Object{}, err
	}
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if _, taken := w.sink.objects[w.name]; taken {
		return sinks.Object{}, fmt.Errorf("%s in %s: %w", w.name, w.sink, sinks.ErrExists)
	}
	object := stored{w.data, time.Now()}
	w.sink.objects[w.name] = object
	return object.describe(w.name), nil
}

// Abort forgets the bytes.
func (w *memoryWriter) Abort() error {
	w.closed = true
	return nil
}

type memoryReader struct {
	ctx  context.Context
	data *bytes.Reader
}

func (r *memoryReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.data.Read(p)
}

// Close does nothing.
func (r *memoryReader) Close() error { return nil }
