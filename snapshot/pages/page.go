package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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

// page is a branch or a leaf. Its elements lie within its bytes, which
// parsePage has checked.
type page struct {
	id     uint64 // of the page, or of the one that an inline bucket lies in
	offset int64  // of that page in the file
	leaf   bool
	count  int
	more   uint32 // how many more pages it extends over
	bytes  []byte
}

// element is one of a page's.
type element struct {
	key    []byte
	value  []byte // of a leaf's element
	bucket bool   // whether value is a bucket
	child  uint64 // of a branch's element
}

// parsePage checks that b is a branch or leaf page whose elements lie within.
func parsePage(b []byte) (*page, error) {
	if len(b) < headerSize {
		return nil, fmt.Errorf("%d bytes are not a page", len(b))
	}
	le := binary.LittleEndian
	p := &page{count: int(le.Uint16(b[10:])), more: le.Uint32(b[12:]), bytes: b}
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

// element returns element i, which is below count.
func (p *page) element(i int) element {
	le := binary.LittleEndian
	e := p.bytes[headerSize+i*elementSize:]
	if !p.leaf {
		position, size := le.Uint32(e), le.Uint32(e[4:])
		return element{key: e[position:][:size:size], child: le.Uint64(e[8:])}
	}
	position, keySize, valueSize := le.Uint32(e[4:]), le.Uint32(e[8:]), le.Uint32(e[12:])
	data := e[position:]
	return element{
		key:    data[:keySize:keySize],
		value:  data[keySize:][:valueSize:valueSize],
		bucket: le.Uint32(e)&bucketFlag != 0,
	}
}

// search returns the first element whose key is not below key.
func (p *page) search(key []byte) int {
	return sort.Search(p.count, func(i int) bool { return bytes.Compare(p.element(i).key, key) >= 0 })
}
