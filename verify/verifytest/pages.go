package verifytest

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"testing"
)

// image is a bbolt file whose pages are to be altered behind bbolt's back.
type image struct {
	testing.TB
	data     []byte
	pageSize int
}

const (
	headerSize  = 16 // of a page: number (8), kind (2), elements (2), more pages (4)
	elementSize = 16
	leafPage    = 2
	branchPage  = 1
)

func newImage(t testing.TB, database []byte) *image {
	return &image{t, slices.Clone(database), int(binary.LittleEndian.Uint32(database[headerSize+8:]))}
}

func (m *image) page(id uint64) []byte { return m.data[int(id)*m.pageSize:][:m.pageSize] }

func (m *image) kind(id uint64) uint16 { return binary.LittleEndian.Uint16(m.page(id)[8:]) }
func (m *image) count(id uint64) int   { return int(binary.LittleEndian.Uint16(m.page(id)[10:])) }

func (m *image) setCount(id uint64, n int) {
	binary.LittleEndian.PutUint16(m.page(id)[10:], uint16(n))
}

// element is the description of an element; its numbers can be set. A leaf's:
// flags, position, size of the key, size of the value. A branch's: position, size
// of the key, and the page in eight bytes.
func (m *image) element(id uint64, i int) []byte {
	return m.page(id)[headerSize+i*elementSize:][:elementSize]
}

// key is that of a leaf's or of a branch's element.
func (m *image) key(id uint64, i int) []byte {
	e, at := m.element(id, i), 4
	if m.kind(id) == branchPage {
		at = 0
	}
	position, size := binary.LittleEndian.Uint32(e[at:]), binary.LittleEndian.Uint32(e[at+4:])
	return m.data[int(id)*m.pageSize+headerSize+i*elementSize+int(position):][:size]
}

// value is that of a leaf's element.
func (m *image) value(id uint64, i int) []byte {
	e := m.element(id, i)
	from := int(id)*m.pageSize + headerSize + i*elementSize + int(binary.LittleEndian.Uint32(e[4:])+binary.LittleEndian.Uint32(e[8:]))
	return m.data[from:][:binary.LittleEndian.Uint32(e[12:])]
}

// meta is the meta page that counts, behind the page's header: page of the
// root bucket at 16, of the freelist at 32, number of pages at 40, transaction
// at 48, sum at 56.
func (m *image) meta() []byte {
	a, b := m.data[headerSize:][:64], m.data[m.pageSize+headerSize:][:64]
	if binary.LittleEndian.Uint64(a[48:]) > binary.LittleEndian.Uint64(b[48:]) {
		return a
	}
	return b
}

// onMetas changes both meta pages, and their sums.
func (m *image) onMetas(change func(meta []byte)) {
	for i := range 2 {
		meta := m.data[i*m.pageSize+headerSize:][:64]
		change(meta)
		sum := fnv.New64a()
		sum.Write(meta[:56])
		binary.LittleEndian.PutUint64(meta[56:], sum.Sum64())
	}
}

func (m *image) freelist() uint64 { return binary.LittleEndian.Uint64(m.meta()[32:]) }

// bucket is the page where a bucket's rows begin.
func (m *image) bucket(name string) uint64 {
	m.Helper()
	root := binary.LittleEndian.Uint64(m.meta()[16:])
	for i := range m.count(root) {
		if string(m.key(root, i)) == name {
			return binary.LittleEndian.Uint64(m.value(root, i))
		}
	}
	m.Fatalf("no bucket %s in page %d", name, root)
	return 0
}

// keyBranch is the page that points to the leaves of the bucket key, leaf one of
// these.
func (m *image) keyBranch() uint64 {
	m.Helper()
	id := m.bucket("key")
	if m.kind(id) != branchPage || m.count(id) < 3 {
		m.Fatalf("the bucket key is too small: page %d has kind %d, %d elements", id, m.kind(id), m.count(id))
	}
	return id
}

func (m *image) child(branch uint64, i int) uint64 {
	return binary.LittleEndian.Uint64(m.element(branch, i)[8:])
}

func (m *image) setChild(branch uint64, i int, page uint64) {
	binary.LittleEndian.PutUint64(m.element(branch, i)[8:], page)
}

// leaf is a leaf of the bucket key that has several rows.
func (m *image) leaf() uint64 {
	m.Helper()
	branch := m.keyBranch()
	for i := range m.count(branch) {
		if id := m.child(branch, i); m.kind(id) == leafPage && m.count(id) > 4 {
			return id
		}
	}
	m.Fatal("no leaf with several rows")
	return 0
}
