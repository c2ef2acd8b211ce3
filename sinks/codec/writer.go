package codec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/bits"
	"runtime"
	"sync"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// DefaultFrameSize is the number of raw bytes in a frame. Measured on a
// Kubernetes database of 481 MB: 256 KiB costs 5 % in size against 1 MiB and
// is slower; 4 MiB saves 1.5 % and takes four times the memory, and every look
// at a single page would have to fetch four times as much.
const DefaultFrameSize = 1 << 20

// DefaultLevel is chosen where Options names none. On the same database the
// next level saves 1 % and takes a third more time, the best one saves 7 % and
// takes seven times as long.
const DefaultLevel = LevelFastest

// Options say how to store an object. The zero value is good: defaults, and no
// encryption.
type Options struct {
	Level     Level // DefaultLevel where empty
	FrameSize int   // in bytes; DefaultFrameSize where zero
	Workers   int   // that compress; one for each processor where zero
	// Recipients that can decrypt the object; none means no encryption.
	Recipients []age.Recipient
	// RawHash is a SHA-256 that the raw bytes go through, for a caller who
	// wants to see more in the same pass; an ordinary one where nil. It is used
	// by the Writer alone until Close returned.
	RawHash hash.Hash
}

func (o Options) withDefaults() (Options, error) {
	if o.Level == "" {
		o.Level = DefaultLevel
	}
	if o.FrameSize == 0 {
		o.FrameSize = DefaultFrameSize
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.RawHash == nil {
		o.RawHash = sha256.New()
	}
	if o.FrameSize < minFrameSize || o.FrameSize > MaxFrameSize {
		return o, fmt.Errorf("frame size %d is not within %d and %d bytes", o.FrameSize, minFrameSize, MaxFrameSize)
	}
	if o.Workers < 0 {
		return o, fmt.Errorf("number of compression workers %d is negative", o.Workers)
	}
	return o, nil
}

// Writer stores raw bytes. It is used by one goroutine at a time and ends with
// Close or Abort; Abort after Close does nothing.
//
// Raw bytes are hashed on one goroutine, compressed on Workers others, and
// written, encrypted and hashed again on one more. Workers + 2 frames are
// under way at most, each with its raw and its compressed bytes, and each
// worker has a history of two frames: (4 × Workers + 4) × FrameSize bytes in
// all, the encoders' tables, and 12 bytes for each frame written.
type Writer struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	encoder *zstd.Encoder
	current *outFrame
	free    chan *outFrame // frames that may be filled
	// Every frame goes through all three. Each has room for all frames, so that
	// sending never waits.
	compress, hash, write chan *outFrame

	stored  *hashingWriter
	payload io.Writer // what frames are written to: stored, or encrypted into it
	sealed  io.Closer // ends the encryption; nil without one
	key     []byte    // of the age file; nil without encryption
	table   tableBuilder
	rawHash hash.Hash

	description Encoding
	closed      bool
}

// outFrame is one frame on its way.
type outFrame struct {
	raw, compressed        []byte
	isCompressed, isHashed chan struct{}
}

// NewWriter starts an object on dst, which it does not close. With recipients
// the age header is written before it returns. When ctx ends, so does the
// writing, with the context's cause as the error.
func NewWriter(ctx context.Context, dst io.Writer, opts Options) (*Writer, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	level, err := opts.Level.zstd()
	if err != nil {
		return nil, err
	}
	// A window larger than a frame would only take memory.
	encoderOptions := []zstd.EOption{zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(opts.Workers), zstd.WithWindowSize(1 << bits.Len(uint(opts.FrameSize-1)))}
	encoder, err := zstd.NewWriter(nil, encoderOptions...)
	if err != nil {
		return nil, fmt.Errorf("start zstd: %w", err)
	}

	n := opts.Workers + 2
	w := &Writer{
		encoder:  encoder,
		free:     make(chan *outFrame, n),
		compress: make(chan *outFrame, n),
		hash:     make(chan *outFrame, n),
		write:    make(chan *outFrame, n),
		stored:   &hashingWriter{w: dst, h: sha256.New()},
		rawHash:  opts.RawHash,
		description: Encoding{
			Codecs:     []string{Zstd},
			Level:      opts.Level,
			FrameSize:  opts.FrameSize,
			Recipients: recipientNames(opts.Recipients),
		},
	}
	w.payload = w.stored
	if len(opts.Recipients) > 0 {
		sealed, key, err := seal(w.stored, opts.Recipients)
		if err != nil {
			return nil, err
		}
		w.payload, w.sealed, w.key = sealed, sealed, key
		w.description.Codecs = append(w.description.Codecs, Age)
		w.description.HeaderSize = int(w.stored.n)
		w.description.HeaderSHA256 = hex.EncodeToString(w.stored.h.Sum(nil))
	}

	w.ctx, w.cancel = context.WithCancelCause(ctx)
	for range n {
		w.free <- &outFrame{isCompressed: make(chan struct{}, 1), isHashed: make(chan struct{}, 1)}
	}
	for range opts.Workers {
		w.wg.Go(w.compressFrames)
	}
	w.wg.Go(w.hashFrames)
	w.wg.Go(w.writeFrames)
	return w, nil
}

