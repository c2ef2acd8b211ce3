package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	// cachedPages are kept, the last ones that were read: enough to go from the
	// root to one bucket after the other without reading the way again.
	cachedPages = 32
	// maxPage bounds one page with what it extends over. bbolt splits a page
	// that has more than four elements, and etcd refuses values of more than
	// 1.5 MiB unless told otherwise.
	maxPage = 256 << 20
)

// File is an open database.
type File struct {
	r    io.ReaderAt
	meta meta

	cache map[uint64]*page
	order []uint64 // of the cached pages, the oldest first
}

// Open opens the database that r holds, of size bytes. Errors are ErrNotDatabase,
// ErrBigEndian, a *PageError, and r's own.
func Open(r io.ReaderAt, size int64) (*File, error) {
	m, err := findMeta(r, size)
	if err != nil {
		return nil, err
	}
	if m.pages > math.MaxInt64/largestPage || int64(m.pages)*int64(m.pageSize) > size {
		return nil, &PageError{uint64(size) / uint64(m.pageSize), size,
			fmt.Errorf("the file ends here, and is said to have %d pages of %d bytes: %w", m.pages, m.pageSize, io.ErrUnexpectedEOF)}
	}
	return &File{r: r, meta: m, cache: map[uint64]*page{}}, nil
}

// PageSize is the size of a page in bytes.
func (f *File) PageSize() int { return f.meta.pageSize }

// Size is the number of bytes that the database's pages take. A file may be
// longer.
func (f *File) Size() int64 { return int64(f.meta.pages) * int64(f.meta.pageSize) }

// Root is the bucket that holds the top-level buckets.
func (f *File) Root() *Bucket { return &Bucket{file: f, root: f.meta.root} }

// Bucket opens a top-level bucket; nil when there is none of that name.
func (f *File) Bucket(name []byte) (*Bucket, error) { return f.Root().Bucket(name) }

// page reads a branch or leaf page.
func (f *File) page(id uint64) (*page, error) {
	if p, ok := f.cache[id]; ok {
		return p, nil
	}
	if id < 2 || id >= f.meta.pages {
		return nil, &PageError{id, -1, fmt.Errorf("it is referred to, and the pages that can hold data end below %d", f.meta.pages)}
	}
	offset := int64(id) * int64(f.meta.pageSize)
	fault := func(err error) (*page, error) { return nil, &PageError{id, offset, err} }
	b := make([]byte, f.meta.pageSize)
	if err := f.read(b, offset); err != nil {
		return nil, err
	}
	if found := binary.LittleEndian.Uint64(b); found != id {
		return fault(fmt.Errorf("it says that it is page %d", found))
	}
	if more := uint64(binary.LittleEndian.Uint32(b[12:])); more > 0 {
		switch {
		case more >= f.meta.pages-id:
			return fault(fmt.Errorf("it extends over %d more pages, beyond the end", more))
		case (more+1)*uint64(f.meta.pageSize) > maxPage:
			return fault(fmt.Errorf("it extends over %d more pages, which is more than %d bytes", more, maxPage))
		}
		longer := make([]byte, (more+1)*uint64(f.meta.pageSize))
		copy(longer, b)
		if err := f.read(longer[len(b):], offset+int64(len(b))); err != nil {
			return nil, err
		}
		b = longer
	}
	p, err := parsePage(b)
	if err != nil {
		return fault(err)
	}
	p.id, p.offset = id, offset
	if len(b) == f.meta.pageSize {
		f.keep(p)
	}
	return p, nil
}

func (f *File) read(b []byte, offset int64) error {
	n, err := f.r.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read the database at byte %d: %w", offset, err)
}

func (f *File) keep(p *page) {
	if len(f.order) == cachedPages {
		delete(f.cache, f.order[0])
		f.order = append(f.order[:0], f.order[1:]...)
	}
	f.cache[p.id] = p
	f.order = append(f.order, p.id)
}
