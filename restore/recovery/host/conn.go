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
	// maxLine bounds a line of the conversation, and all together that the other side has
	// asked for and has no answer to yet.
	maxLine = 64 << 20
	// maxValues bounds those of an answer: a host that is not what it should be could fill the
	// coordinator's memory with many small ones.
	maxValues = 1 << 20
	// piece is as many bytes of data as follow one line.
	piece = 256 << 10
	// maxRequests bounds what the other side may have asked for at once.
	maxRequests = 64
	// quiet is how long the other side may say nothing, though it is asked now and then:
	// a host that lost its power says no end.
	quiet     = 20 * time.Second
	pingEvery = 5 * time.Second
)

// ping is answered by the conversation itself.
const ping verb = "ping"

// frame is a line. With Action it is of a request, else of an answer.
type frame struct {
	ID     uint64 `json:"id"`
	Action verb   `json:"action,omitempty"`
	Header
	Cancel bool `json:"cancel,omitempty"` // the request is not waited for any more

	Value json.RawMessage `json:"value,omitempty"` // what is asked or answered

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
	if err := strict(r.Arguments, v); err != nil {
		return &RefusedError{Refusal{Code: BadRequest, Error: fmt.Sprintf("the arguments of %s: %v", r.Verb, err)}, err}
	}
	return nil
}

// handler answers a request. An error that is no *RefusedError is reported as Failed.
type handler func(ctx context.Context, r *incoming) (any, error)

// conversation is a conversation. Its methods may be called by several goroutines.
type conversation struct {
	from   io.Reader
	in     *bufio.Reader // of what is heard from there
	out    io.Writer
	handle handler
	began  time.Time

	write sync.Mutex // held while a line is written

	mu    sync.Mutex
	next  uint64
	calls map[uint64]*call
	asked map[uint64]context.CancelFunc
	held  int // bytes of what the other side asks for
	ended error

	heard   atomic.Int64 // when anything came last, as nanoseconds since began
	passing atomic.Int32 // a line is passed on, and the next one waits for that
	all     sync.WaitGroup
}

// call is a request of ours that is not answered yet.
type call struct {
	lines chan frame
	gone  chan struct{} // closed when nobody waits any more
}

// newConversation makes a conversation. Nothing is read until Serve.
func newConversation(from io.Reader, out io.Writer, handle handler) *conversation {
	c := &conversation{from: from, out: out, handle: handle, calls: map[uint64]*call{}, asked: map[uint64]context.CancelFunc{}, began: time.Now()}
	c.in = bufio.NewReaderSize(hearing{c}, 64<<10)
	return c
}

// hearing notes when anything came: a long line may take its time.
type hearing struct{ *conversation }

func (c hearing) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.hear()
	return n, err
}

func (c *conversation) hear() { c.heard.Store(int64(time.Since(c.began))) }

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
	for {
		line, err := readLine(c.in, maxLine)
		if errors.Is(err, io.EOF) {
			return errEnded
		}
		if err != nil {
			return err
		}
		var f frame
		if err := strict(line, &f); err != nil {
			return fmt.Errorf("a line that cannot be read came: %s: %w", shown(line), err)
		}
		if f.Raw < 0 || f.Raw > piece || f.Raw > 0 && len(line) > piece {
			return fmt.Errorf("data of %d bytes came at once, behind a line of %d", f.Raw, len(line))
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
		case f.Action == "":
			c.answered(f)
		default:
			if err := c.begin(ctx, f, len(line)); err != nil {
				return err
			}
		}
	}
}

// begin answers a request, of so many bytes, in a goroutine of its own. It counts until
// its answer is taken.
func (c *conversation) begin(ctx context.Context, f frame, size int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[f.ID] != nil || len(c.asked) >= maxRequests {
		return fmt.Errorf("more than %d requests came at once, or one of them twice", maxRequests)
	}
	if c.held += size; c.held > maxLine {
		return fmt.Errorf("requests of more than %d bytes came at once", maxLine)
	}
	ctx, cancel := context.WithCancel(ctx)
	c.asked[f.ID] = cancel
	c.all.Go(func() {
		defer cancel()
		var v any
		var err error
		if f.Action != ping {
			v, err = c.handle(ctx, &incoming{Verb: f.Action, Header: f.Header, Arguments: f.Value, Data: &stream{c, f.ID}})
		}
		answer := frame{ID: f.ID, Done: err == nil}
		if err != nil {
			answer.Refusal, v = &Refusal{Code: Failed, Error: err.Error()}, nil
			if refused, is := err.(*RefusedError); is { //nolint:errorlint // a wrapped one is said with what wraps it
				answer.Refusal = &refused.Refusal
			}
		}
		if err := c.send(answer, v); err != nil && v != nil { // it may be too long
			_ = c.send(frame{ID: f.ID, Refusal: &Refusal{Code: Failed, Error: err.Error()}}, nil) // who does not hear of it asks again
		}
		c.mu.Lock()
		delete(c.asked, f.ID)
		c.held -= size
		c.mu.Unlock()
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
	one := &call{lines: make(chan frame, 1), gone: make(chan struct{})}
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
			done, err := take(f, answer, data)
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
func take(f frame, answer any, data io.Writer) (done bool, err error) {
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
	case answer == nil || len(f.Value) == 0:
		return true, nil
	}
	if n := bytes.Count(f.Value, []byte{','}); n > maxValues {
		return true, fmt.Errorf("an answer of %d values came, and it may have %d: %s", n, maxValues, shown(f.Value))
	}
	if err := json.Unmarshal(f.Value, answer); err != nil {
		return true, fmt.Errorf("an answer came that cannot be read: %s: %w", shown(f.Value), err)
	}
	return true, nil
}

// send writes a frame with a value.
func (c *conversation) send(f frame, v any) (err error) {
	if v != nil {
		if f.Value, err = json.Marshal(v); err != nil {
			return err
		}
	}
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
	for ; len(line) > piece; line = line[piece:] {
		if _, err := c.out.Write(line[:piece]); err != nil {
			return err
		}
		c.hear() // it takes so much, and is asked nothing meanwhile
	}
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
			c.hear()
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

// readLine reads a line, which has to end, and to have no more bytes than most.
func readLine(in *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, fmt.Errorf("a line of more than %d bytes came: %s", most, shown(append(line, part...)))
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
	w           io.Writer
	limit, left int64
	sum         hash.Hash
}

// newSummedWriter takes no more than limit bytes.
func newSummedWriter(w io.Writer, limit int64) *summedWriter {
	return &summedWriter{w, limit, limit, sha256.New()}
}

func (s *summedWriter) Write(p []byte) (int, error) {
	if s.left -= int64(len(p)); s.left < 0 {
		return 0, fmt.Errorf("more than %d bytes came", s.limit)
	}
	n, err := s.w.Write(p)
	s.sum.Write(p[:n])
	return n, err
}

// Sum is that of what was written.
func (s *summedWriter) Sum() string { return hex.EncodeToString(s.sum.Sum(nil)) }

// Check fails where what came is not what was sent.
func (s *summedWriter) Check(sent *Sent) error {
	if got := s.Sum(); got != sent.Sum {
		return fmt.Errorf("the SHA-256 of what came is %s, and %q was sent", got, sent.Sum)
	}
	return nil
}
