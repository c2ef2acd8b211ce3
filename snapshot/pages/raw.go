package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// This file is for those who go through all pages themselves, in an order and
// with reads of their own, as the structure rung of verify does.

// MaxPageSize bounds a page together with the pages that it extends over.
const MaxPageSize = maxPage

// NoFreelist stands in a meta page for a freelist that is not stored: bbolt
// then finds what is free by going through all buckets, as etcd has it do.
const NoFreelist = ^uint64(0)

// Meta is what an intact meta page says.
type Meta struct {
	PageSize    int
	Root        uint64 // the page of the bucket of buckets
	Freelist    uint64 // the page of the freelist, or NoFreelist
	Pages       uint64 // numbers of pages are below this
	Transaction uint64
}

// Meta is the meta page that counts.
func (f *File) Meta() Meta { return f.meta.exported() }

func (m meta) exported() Meta { return Meta{m.pageSize, m.root, m.freelist, m.pages, m.transaction} }

// ParseMeta reads a meta page, and checks its sum, its number and its kind.
func ParseMeta(b []byte, id uint64) (Meta, error) {
	m, err := parseMeta(b)
	if err != nil {
		return Meta{}, err
	}
	switch h := ParseHeader(b); {
	case h.ID != id:
		return Meta{}, fmt.Errorf("it says that it is page %d", h.ID)
	case h.Kind != metaPage:
		return Meta{}, fmt.Errorf("kind %#04x is not a meta page", h.Kind)
	}
	return m.exported(), nil
}

// Header starts every page.
type Header struct {
	ID    uint64
	Kind  uint16
	Count int
	More  uint64 // how many more pages it extends over
}

// HeaderSize is the size of a page's header in bytes.
const HeaderSize = headerSize

// ParseHeader reads the header of the page that b, of HeaderSize bytes at
// least, starts with.
func ParseHeader(b []byte) Header {
	le := binary.LittleEndian
	return Header{le.Uint64(b), le.Uint16(b[8:]), int(le.Uint16(b[10:])), uint64(le.Uint32(b[12:]))}
}

// Page is a branch or leaf page.
type Page struct{ p page }

// Element is a child of a branch page, or a key of a leaf page.
type Element struct {
	Key    []byte
	Value  []byte // of a leaf's element
	Bucket bool   // whether Value is a bucket
	Child  uint64 // the page below a branch's element
}

// ParsePage checks that b, a page with all that it extends over, is a branch or
// leaf page as bbolt writes them: its elements in order, one right behind the
// other, none without a key.
func ParsePage(b []byte) (Page, error) {
	p, err := parsePage(b)
	if err != nil {
		return Page{}, err
	}
	return Page{*p}, p.checkLayout()
}

// checkLayout checks what parsePage does not need to know.
func (p *page) checkLayout() error {
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

// Leaf tells a leaf page from a branch page.
func (p *Page) Leaf() bool { return p.p.leaf }

// Len is the number of elements.
func (p *Page) Len() int { return p.p.count }

// Element returns element i, which lies within the page's bytes.
func (p *Page) Element(i int) Element {
	e := p.p.element(i)
	return Element{e.key, e.value, e.bucket, e.child}
}

// ParseBucket reads the value of an element that is a bucket: its root page,
// or, where that is 0, the only page that it has, which lies inside the value.
func ParseBucket(value []byte) (root uint64, inline Page, err error) {
	if len(value) < bucketHeaderSize {
		return 0, Page{}, fmt.Errorf("a bucket of %d bytes", len(value))
	}
	if root = binary.LittleEndian.Uint64(value); root != 0 {
		if len(value) != bucketHeaderSize {
			return 0, Page{}, fmt.Errorf("a bucket of %d bytes with a page of its own", len(value))
		}
		return root, Page{}, nil
	}
	inline, err = ParsePage(value[bucketHeaderSize:])
	if err == nil && !inline.Leaf() {
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
	begin += int(le.Uint32(p.p.bytes[begin+4:]))
	last := headerSize + (end-1)*elementSize
	e := p.p.bytes[last:]
	stop := last + int(le.Uint32(e[4:])) + int(le.Uint32(e[8:])) + int(le.Uint32(e[12:]))
	return p.p.bytes[begin:stop]
}
