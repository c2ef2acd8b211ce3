package boltfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
	"sort"
)

// Kinds of pages, and the flag of an element that is a bucket.
const (
	branchPage   = 0x01
	leafPage     = 0x02
	metaPage     = 0x04
	freelistPage = 0x10

	// longFreelist is the count of a freelist whose true one, of eight bytes,
	// stands before the first page.
	longFreelist = 0xffff

	bucketFlag = 0x01

	elementSize = 16 // in leaf and branch pages alike
)

// Page is a branch or leaf page. Its elements lie within its bytes, which parsePage
// has checked.
type Page struct {
	id     uint64 // of the page, or of the one that an inline bucket lies in
	offset int64  // of that page in the file
	start  int64  // of bytes in the file
	leaf   bool
	count  int
	more   uint32 // how many more pages it extends over
	bytes  []byte
}

// Element is a child of a branch page, or a key of a leaf page.
type Element struct {
	Key    []byte
	Value  []byte // of a leaf's element
	Bucket bool   // whether Value is a bucket
	Child  uint64 // the page below a branch's element
}

// parsePage checks that b is a branch or leaf page whose elements lie within.
func parsePage(b []byte) (*Page, error) {
	if len(b) < headerSize {
		return nil, fmt.Errorf("%d bytes are not a page", len(b))
	}
	le := binary.LittleEndian
	p := &Page{count: int(le.Uint16(b[10:])), more: le.Uint32(b[12:]), bytes: b}
	switch kind := le.Uint16(b[8:]); kind {
	case branchPage:
		if p.count == 0 {
			return nil, errors.New("a branch page without children")
		}
	case leafPage:
		p.leaf = true
	default:
		return nil, fmt.Errorf("kind %#04x is neither a branch nor a leaf", kind)
	}
	if headerSize+p.count*elementSize > len(b) {
		return nil, fmt.Errorf("%d elements do not fit into %d bytes", p.count, len(b))
	}
	for i := range p.count {
		at := headerSize + i*elementSize
		e := b[at:]
		// Three numbers of 32 bits each: their sum cannot overflow.
		var position, size uint64
		if p.leaf {
			position, size = uint64(le.Uint32(e[4:])), uint64(le.Uint32(e[8:]))+uint64(le.Uint32(e[12:]))
		} else {
			position, size = uint64(le.Uint32(e)), uint64(le.Uint32(e[4:]))
		}
		if uint64(at)+position+size > uint64(len(b)) {
			return nil, fmt.Errorf("element %d ends outside of the page's %d bytes", i, len(b))
		}
	}
	return p, nil
}

// Element returns element i, which is below Len and lies within the page's bytes.
func (p *Page) Element(i int) Element {
	le := binary.LittleEndian
	e := p.bytes[headerSize+i*elementSize:]
	if !p.leaf {
		position, size := le.Uint32(e), le.Uint32(e[4:])
		return Element{Key: e[position:][:size:size], Child: le.Uint64(e[8:])}
	}
	position, keySize, valueSize := le.Uint32(e[4:]), le.Uint32(e[8:]), le.Uint32(e[12:])
	data := e[position:]
	return Element{
		Key:    data[:keySize:keySize],
		Value:  data[keySize:][:valueSize:valueSize],
		Bucket: le.Uint32(e)&bucketFlag != 0,
	}
}

// keyAt is the offset of a leaf element's key in the file.
func (p *Page) keyAt(i int) int64 {
	at := headerSize + i*elementSize
	return p.start + int64(at) + int64(binary.LittleEndian.Uint32(p.bytes[at+4:]))
}

// search returns the first element whose key is not below key.
func (p *Page) search(key []byte) int {
	return sort.Search(p.count, func(i int) bool { return bytes.Compare(p.Element(i).Key, key) >= 0 })
}

const (
	magic         = 0xED0CDAED
	formatVersion = 2

	headerSize   = 16
	metaSize     = 64 // after the page's header
	checksumAt   = 56
	smallestPage = 1 << 10
	largestPage  = 16 << 20 // as far as bbolt looks for a meta page
)

// NoFreelist stands in a meta page for a freelist that is not stored: bbolt
// then finds what is free by going through all buckets, as etcd has it do.
const NoFreelist = ^uint64(0)

// Meta is what an intact meta page says.
type Meta struct {
	Page        uint64 // the meta page itself: 0 or 1
	PageSize    int
	Root        uint64 // the page of the bucket of buckets
	Freelist    uint64 // the page of the freelist, or NoFreelist
	Pages       uint64 // numbers of pages are below this
	Transaction uint64
}

