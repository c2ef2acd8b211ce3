package archive

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/walreplay/segment"
)

// timedSink notes how long each put of a segment was under way.
type timedSink struct {
	sinks.Sink
	mu   sync.Mutex
	puts []timedPut
}

type timedPut struct {
	name         string
	object       []byte
	began, ended time.Time
	failed       bool
}

func (s *timedSink) Create(ctx context.Context, name string, opts sinks.CreateOptions) (sinks.Writer, error) {
	w, err := s.Sink.Create(ctx, name, opts)
	if err != nil || !strings.Contains(name, "/l0/") {
		return w, err
	}
	return &timedWriter{Writer: w, sink: s, put: timedPut{name: name, began: time.Now()}}, nil
}

type timedWriter struct {
	sinks.Writer
	sink *timedSink
	put  timedPut
}

func (w *timedWriter) Write(p []byte) (int, error) {
	w.put.object = append(w.put.object, p...)
	return w.Writer.Write(p)
}

func (w *timedWriter) Commit(ctx context.Context) (sinks.Object, error) {
	o, err := w.Writer.Commit(ctx)
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	w.put.ended, w.put.failed = time.Now(), err != nil
	w.sink.puts = append(w.sink.puts, w.put)
	return o, err
}

// cut is when the segment was.
func (p timedPut) cut(t *testing.T) time.Time {
	t.Helper()
	memory := sinktest.NewMemory()
	if _, err := sinks.Put(t.Context(), memory, p.name, bytes.Clone(p.object), sinks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h, err := segment.ReadHeader(t.Context(), memory, p.name)
	if err != nil {
		t.Fatal(err)
	}
	return h.Cut
}

// A put is given up 60 s after its segment was cut, so that it cannot land in a
// name that was freed; one from the spool, which was cut at any time, 60 s after
// it was begun.
func TestPutEndsAMinuteAfterTheCut(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		timed := &timedSink{Sink: r.sink}
		a := r.start(0, func(c *Config) { c.Sink = timed })
		hang := func() { r.sink.Add(sinktest.Delay(sinktest.Commit, 1, 2*time.Hour).Of("/l0/")) }
		r.load(5)
		r.waitArchived(a, 20, 5*time.Second)
		hang() // of a segment that was cut just now
		r.load(100)
		hang()
		r.load(20)
		r.gone.away.Store(true)
		r.load(120)
		r.gone.away.Store(false)
		hang() // of a spooled one
		r.load(200)
		last := r.cluster.members[0].last()
		r.waitArchived(a, last, time.Minute)
		const minute = 60 * time.Second
		queued, spooled := 0, 0
		for _, p := range timed.puts {
			age, took := p.ended.Sub(p.cut(t)), p.ended.Sub(p.began)
			switch fresh := p.began.Sub(p.cut(t)) < time.Second; {
			case took > minute || fresh && age > minute:
				t.Errorf("%s: a put that took %s ended %s after the cut", p.name, took, age)
			case p.failed && took < minute-time.Second:
				t.Errorf("%s: given up after %s", p.name, took)
			case p.failed && fresh:
				queued++
			case p.failed:
				spooled++
			}
		}
		if queued == 0 || spooled == 0 {
			t.Errorf("%d puts of fresh segments were given up, %d of spooled ones", queued, spooled)
		}
		r.sameAs(1, r.cluster.members[0].entries)
	})
}
