package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
)

const (
	magic         = 0xED0CDAED
	formatVersion = 2

	headerSize   = 16
	metaSize     = 64 // after the page's header
	checksumAt   = 56
	smallestPage = 1 << 10
	largestPage  = 16 << 20 // as far as bbolt looks for a meta page
)

// meta is what a meta page says.
type meta struct {
	pageSize    int
	root        uint64
	freelist    uint64
	pages       uint64 // numbers of pages are below this
	transaction uint64
}

// parseMeta reads the meta page that b starts with.
func parseMeta(b []byte) (meta, error) {
	if len(b) < headerSize+metaSize {
		return meta{}, io.ErrUnexpectedEOF
	}
	b = b[headerSize:]
	le := binary.LittleEndian
	switch found := le.Uint32(b); found {
	case magic:
	case bits.ReverseBytes32(magic):
		return meta{}, ErrBigEndian
	default:
		return meta{}, fmt.Errorf("magic number %#08x is not bbolt's %#08x", found, magic)
	}
	if v := le.Uint32(b[4:]); v != formatVersion {
		return meta{}, fmt.Errorf("bbolt format version %d, not %d", v, formatVersion)
	}
	sum := fnv.New64a()
	sum.Write(b[:checksumAt])
	if sum.Sum64() != le.Uint64(b[checksumAt:]) {
		return meta{}, errors.New("checksum does not match")
	}
	m := meta{
		pageSize:    int(le.Uint32(b[8:])),
		root:        le.Uint64(b[16:]),
		freelist:    le.Uint64(b[32:]),
		pages:       le.Uint64(b[40:]),
		transaction: le.Uint64(b[48:]),
	}
	if m.pageSize < smallestPage || m.pageSize > largestPage || bits.OnesCount(uint(m.pageSize)) != 1 {
		return meta{}, fmt.Errorf("page size %d is not a power of two from %d to %d", m.pageSize, smallestPage, largestPage)
	}
	return m, nil
}

// findMeta returns the meta page that counts. The first one tells the page
// size and with it where the second one is; when the first is damaged, the
// second is looked for behind each size that a page can have.
func findMeta(r io.ReaderAt, size int64) (meta, error) {
	read := func(at int64) (meta, error) {
		b := make([]byte, headerSize+metaSize)
		n, err := r.ReadAt(b, at)
		if n < len(b) && !errors.Is(err, io.EOF) {
			return meta{}, &readError{fmt.Errorf("read the meta page at byte %d: %w", at, err)}
		}
		return parseMeta(b[:n])
	}
	var failed *readError
	best, firstErr := read(0)
	if errors.As(firstErr, &failed) || errors.Is(firstErr, ErrBigEndian) {
		return meta{}, firstErr
	}
	candidates := []int{best.pageSize}
	if firstErr != nil {
		candidates = nil
		for s := smallestPage; s <= largestPage; s *= 2 {
			candidates = append(candidates, s)
		}
	}
	found := firstErr == nil
	for _, pageSize := range candidates {
		if int64(pageSize)+headerSize+metaSize > size {
			break
		}
		second, err := read(int64(pageSize))
		switch {
		case errors.As(err, &failed), errors.Is(err, ErrBigEndian):
			return meta{}, err
		case err != nil || second.pageSize != pageSize:
			continue
		case !found || second.transaction > best.transaction:
			best, found = second, true
		}
	}
	if !found {
		return meta{}, fmt.Errorf("%w: page 0: %w; no intact page 1 either", ErrNotDatabase, firstErr)
	}
	return best, nil
}

// readError marks a failure of the source, as against of its bytes.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }
