package child

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// message is a line of the child's standard output; one of the fields is there.
type message struct {
	// Data is what the child has of what is bounded, before it is: one that dies soon
	// after is seen by nobody who looks now and then.
	Data     int64           `json:"data,omitempty"`
	Progress *progress       `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Failed   *failure        `json:"failed,omitempty"`
}

type progress struct {
	Phase string `json:"phase"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
}

type failure struct {
	Text   string `json:"text"`
	Memory bool   `json:"memory,omitempty"` // for want of memory
}

// longestLine is far more than any result has.
const longestLine = 16 << 20

// reader takes the child's lines apart as they come.
type reader struct {
	progress func(phase string, done, total int64) // may be nil
	rest     []byte
	data     int64
	result   json.RawMessage
	failed   *failure
	err      error // what was no line of ours
}

// Write takes a part of the output. It never fails: the child is not to die of
// what its parent makes of it.
func (r *reader) Write(p []byte) (int, error) {
	r.rest = append(r.rest, p...)
	for r.err == nil {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			break
		}
		r.take(line)
		r.rest = rest
	}
	if r.err == nil && len(r.rest) > longestLine {
		r.err = fmt.Errorf("it answered a line of more than %d bytes", longestLine)
	}
	if r.err != nil {
		r.rest = nil
	}
	return len(p), nil
}

func (r *reader) take(line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		r.err = fmt.Errorf("it answered %q: %w", line[:min(len(line), 100)], err)
		return
	}
	switch {
	case m.Data > 0:
		r.data = m.Data
	case m.Progress != nil && r.progress != nil:
		r.progress(m.Progress.Phase, m.Progress.Done, m.Progress.Total)
	case m.Result != nil:
		r.result = bytes.Clone(m.Result)
	case m.Failed != nil:
		r.failed = m.Failed
	}
}

// between is how often progress is told at most: it is for people, and for the
// other agents that wait for it, who look every few seconds.
const between = 250 * time.Millisecond

// writer writes the child's lines.
type writer struct {
	mu   sync.Mutex
	out  io.Writer
	last progress
	told time.Time
	err  error // of the first line that could not be written
}

func (w *writer) progress(phase string, done, total int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	p := progress{phase, done, total}
	if p == w.last || phase == w.last.Phase && done != total && now.Sub(w.told) < between {
		return
	}
	w.last, w.told = p, now
	w.write(message{Progress: &p})
}

// data tells how much of what is bounded this process has.
func (w *writer) data(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(message{Data: bytes})
}

func (w *writer) end(m message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(m)
	return w.err
}

func (w *writer) write(m message) {
	line, err := json.Marshal(m)
	if err == nil && w.err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if w.err == nil {
		w.err = err
	}
}
