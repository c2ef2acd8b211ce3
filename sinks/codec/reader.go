package codec

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// reader reads a stored object from its first byte to its last. Frames are
// found on one goroutine, which decrypts and hashes the stored bytes too,
// decompressed on several others, and hashed, in order, on one more.
type reader struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	encoding Encoding
	prefix   *Prefix // may be nil
	source   *source
	stream   *bufio.Reader // compressed, decrypted
	decoder  *zstd.Decoder

	free chan *inFrame
	// Every frame goes through all three. Each has room for all frames, so that
	// sending never waits.
	decode, order, ready chan *inFrame
	table                []byte // as found; set before order is closed

	current *inFrame // whose bytes are being read
	unread  []byte
	err     error // what Read goes on returning
}

// inFrame is one frame on its way.
type inFrame struct {
	index           int
	offset          int64 // in the compressed stream
	compressed, raw []byte
	decoded         chan struct{}
}

// NewReader reads the raw bytes of a stored object that src holds, from its
// first byte on, and checks them as it goes: io.EOF is returned only after
// promise 2 of this package was kept, and what was read must not be used
// before. Stored bytes that are not as described are a *CorruptError, identities that
// do not fit an *IdentityError; a failure of src is returned as such. The age
// header is read before NewReader returns.
//
// Close stops the reading, and returns when it has stopped; a Read of src that
// is under way is waited for. src is not closed.
//
// The reader also is an io.WriterTo, which hands over whole frames. It takes
// about 2 × (workers + 2) × frame size bytes, 48 MiB at most, and 12 bytes for each
// frame. Workers are as many as there are processors, if they fit.
func NewReader(ctx context.Context, src io.Reader, e Encoding, identities ...age.Identity) (io.ReadCloser, error) {
	return NewPrefixReader(ctx, src, e, nil, identities...)
}

// Prefix asks a reader for the SHA-256 of the first Size raw bytes beside that of
// all of them: the second goes on from the first, so that it costs nothing.
type Prefix struct {
	Size   int64
	SHA256 [sha256.Size]byte // valid once the reader has returned io.EOF
}

// NewPrefixReader is NewReader, and fills in prefix where it is not nil.
func NewPrefixReader(ctx context.Context, src io.Reader, e Encoding, prefix *Prefix, identities ...age.Identity) (io.ReadCloser, error) {
	if err := e.Validate(); err != nil {
		return nil, &CorruptError{-1, fmt.Errorf("the object's description: %w", err)}
	}
	workers := decoders(e.FrameSize)
	n := workers + 2
	r := &reader{
		encoding: e,
		prefix:   prefix,
		source:   &source{r: src, h: sha256.New(), limit: e.StoredSize},
		free:     make(chan *inFrame, n),
		decode:   make(chan *inFrame, n),
		order:    make(chan *inFrame, n),
		ready:    make(chan *inFrame, n),
	}
	plain, err := r.open(identities)
	if err != nil {
		return nil, err
	}
	r.stream = bufio.NewReaderSize(plain, 256<<10)
	if r.decoder, err = newDecoder(e.FrameSize); err != nil {
		return nil, err
	}

	r.ctx, r.cancel = context.WithCancelCause(ctx)
	for range n {
		r.free <- &inFrame{decoded: make(chan struct{}, 1)}
	}
	r.wg.Go(r.findFrames)
	for range workers {
		r.wg.Go(r.decodeFrames)
	}
	r.wg.Go(r.checkFrames)
	return r, nil
}

// open returns the compressed stream. age sees its header only once that is
// known to be as it was written.
func (r *reader) open(identities []age.Identity) (io.Reader, error) {
	e := r.encoding
	if !e.Encrypted() {
		return r.source, nil
	}
	header := make([]byte, e.HeaderSize)
	if _, err := io.ReadFull(r.source, header); err != nil {
		return nil, r.fault(r.source.n, noEOF(err))
	}
	key, err := fileKey(header, e, identities)
	if err != nil {
		return nil, err
	}
	plain, err := age.Decrypt(io.MultiReader(bytes.NewReader(header), r.source), key)
	if err != nil {
		return nil, r.fault(0, err)
	}
	return plain, nil
}

func (r *reader) findFrames() {
	if err := r.find(); err != nil {
		r.cancel(err)
		return
	}
	close(r.decode)
	close(r.order)
}

// find hands out all frames, reads what follows them, and checks the stored
// bytes as a whole.
func (r *reader) find() error {
	var offset int64
	for i := range r.encoding.Frames {
		f, ok := receive(r.ctx, r.free)
		if !ok {
			return context.Cause(r.ctx)
		}
		var err error
		f.index, f.offset = i, offset
		f.compressed, err = readFrame(r.stream, f.compressed, maxCompressed(r.encoding.rawFrameSize(i)))
		if err != nil {
			return r.fault(r.encoding.storedOffset(offset), fmt.Errorf("frame %d: %w", i, err))
		}
		offset += int64(len(f.compressed))
		r.decode <- f
		r.order <- f
	}
	r.table = make([]byte, r.encoding.tableSize())
	if _, err := io.ReadFull(r.stream, r.table); err != nil {
		return r.fault(r.encoding.storedOffset(offset), fmt.Errorf("seek table: %w", noEOF(err)))
	}
	switch _, err := r.stream.ReadByte(); {
	case err == nil:
		return r.fault(r.source.n, errors.New("bytes after the seek table"))
	case !errors.Is(err, io.EOF):
		return r.fault(r.source.n, err)
	}
	if r.source.n != r.encoding.StoredSize {
		return &CorruptError{r.source.n, fmt.Errorf("it ends after %d bytes of %d", r.source.n, r.encoding.StoredSize)}
	}
	if sum := hex.EncodeToString(r.source.h.Sum(nil)); sum != r.encoding.StoredSHA256 {
		return &CorruptError{-1, fmt.Errorf("SHA-256 of the stored bytes is %s, not %s", sum, r.encoding.StoredSHA256)}
	}
	return nil
}

