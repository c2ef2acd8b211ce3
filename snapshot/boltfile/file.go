// Package boltfile reads a bbolt database through an io.ReaderAt: from a file, or
// out of a stored object of which only the pages that are looked at have to be
// fetched. It maps nothing into memory and writes nothing.
//
// It promises:
//
//  1. What bbolt finds, it finds: every bucket, key and value.
//  2. A damaged database gives an error that names the page and its place in
//     the file: never a panic, never an endless walk, and never more memory
//     than a few pages as large as the file itself proves them to be.
//  3. Keys and values stay valid and unchanged. They must not be written to.
//
// A File and what comes from it is used by one goroutine at a time.
//
// The rows of etcd's bucket key are read here too, and nowhere else: see ParseRow and
// ParseKeyValue.
//
// # The format
//
// It is that of bbolt's internal/common (page.go, meta.go, bucket.go, inode.go),
// version 2. A file is a row of pages of one size. All numbers are in the byte
// order of the machine that wrote them; this package reads little-endian ones.
//
// Every page starts with a header of 16 bytes: its number (8 bytes), its kind
// (2), how many elements it has (2), and how many more pages it extends over
// (4). Pages 0 and 1 are of the kind meta; of two intact ones the one with the
// higher transaction number counts. After the header a meta page holds
//
//	magic 4 | version 4 | page size 4 | flags 4 | root page 8 | sequence 8 |
//	freelist page 8 | number of pages 8 | transaction 8 | FNV-1a of the 56 bytes before 8
//
// A branch page holds, for each child, its smallest key: elements of
//
//	position 4 | key size 4 | page 8
//
// and a leaf page keys and values:
//
//	flags 4 | position 4 | key size 4 | value size 4
//
// where a position counts from the element's own first byte, and the value
// follows its key. Flag 1 marks a bucket: its value is
//
//	root page 8 | sequence 8
//
// and, when the root page is 0, the bucket's only page, a leaf, right there.
package boltfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	// cachedPages are kept, the last ones that were read: enough to go from the
	// root to one bucket after the other without reading the way again.
	cachedPages = 32
	// MaxPageSize bounds one page with what it extends over. bbolt splits a page
	// that has more than four elements, and etcd refuses values of more than
	// 1.5 MiB unless set otherwise.
	MaxPageSize = 256 << 20
)

// File is an open database.
type File struct {
	ctx  context.Context
	r    io.ReaderAt
	data []byte // the whole file, if it is in memory: pages are not copied then
	meta Meta
	// otherMeta is what is wrong with the meta page that does not count; nil if nothing is.
	otherMeta error

	cache map[uint64]*Page
	order []uint64 // of the cached pages, the oldest first
}

// Open opens the database that r holds, of size bytes. It can be read until ctx ends:
// then its cause is the error. Others are ErrNotDatabase, ErrBigEndian, a *PageError,
// and r's own.
func Open(ctx context.Context, r io.ReaderAt, size int64) (*File, error) {
	r = contextReaderAt{ctx, r}
	m, other, err := findMeta(r, size)
	if err != nil {
		return nil, err
	}
	if m.Pages > math.MaxInt64/largestPage || int64(m.Pages)*int64(m.PageSize) > size {
		return nil, &PageError{uint64(size) / uint64(m.PageSize), size,
			fmt.Errorf("the file ends here, and is said to have %d pages of %d bytes: %w", m.Pages, m.PageSize, io.ErrUnexpectedEOF)}
	}
	return &File{ctx: ctx, r: r, meta: m, otherMeta: other, cache: map[uint64]*Page{}}, nil
}

// OpenBytes is Open of a database in memory, such as a mapped file. Keys and values lie in data.
func OpenBytes(ctx context.Context, data []byte) (*File, error) {
	f, err := Open(ctx, bytes.NewReader(data), int64(len(data)))
	if err == nil {
		f.data = data
	}
	return f, err
}

// Meta is the meta page that counts.
func (f *File) Meta() Meta { return f.meta }

// OtherMeta is what is wrong with the meta page that does not count; nil if nothing is.
func (f *File) OtherMeta() error { return f.otherMeta }

