package host

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxLine bounds a line of the conversation.
	maxLine = 1 << 20
	// maxValue bounds what is asked or answered in several lines, and all together that
	// the other side has asked for and has no answer to yet.
	maxValue = 64 << 20
	// piece is as much as one line carries, in base64, of a long value, and as many bytes of
	// data as follow one line.
	piece = 256 << 10
	// maxRequests bounds what the other side may have asked for at once.
	maxRequests = 64
	// quiet is how long the other side may say nothing, though it is asked now and then:
	// a host that lost its power says no end.
	quiet     = 20 * time.Second
	pingEvery = 5 * time.Second
)

// ping is answered by the Conn itself.
const ping verb = "ping"

// frame is a line. With Action it is of a request, else of an answer.
type frame struct {
	ID     uint64 `json:"id"`
	Action verb   `json:"action,omitempty"`
	Header
	Cancel bool `json:"cancel,omitempty"` // the request is not waited for any more

	// Value is what is asked or answered. One that is too long for a line comes in
	// Parts, of which all but the last one say that there is More.
	Value json.RawMessage `json:"value,omitempty"`
	Part  []byte          `json:"part,omitempty"`
	More  bool            `json:"more,omitempty"`

	// Raw is how many bytes of data follow the line, which are streamed before the answer:
	// a database as JSON would take longer than all else of a recovery.
	Raw  int    `json:"raw,omitempty"`
	data []byte // these

	Done    bool     `json:"done,omitempty"`
	Refusal *Refusal `json:"refusal,omitempty"`
}

// incoming is what the other side asks for.
type incoming struct {
	Verb verb
	Header
	Arguments json.RawMessage
	// Data is streamed to the other side before the answer.
	Data io.Writer
}

// Decode reads the arguments strictly.
func (r *incoming) Decode(v any) error {
	d := json.NewDecoder(bytes.NewReader(r.Arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return &RefusedError{Refusal{Code: BadRequest, Error: fmt.Sprintf("the arguments of %s: %v", r.Verb, err)}, err}
	}
	return nil
}

// handler answers a request. An error that is no *RefusedError is told as Failed.
type handler func(ctx context.Context, r *incoming) (any, error)

// conversation is a conversation. Its methods may be called by several goroutines.
type conversation struct {
	in     *bufio.Reader
	out    io.Writer
	handle handler
	began  time.Time

	write sync.Mutex // held while a line is written

	mu       sync.Mutex
	next     uint64
	calls    map[uint64]*call
	asked    map[uint64]context.CancelFunc
	conflict int // bytes of what the other side asks for
	ended    error

	heard   atomic.Int64 // when the last line came, as nanoseconds since began
	passing atomic.Int32 // a line is passed on, and the next one waits for that
	all     sync.WaitGroup
}

// call is a request of ours that is not answered yet.
type call struct {
	lines chan frame
	gone  chan struct{} // closed when nobody waits any more
	parts []byte
}

// newConversation makes a conversation. Nothing is read until Serve.
func newConversation(in *bufio.Reader, out io.Writer, handle handler) *conversation {
	return &conversation{in: in, out: out, handle: handle, calls: map[uint64]*call{}, asked: map[uint64]context.CancelFunc{}, began: time.Now()}
}

// errEnded is the end of the other side's lines.
var errEnded = errors.New("the conversation has ended")

// Serve reads lines until there are none, and answers requests. What is under way for
// the other side then has its context ended, and is waited for. Its error is never nil.
func (c *conversation) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	err := c.serve(ctx)
	cancel()
	c.mu.Lock()
	c.ended = err
	for id, one := range c.calls {
		close(one.lines)
		delete(c.calls, id)
	}
	c.mu.Unlock()
	c.all.Wait()
	return err
}

func (c *conversation) serve(ctx context.Context) error {
	parts := map[uint64][]byte{}
	for {
		line, err := readLine(c.in)
		if errors.Is(err, io.EOF) {
			return errEnded
		}
		if err != nil {
			return err
		}
		c.heard.Store(int64(time.Since(c.began)))
		var f frame
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil {
			return fmt.Errorf("a line that cannot be read came: %s: %w", shown(line), err)
		}
		if f.Raw < 0 || f.Raw > piece {
			return fmt.Errorf("data of %d bytes came at once", f.Raw)
		}
		if f.Raw > 0 {
			f.data = make([]byte, f.Raw)
			if _, err := io.ReadFull(c.in, f.data); err != nil {
				return fmt.Errorf("data without its end came: %w", err)
			}
		}
		switch {
		case f.Cancel:
			c.mu.Lock()
			if stop := c.asked[f.ID]; stop != nil {
				stop()
			}
			c.mu.Unlock()
			continue
		case f.Action == "":
			c.answered(f)
			continue
		}
		before := len(parts[f.ID])
		value, whole, err := joined(parts[f.ID], &f)
		if err == nil {
			err = c.hold(len(value) - before)
		}
		switch {
		case err != nil:
			return err
		case !whole && len(parts) >= maxRequests && parts[f.ID] == nil:
			return errTooMany
		case !whole:
			parts[f.ID] = value
			continue
		}
		delete(parts, f.ID)
		if err := c.begin(ctx, f, value); err != nil {
			return err
		}
	}
}

// hold counts what the other side asks for.
func (c *conversation) hold(more int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conflict += more; c.conflict > maxValue {
		return fmt.Errorf("requests of more than %d bytes came at once", maxValue)
	}
	return nil
}

var errTooMany = fmt.Errorf("more than %d requests came at once, or one of them twice", maxRequests)

// joined adds a frame's part of a long value to those before.
func joined(before []byte, f *frame) (value []byte, whole bool, err error) {
	if f.Part == nil && before == nil {
		return f.Value, true, nil
	}
	if len(before)+len(f.Part) > maxValue {
		return nil, false, fmt.Errorf("a value of more than %d bytes came", maxValue)
	}
	return append(before, f.Part...), !f.More, nil
}

// begin answers a request, in a goroutine of its own.
func (c *conversation) begin(ctx context.Context, f frame, arguments []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[f.ID] != nil || len(c.asked) >= maxRequests {
		return errTooMany
	}
	ctx, cancel := context.WithCancel(ctx)
	c.asked[f.ID] = cancel
	c.all.Go(func() {
		defer cancel()
		var v any
		var err error
		if f.Action != ping {
			v, err = c.handle(ctx, &incoming{Verb: f.Action, Header: f.Header, Arguments: arguments, Data: &stream{c, f.ID}})
		}
		answer := frame{ID: f.ID, Done: err == nil}
		if err != nil {
			answer.Refusal, v = &Refusal{Code: Failed, Error: err.Error()}, nil
			if refused, is := err.(*RefusedError); is { //nolint:errorlint // a wrapped one is said with what wraps it
				answer.Refusal = &refused.Refusal
			}
		}
		c.mu.Lock()
		delete(c.asked, f.ID)
		c.conflict -= len(arguments)
		c.mu.Unlock()
		_ = c.send(answer, v) // who cannot be told asks again
	})
	return nil
}

// stream sends data of an answer.
type stream struct {
	c  *conversation
	id uint64
}

func (s *stream) Write(p []byte) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+piece)]
		if err := s.c.writeLine(frame{ID: s.id, data: part}); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// answered hands a line of an answer to who waits for it; one that nobody waits for any
// more is passed over.
func (c *conversation) answered(f frame) {
	c.mu.Lock()
	one := c.calls[f.ID]
	c.mu.Unlock()
	if one == nil {
		return
	}
	c.passing.Add(1)
	defer c.passing.Add(-1)
	select {
	case one.lines <- f:
	case <-one.gone:
	}
}

// Call asks for something, and waits for the answer until ctx ends. answer, a pointer,
// and data, to which is written what is streamed, may be nil.
func (c *conversation) Call(ctx context.Context, h Header, verb verb, arguments, answer any, data io.Writer) error {
	one := &call{lines: make(chan frame, 4), gone: make(chan struct{})}
	defer close(one.gone)
	c.mu.Lock()
	if err := c.ended; err != nil {
		c.mu.Unlock()
		return err
	}
	c.next++
	id := c.next
	c.calls[id] = one
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
	}()
	if arguments == nil {
		arguments = struct{}{}
	}
	if err := c.send(frame{ID: id, Action: verb, Header: h}, arguments); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			go func() { _ = c.writeLine(frame{ID: id, Cancel: true}) }() // it may be stuck
			return context.Cause(ctx)
		case f, more := <-one.lines:
			if !more {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.ended
			}
			done, err := one.take(f, answer, data)
			if err != nil && !done {
				go func() { _ = c.writeLine(frame{ID: id, Cancel: true}) }()
			}
			if done || err != nil {
				return err
			}
		}
	}
}

// notTakenError says that what came could not be written where it was wanted: the
// conversation goes on.
type notTakenError struct{ Err error }

func (e *notTakenError) Error() string { return e.Err.Error() }
func (e *notTakenError) Unwrap() error { return e.Err }