// ParseMeta reads the meta page that b starts with, and checks its sum, its number and its kind.
func ParseMeta(b []byte, id uint64) (Meta, error) {
	if len(b) < headerSize+metaSize {
		return Meta{}, io.ErrUnexpectedEOF
	}
	head := ParseHeader(b)
	b = b[headerSize:]
	le := binary.LittleEndian
	switch found := le.Uint32(b); found {
	case magic:
	case bits.ReverseBytes32(magic):
		return Meta{}, ErrBigEndian
	default:
		return Meta{}, fmt.Errorf("magic number %#08x is not bbolt's %#08x", found, magic)
	}
	if v := le.Uint32(b[4:]); v != formatVersion {
		return Meta{}, fmt.Errorf("bbolt format version %d, not %d", v, formatVersion)
	}
	sum := fnv.New64a()
	sum.Write(b[:checksumAt])
	if sum.Sum64() != le.Uint64(b[checksumAt:]) {
		return Meta{}, errors.New("checksum does not match")
	}
	m := Meta{
		Page:        id,
		PageSize:    int(le.Uint32(b[8:])),
		Root:        le.Uint64(b[16:]),
		Freelist:    le.Uint64(b[32:]),
		Pages:       le.Uint64(b[40:]),
		Transaction: le.Uint64(b[48:]),
	}
	if m.PageSize < smallestPage || m.PageSize > largestPage || bits.OnesCount(uint(m.PageSize)) != 1 {
		return Meta{}, fmt.Errorf("page size %d is not a power of two from %d to %d", m.PageSize, smallestPage, largestPage)
	}
	switch {
	case head.ID != id:
		return Meta{}, fmt.Errorf("it says that it is page %d", head.ID)
	case head.Kind != metaPage:
		return Meta{}, fmt.Errorf("kind %#04x is not a meta page", head.Kind)
	}
	return m, nil
}

// findMeta returns the meta page that counts. The first one gives the page
// size and with it where the second one is; when the first is damaged, the
// second is looked for behind each size that a page can have. The other error is what is
// wrong with the page that does not count; nil if it is sound.
func findMeta(r io.ReaderAt, size int64) (m Meta, other, err error) {
	read := func(at int64, id uint64) (Meta, error) {
		b := make([]byte, headerSize+metaSize)
		n, err := r.ReadAt(b, at)
		if n < len(b) && !errors.Is(err, io.EOF) {
			return Meta{}, &readError{fmt.Errorf("read the meta page at byte %d: %w", at, err)}
		}
		return ParseMeta(b[:n], id)
	}
	var failed *readError
	best, firstErr := read(0, 0)
	if errors.As(firstErr, &failed) || errors.Is(firstErr, ErrBigEndian) {
		return Meta{}, nil, firstErr
	}
	candidates := []int{best.PageSize}
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
		second, err := read(int64(pageSize), 1)
		switch {
		case errors.As(err, &failed), errors.Is(err, ErrBigEndian):
			return Meta{}, nil, err
		case err != nil || second.PageSize != pageSize:
			if found {
				other = &PageError{1, int64(pageSize), cmp.Or(err, fmt.Errorf("it has pages of %d bytes, page 0 of %d", second.PageSize, pageSize))}
			}
			continue
		case !found || second.Transaction > best.Transaction:
			best, found = second, true
		}
	}
	if !found {
		return Meta{}, nil, fmt.Errorf("%w: page 0: %w; no intact page 1 either", ErrNotDatabase, firstErr)
	}
	if firstErr != nil {
		other = &PageError{0, 0, firstErr}
	}
	return best, other, nil
}

// readError marks a failure of the source, as against of its bytes.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// What follows is for those who go through all pages themselves, in an order and
// with reads of their own, as the structure level of verify does.

// Header starts every page.
type Header struct {
	ID    uint64
	Kind  uint16
	Count int
	More  uint64 // how many more pages it extends over
}

// ParseHeader reads the header of the page that b, of 16 bytes at
// least, starts with.
func ParseHeader(b []byte) Header {
	le := binary.LittleEndian
	return Header{le.Uint64(b), le.Uint16(b[8:]), int(le.Uint16(b[10:])), uint64(le.Uint32(b[12:]))}
}

// Extent is how many bytes the page of a number takes with all that it extends over, by
// the header that it starts with.
func (m Meta) Extent(id uint64, header []byte) (bytes int, err error) {
	h := ParseHeader(header)
	size := (h.More + 1) * uint64(m.PageSize)
	switch {
	case h.ID != id:
		return 0, fmt.Errorf("it says that it is page %d", h.ID)
	case h.More >= m.Pages-id:
		return 0, fmt.Errorf("it extends over %d more pages, beyond the end", h.More)
	case size > MaxPageSize:
		return 0, fmt.Errorf("it extends over %d more pages, which is more than %d bytes", h.More, MaxPageSize)
	}
	return int(size), nil
}

// ParsePage checks that b, a page with all that it extends over, is a branch or
// leaf page as bbolt writes them: its elements in order, one right behind the
// other, none without a key.
func ParsePage(b []byte) (Page, error) {
	p, err := parsePage(b)
	if err != nil {
		return Page{}, err
	}
	return *p, p.checkLayout()
}

// checkLayout checks what parsePage does not need to know.
func (p *Page) checkLayout() error {
	le := binary.LittleEndian
	free := headerSize + p.count*elementSize // where the next element's bytes begin
	for i := range p.count {
		at := headerSize + i*elementSize
		e := p.bytes[at:]
		position, key, value := le.Uint32(e), le.Uint32(e[4:]), uint32(0)
		if p.leaf {
			if flags := position; flags&^bucketFlag != 0 {
				return fmt.Errorf("element %d has the unknown flags %#x", i, flags)
			}
			position, key, value = key, le.Uint32(e[8:]), le.Uint32(e[12:])
		}
		switch {
		case key == 0:
			return fmt.Errorf("element %d has an empty key", i)
		case at+int(position) != free:
			return fmt.Errorf("element %d begins at byte %d, and the one before it ends at byte %d", i, at+int(position), free)
		}
		free += int(key) + int(value)
	}
	// bbolt takes as many pages as the bytes fill, or one more.
	if size := len(p.bytes); size-size/(int(p.more)+1) > free {
		return fmt.Errorf("it extends over %d more pages, and has %d bytes of content", p.more, free)
	}
	return nil
}

// Leaf reports whether it is a leaf page, not a branch page.
func (p *Page) Leaf() bool { return p.leaf }

// Len is the number of elements.
func (p *Page) Len() int { return p.count }

// ParseBucket reads the value of an element that is a bucket: its root page,
// or, where that is 0, the only page that it has, which lies inside the value.
func ParseBucket(value []byte) (root uint64, inline Page, err error) {
	root, p, err := parseBucket(value)
	switch {
	case err != nil:
		return 0, Page{}, err
	case root == 0:
		return 0, *p, p.checkLayout()
	case len(value) != bucketHeaderSize:
		return 0, Page{}, fmt.Errorf("a bucket of %d bytes with a page of its own", len(value))
	}
	return root, Page{}, nil
}

func parseBucket(value []byte) (root uint64, inline *Page, err error) {
	if len(value) < bucketHeaderSize {
		return 0, nil, fmt.Errorf("a bucket of %d bytes", len(value))
	}
	if root = binary.LittleEndian.Uint64(value); root != 0 {
		return root, nil, nil
	}
	inline, err = parsePage(value[bucketHeaderSize:])
	if err == nil && !inline.leaf {
		err = errors.New("a branch page inside another page")
	}
	return 0, inline, err
}

// ParseFreelist reads the numbers of the free pages from a freelist page, b
// with all that it extends over.
func ParseFreelist(b []byte) ([]uint64, error) {
	if len(b) < headerSize {
		return nil, io.ErrUnexpectedEOF
	}
	h := ParseHeader(b)
	if h.Kind != freelistPage {
		return nil, fmt.Errorf("kind %#04x is not a freelist", h.Kind)
	}
	rest, n := b[headerSize:], uint64(h.Count)
	if n == longFreelist {
		if len(rest) < 8 {
			return nil, io.ErrUnexpectedEOF
		}
		n, rest = binary.LittleEndian.Uint64(rest), rest[8:]
	}
	if n > uint64(len(rest)/8) {
		return nil, fmt.Errorf("%d free pages do not fit into %d bytes", n, len(rest))
	}
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = binary.LittleEndian.Uint64(rest[i*8:])
	}
	return ids, nil
}

// Content is what the elements from the first on, up to before the end, hold:
// each key with its value behind it, in order. They lie that way, as ParsePage
// has made sure, in a leaf.
func (p *Page) Content(first, end int) []byte {
	if first >= end {
		return nil
	}
	le := binary.LittleEndian
	begin := headerSize + first*elementSize
	begin += int(le.Uint32(p.bytes[begin+4:]))
	last := headerSize + (end-1)*elementSize
	e := p.bytes[last:]
	stop := last + int(le.Uint32(e[4:])) + int(le.Uint32(e[8:])) + int(le.Uint32(e[12:]))
	return p.bytes[begin:stop]
}