// fault distinguishes a source that failed from one that gave the wrong bytes.
func (r *reader) fault(offset int64, err error) error {
	if r.source.err != nil {
		return fmt.Errorf("read the stored object at byte %d: %w", r.source.n, r.source.err)
	}
	return &CorruptError{offset, err}
}

func (r *reader) decodeFrames() {
	for {
		f, ok := receive(r.ctx, r.decode)
		if !ok {
			return
		}
		var err error
		f.raw, err = decodeFrame(r.decoder, f.compressed, f.raw, r.encoding.rawFrameSize(f.index))
		if err != nil {
			r.cancel(&CorruptError{r.encoding.storedOffset(f.offset), fmt.Errorf("frame %d: %w", f.index, err)})
			return
		}
		f.decoded <- struct{}{}
	}
}

func (r *reader) checkFrames() {
	if err := r.check(); err != nil {
		r.cancel(err)
		return
	}
	close(r.ready)
}

// check passes frames on in their order, and checks the raw bytes as a whole
// when no more come.
func (r *reader) check() error {
	sum, hashed := sha256.New(), int64(0)
	var table tableBuilder
	for range r.encoding.Frames {
		f, ok := receive(r.ctx, r.order)
		if !ok {
			return context.Cause(r.ctx)
		}
		if _, ok := receive(r.ctx, f.decoded); !ok {
			return context.Cause(r.ctx)
		}
		rest := f.raw
		if p := r.prefix; p != nil && hashed <= p.Size && p.Size <= hashed+int64(len(rest)) {
			sum.Write(rest[:p.Size-hashed])
			sum.Sum(p.SHA256[:0])
			rest = rest[p.Size-hashed:]
		}
		sum.Write(rest)
		hashed += int64(len(f.raw))
		table.add(len(f.raw), f.compressed)
		r.ready <- f
	}
	// The stored bytes were checked as a whole before order was closed.
	if receive(r.ctx, r.order); r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if sum := hex.EncodeToString(sum.Sum(nil)); sum != r.encoding.RawSHA256 {
		return &CorruptError{-1, fmt.Errorf("SHA-256 of the raw bytes is %s, not %s", sum, r.encoding.RawSHA256)}
	}
	if want := table.finish(); !bytes.Equal(r.table, want) {
		return &CorruptError{r.encoding.StoredSize - int64(len(want)), errors.New("the seek table is not that of the frames before it")}
	}
	return nil
}

// next makes the next frame the current one.
func (r *reader) next() error {
	if r.current != nil {
		r.free <- r.current
		r.current = nil
	}
	f, ok := receive(r.ctx, r.ready)
	if ok {
		r.current, r.unread = f, f.raw
		return nil
	}
	if r.err = context.Cause(r.ctx); r.err == nil {
		r.err = io.EOF
	}
	return r.err
}

// Read reads raw bytes.
func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.err == nil && len(r.unread) == 0 {
		_ = r.next() // it keeps its error
	}
	if r.err != nil {
		return 0, r.err
	}
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

// WriteTo writes whole frames to w, and returns nil where Read would have
// returned io.EOF.
func (r *reader) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for r.err == nil {
		if len(r.unread) == 0 && r.next() != nil {
			break
		}
		n, err := w.Write(r.unread)
		written += int64(n)
		r.unread = r.unread[n:]
		if err != nil {
			return written, err
		}
	}
	if errors.Is(r.err, io.EOF) {
		return written, nil
	}
	return written, r.err
}

// Close stops the reading.
func (r *reader) Close() error {
	r.cancel(errReaderClosed)
	r.wg.Wait()
	r.decoder.Close()
	r.err, r.current, r.unread = errReaderClosed, nil, nil
	return nil
}

// source counts and hashes what is read from r, and keeps r's own errors, so
// that they can be distinguished from what its bytes cause. It reads one byte beyond
// limit at most, so that an endless source comes to an end.
type source struct {
	r     io.Reader
	h     hash.Hash
	n     int64
	limit int64
	err   error
}

// Read reads on.
func (s *source) Read(p []byte) (int, error) {
	if s.n > s.limit {
		return 0, fmt.Errorf("more than the %d bytes that were stored", s.limit)
	}
	p = p[:min(int64(len(p)), s.limit+1-s.n)]
	n, err := s.r.Read(p)
	s.h.Write(p[:n])
	s.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