// Write takes raw bytes; it keeps nothing of p. After an error only Abort is
// of use.
func (w *Writer) Write(p []byte) (int, error) {
	if w.closed {
		return 0, errors.New("codec: write after the end")
	}
	written := 0
	for len(p) > 0 {
		if w.current == nil {
			f, ok := receive(w.ctx, w.free)
			if !ok {
				return written, w.cause()
			}
			if f.raw == nil {
				f.raw = make([]byte, 0, w.description.FrameSize)
			}
			f.raw = f.raw[:0]
			w.current = f
		}
		n := min(len(p), cap(w.current.raw)-len(w.current.raw))
		w.current.raw = append(w.current.raw, p[:n]...)
		written, p = written+n, p[n:]
		if len(w.current.raw) == cap(w.current.raw) {
			if err := w.submit(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

// submit sends the current frame on its way.
func (w *Writer) submit() error {
	d := &w.description
	if d.Frames == maxFrames {
		err := fmt.Errorf("more than %d frames of %d bytes: use larger frames", maxFrames, d.FrameSize)
		w.cancel(err)
		return err
	}
	f := w.current
	w.current = nil
	d.Frames++
	d.RawSize += int64(len(f.raw))
	w.compress <- f
	w.hash <- f
	w.write <- f
	return nil
}

// Close writes what is left, the seek table and the end of the encryption. It
// does not close the destination. Unless it returns nil, the object must not
// be used. It may be called again, and returns an error after Abort.
func (w *Writer) Close() error {
	if w.closed {
		return w.cause()
	}
	if w.current != nil && len(w.current.raw) > 0 && w.ctx.Err() == nil {
		if err := w.submit(); err != nil {
			w.end(err)
			return err
		}
	}
	close(w.compress)
	close(w.hash)
	close(w.write)
	w.wg.Wait()
	w.closed = true
	if err := w.cause(); err != nil {
		w.end(err)
		return err
	}
	err := w.finish()
	w.end(err)
	return err
}

func (w *Writer) finish() error {
	if _, err := w.payload.Write(w.table.finish()); err != nil {
		return fmt.Errorf("write the seek table: %w", err)
	}
	if w.sealed != nil {
		if err := w.sealed.Close(); err != nil {
			return fmt.Errorf("end the encryption: %w", err)
		}
	}
	d := &w.description
	d.RawSHA256 = hex.EncodeToString(w.rawHash.Sum(nil))
	d.StoredSHA256 = hex.EncodeToString(w.stored.h.Sum(nil))
	d.StoredSize = w.stored.n
	return nil
}

// Abort stops everything and returns when it has stopped; a Write to the
// destination that is under way is waited for. What was written is of no use.
// After Close it does nothing.
func (w *Writer) Abort() {
	if !w.closed {
		w.end(ErrAborted)
	}
}

// end stops the goroutines and releases the memory.
func (w *Writer) end(err error) {
	w.closed = true
	w.cancel(err) // a nil error becomes context.Canceled, which cause knows
	w.wg.Wait()
	w.current, w.free = nil, nil
	w.encoder.Close() //nolint:errcheck // it has no destination of its own, nothing can fail
}

// cause is the error that stopped the writing, nil while there is none.
func (w *Writer) cause() error {
	err := context.Cause(w.ctx)
	if w.description.StoredSHA256 != "" {
		return nil
	}
	return err
}

// Description is what a reader needs. It is whole once Close returned nil; a
// zero value is returned before.
func (w *Writer) Description() Encoding {
	if w.description.StoredSHA256 == "" {
		return Encoding{}
	}
	return w.description
}

// FileKeyIdentity opens what this Writer wrote, and nothing else, without any
// identity of the user, so that a backup made with recipients alone can be
// read back. It is nil without encryption. It must not be stored.
func (w *Writer) FileKeyIdentity() age.Identity {
	if w.key == nil {
		return nil
	}
	return age.NewInjectedFileKeyIdentity(w.key)
}

func (w *Writer) compressFrames() {
	for {
		f, ok := receive(w.ctx, w.compress)
		if !ok {
			return
		}
		f.compressed = w.encoder.EncodeAll(f.raw, f.compressed[:0])
		f.isCompressed <- struct{}{}
	}
}

func (w *Writer) hashFrames() {
	for {
		f, ok := receive(w.ctx, w.hash)
		if !ok {
			return
		}
		w.rawHash.Write(f.raw)
		f.isHashed <- struct{}{}
	}
}

func (w *Writer) writeFrames() {
	for {
		f, ok := receive(w.ctx, w.write)
		if !ok {
			return
		}
		if _, ok := receive(w.ctx, f.isCompressed); !ok {
			return
		}
		if _, ok := receive(w.ctx, f.isHashed); !ok {
			return
		}
		w.table.add(len(f.raw), f.compressed)
		if _, err := w.payload.Write(f.compressed); err != nil {
			w.cancel(fmt.Errorf("write the stored object at byte %d: %w", w.stored.n, err))
			return
		}
		w.free <- f
	}
}

// receive waits for the next value. It is false once c is closed and empty, or
// ctx has ended.
func receive[T any](ctx context.Context, c <-chan T) (v T, ok bool) {
	if ctx.Err() != nil {
		return v, false
	}
	select {
	case v, ok = <-c:
		return v, ok
	case <-ctx.Done():
		return v, false
	}
}

// hashingWriter counts and hashes what reached w.
type hashingWriter struct {
	w io.Writer
	h hash.Hash
	n int64
}

func (h *hashingWriter) Write(p []byte) (int, error) {
	n, err := h.w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	h.h.Write(p[:max(0, min(n, len(p)))])
	h.n += int64(n)
	return n, err
}
