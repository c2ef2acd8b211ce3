package codec

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"sync"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// cachedFrames are kept decompressed: enough for the path from a database's
// root to a leaf of each bucket that is looked at.
const cachedFrames = 8

// ReaderAt gives random access to the raw bytes of a stored object. It may be
// used concurrently. It reads, with one ReadAt of the source for each, only
// the frames that are asked for; each is checked against its checksum in the
// seek table, the object as a whole is not: NewReader does that.
//
// It keeps eight frames in memory, and one more, with its compressed bytes,
// for each ReadAt under way, of which the others wait beyond 16 MiB of frames. There is nothing to close.
type ReaderAt struct {
	stream   compressedStream
	encoding Encoding
	table    []frame
	decoder  *zstd.Decoder
	reading  chan struct{} // has room for as many frames as are read at once

	mu     sync.Mutex
	frames map[int]*list.Element // of *cachedFrame
	recent *list.List            // most recently used first
}

type cachedFrame struct {
	index int
	ready chan struct{} // closed when raw and err are set
	raw   []byte
	err   error
}

// compressedStream is a stored object without its encryption.
type compressedStream interface {
	// read reads the n bytes from off on; they are within the stream.
	read(off int64, n int) ([]byte, error)
	size() int64
}

// OpenAt opens a stored object of size bytes. It reads the age header and the
// seek table. Stored bytes that are not as described are a *CorruptError, here
// and later; identities that do not fit are an *IdentityError; a failure of
// src is returned as such.
func OpenAt(src io.ReaderAt, size int64, e Encoding, identities ...age.Identity) (*ReaderAt, error) {
	if err := e.Validate(); err != nil {
		return nil, &CorruptError{-1, fmt.Errorf("the object's description: %w", err)}
	}
	if size != e.StoredSize {
		return nil, &CorruptError{min(size, e.StoredSize), fmt.Errorf("it has %d bytes, %d were stored", size, e.StoredSize)}
	}
	var stream compressedStream = plainStream{src, size}
	if e.Encrypted() {
		sealed, err := openSealed(src, e, identities)
		if err != nil {
			return nil, err
		}
		stream = sealed
	}
	start := stream.size() - e.tableSize()
	if start < 0 {
		return nil, &CorruptError{-1, errors.New("it is too short for its seek table")}
	}
	b, err := stream.read(start, int(e.tableSize()))
	if err != nil {
		return nil, err
	}
	table, err := parseTable(b, e, stream.size())
	if err != nil {
		return nil, &CorruptError{e.storedOffset(start), err}
	}
	decoder, err := newDecoder(e.FrameSize)
	if err != nil {
		return nil, err
	}
	return &ReaderAt{
		stream: stream, encoding: e, table: table, decoder: decoder,
		reading: make(chan struct{}, maxReading/e.FrameSize),
		frames:  map[int]*list.Element{}, recent: list.New(),
	}, nil
}

// Size is the number of raw bytes.
func (r *ReaderAt) Size() int64 { return r.encoding.RawSize }

// ReadAt reads raw bytes, as io.ReaderAt describes.
func (r *ReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at negative offset %d", off)
	}
	n := 0
	for n < len(p) {
		if off >= r.Size() {
			return n, io.EOF
		}
		raw, err := r.frame(int(off / int64(r.encoding.FrameSize)))
		if err != nil {
			return n, err
		}
		copied := copy(p[n:], raw[off%int64(r.encoding.FrameSize):])
		n, off = n+copied, off+int64(copied)
	}
	return n, nil
}

// frame returns the raw bytes of a frame, which many readers may ask for at
// once though it is read once.
func (r *ReaderAt) frame(i int) ([]byte, error) {
	r.mu.Lock()
	if element, ok := r.frames[i]; ok {
		r.recent.MoveToFront(element)
		r.mu.Unlock()
		f := element.Value.(*cachedFrame)
		<-f.ready
		return f.raw, f.err
	}
	f := &cachedFrame{index: i, ready: make(chan struct{})}
	r.frames[i] = r.recent.PushFront(f)
	if r.recent.Len() > cachedFrames {
		r.drop(r.recent.Back())
	}
	r.mu.Unlock()

	f.raw, f.err = r.readFrame(i)
	if f.err != nil {
		// The next attempt may do better, when the source failed.
		r.mu.Lock()
		if element, ok := r.frames[i]; ok && element.Value == f {
			r.drop(element)
		}
		r.mu.Unlock()
	}
	close(f.ready)
	return f.raw, f.err
}

func (r *ReaderAt) drop(element *list.Element) {
	delete(r.frames, element.Value.(*cachedFrame).index)
	r.recent.Remove(element)
}

func (r *ReaderAt) readFrame(i int) ([]byte, error) {
	entry := r.table[i]
	r.reading <- struct{}{}
	defer func() { <-r.reading }()
	compressed, err := r.stream.read(entry.offset, entry.size)
	if err != nil {
		return nil, err
	}
	raw, err := decodeFrame(r.decoder, compressed, nil, r.encoding.rawFrameSize(i))
	if err == nil && checksumOf(compressed) != entry.checksum {
		err = errors.New("checksum is not that of the seek table")
	}
	if err != nil {
		return nil, &CorruptError{r.encoding.storedOffset(entry.offset), fmt.Errorf("frame %d: %w", i, err)}
	}
	return raw, nil
}

// plainStream is an object without encryption.
type plainStream struct {
	src   io.ReaderAt
	bytes int64
}

func (s plainStream) size() int64 { return s.bytes }

func (s plainStream) read(off int64, n int) ([]byte, error) {
	return readAt(s.src, off, n)
}

// readAt reads exactly n bytes of the stored object, which has them.
func readAt(src io.ReaderAt, off int64, n int) ([]byte, error) {
	b := make([]byte, n)
	if got, err := src.ReadAt(b, off); got < n {
		return nil, fmt.Errorf("read the stored object at byte %d: %w", off, noEOF(err))
	}
	return b, nil
}