// PageSize is the size of a page in bytes.
func (f *File) PageSize() int { return f.meta.PageSize }

// Size is the number of bytes that the database's pages take. A file may be
// longer.
func (f *File) Size() int64 { return int64(f.meta.Pages) * int64(f.meta.PageSize) }

// Root is the bucket that holds the top-level buckets.
func (f *File) Root() *Bucket { return &Bucket{file: f, root: f.meta.Root} }

// Bucket opens a top-level bucket; nil when there is none of that name.
func (f *File) Bucket(name []byte) (*Bucket, error) { return f.Root().Bucket(name) }

// Get returns a value of a top-level bucket: nil where the bucket or the key is not there.
func (f *File) Get(bucket, key string) ([]byte, error) {
	b, err := f.Bucket([]byte(bucket))
	if err != nil || b == nil {
		return nil, err
	}
	return b.Get([]byte(key))
}

// ForEach calls do for every key of a top-level bucket, for none where it is not there.
func (f *File) ForEach(bucket string, do func(key, value []byte) error) error {
	b, err := f.Bucket([]byte(bucket))
	if err != nil || b == nil {
		return err
	}
	return b.ForEach(do)
}

// page reads a branch or leaf page.
func (f *File) page(id uint64) (*Page, error) {
	if p, ok := f.cache[id]; ok {
		return p, nil
	}
	if id < 2 || id >= f.meta.Pages {
		return nil, &PageError{id, -1, fmt.Errorf("it is referred to, and the pages that can hold data end below %d", f.meta.Pages)}
	}
	offset := int64(id) * int64(f.meta.PageSize)
	fault := func(err error) (*Page, error) { return nil, &PageError{id, offset, err} }
	b, err := f.read(offset, f.meta.PageSize, nil)
	if err != nil {
		return nil, err
	}
	size, err := f.meta.Extent(id, b)
	if err != nil {
		return fault(err)
	}
	if size > len(b) {
		if b, err = f.read(offset, size, b); err != nil {
			return nil, err
		}
	}
	p, err := parsePage(b)
	if err != nil {
		return fault(err)
	}
	p.id, p.offset, p.start = id, offset, offset
	if len(b) == f.meta.PageSize {
		f.keep(p)
	}
	return p, nil
}

// read returns size bytes at an offset, of which the first are known.
func (f *File) read(offset int64, size int, known []byte) ([]byte, error) {
	if f.data != nil {
		return f.data[offset:][:size:size], context.Cause(f.ctx)
	}
	b := make([]byte, size)
	n := copy(b, known)
	return b, ReadFull(f.r, b[n:], offset+int64(n))
}

// ReadFull fills b. Its errors are the place's, not the database's: whoever calls it has
// made sure that the bytes are within the size.
func ReadFull(r io.ReaderAt, b []byte, offset int64) error {
	n, err := r.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read the database at byte %d: %w", offset, err)
}

func (f *File) keep(p *Page) {
	if len(f.order) == cachedPages {
		delete(f.cache, f.order[0])
		f.order = append(f.order[:0], f.order[1:]...)
	}
	f.cache[p.id] = p
	f.order = append(f.order, p.id)
}

// contextReaderAt stops reading when the context has ended.
type contextReaderAt struct {
	ctx context.Context
	r   io.ReaderAt
}

// ReadAt reads on unless the context has ended.
func (c contextReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.ReadAt(p, off)
}

// Errors of Open, wrapped with what was found.
var (
	// ErrNotDatabase says that no meta page was found.
	ErrNotDatabase = errors.New("not a bbolt database")
	// ErrBigEndian says that the database was written on a big-endian machine.
	ErrBigEndian = errors.New("the database was written on a big-endian machine, which is not supported: use etcdutl on such a machine")
)

// PageError says that a page is damaged.
type PageError struct {
	Page   uint64
	Offset int64 // of the page in the file; -1 where it would be outside
	Err    error
}

func (e *PageError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("page %d: %v", e.Page, e.Err)
	}
	return fmt.Sprintf("page %d, at byte %d: %v", e.Page, e.Offset, e.Err)
}

func (e *PageError) Unwrap() error { return e.Err }