// take takes up a line of an answer.
func (one *call) take(f frame, answer any, data io.Writer) (done bool, err error) {
	switch {
	case f.Refusal != nil:
		return true, &RefusedError{Refusal: *f.Refusal}
	case f.data != nil:
		if data == nil {
			return false, errors.New("data came that was not asked for")
		}
		if _, err := data.Write(f.data); err != nil {
			return false, &notTakenError{err}
		}
		return false, nil
	case !f.Done:
		return false, errors.New("a line came that is neither data nor an answer")
	}
	value, whole, err := joined(one.parts, &f)
	if err != nil || !whole {
		one.parts = value
		return false, err
	}
	if answer == nil || len(value) == 0 {
		return true, nil
	}
	if err := json.Unmarshal(value, answer); err != nil {
		return true, fmt.Errorf("an answer came that cannot be read: %s: %w", shown(value), err)
	}
	return true, nil
}

// send writes a frame with a value, in several lines where it is long.
func (c *conversation) send(f frame, v any) error {
	var value []byte
	if v != nil {
		var err error
		if value, err = json.Marshal(v); err != nil {
			return err
		}
	}
	if len(value) <= piece {
		f.Value = value
		return c.writeLine(f)
	}
	for len(value) > piece {
		part := f
		part.Part, part.More = value[:piece], true
		if err := c.writeLine(part); err != nil {
			return err
		}
		value = value[piece:]
	}
	f.Part = value
	return c.writeLine(f)
}

func (c *conversation) writeLine(f frame) error {
	f.Raw = len(f.data)
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if len(line) >= maxLine {
		return fmt.Errorf("a line of %d bytes is too long to be sent", len(line))
	}
	c.write.Lock()
	defer c.write.Unlock()
	if _, err = c.out.Write(append(line, '\n')); err == nil && f.Raw > 0 {
		_, err = c.out.Write(f.data)
	}
	return err
}

// Watch asks the other side now and then whether it is there, and calls lost, once,
// where it says nothing for long. It returns then, or when ctx ends.
func (c *conversation) Watch(ctx context.Context, lost func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pingEvery):
		}
		if c.passing.Load() > 0 { // it is we who do not listen
			c.heard.Store(int64(time.Since(c.began)))
			continue
		}
		if silent := time.Since(c.began) - time.Duration(c.heard.Load()); silent > quiet {
			lost(fmt.Errorf("nothing came from there for %s", silent.Round(time.Second)))
			return
		}
		go func() {
			ctx, cancel := context.WithTimeout(ctx, quiet)
			defer cancel()
			_ = c.Call(ctx, Header{}, ping, nil, nil, nil) // that it is answered is heard
		}()
	}
}

// readLine reads a line, which has to end and to be no longer than MaxLine.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, fmt.Errorf("a line of more than %d bytes came: %s", maxLine, shown(append(line, part...)))
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, fmt.Errorf("a line without its end came: %s", shown(line))
		default:
			return nil, err
		}
	}
}

// shown is the beginning of what came, for a message.
func shown(line []byte) string {
	const enough = 120
	if len(line) > enough {
		return fmt.Sprintf("%q…", line[:enough])
	}
	return fmt.Sprintf("%q", line)
}

// summedWriter passes data on, up to a length, and reckons its SHA-256.
type summedWriter struct {
	w    io.Writer
	left int64
	sum  hash.Hash
}

// newSummedWriter takes no more than limit bytes; a negative limit is none.
func newSummedWriter(w io.Writer, limit int64) *summedWriter {
	return &summedWriter{w, limit, sha256.New()}
}

func (s *summedWriter) Write(p []byte) (int, error) {
	if s.left >= 0 {
		if int64(len(p)) > s.left {
			return 0, errors.New("more came than was asked for")
		}
		s.left -= int64(len(p))
	}
	n, err := s.w.Write(p)
	s.sum.Write(p[:n])
	return n, err
}

// Sum is that of what was written.
func (s *summedWriter) Sum() string { return hex.EncodeToString(s.sum.Sum(nil)) }

// Check fails where what came is not what was sent.
func (s *summedWriter) Check(sent *Sent) error {
	if s.left >= 0 && s.left != sent.Zeros {
		return fmt.Errorf("%d bytes are missing, of which the sender says that %d are zeros", s.left, sent.Zeros)
	}
	if got := s.Sum(); got != sent.Sum {
		return fmt.Errorf("the SHA-256 of what came is %s, and %q was sent", got, sent.Sum)
	}
	return nil
}
