package verifytest

import (
	"encoding/binary"
	"fmt"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/verify/report"
)

func structure(name string, inject func(testing.TB, *Repo) string, kinds ...report.Kind) Fault {
	return Fault{Name: name, Rung: report.Structure, Kinds: kinds, Inject: inject, Database: true}
}

// onPages alters the pages of the last backup's database.
func onPages(change func(m *image) string) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		m := newImage(t, r.Database(t, last))
		what := change(m)
		r.Store(t, last, m.data)
		return what
	}
}

// onFreelist does so with a database whose list of free pages is stored, and not
// empty.
func onFreelist(change func(m *image) string) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		data := r.Database(t, last)
		for range 2 { // the pages that the first one frees
			data = edited(t, data, func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte("meta"))
				return b.Put([]byte("term"), append([]byte{}, b.Get([]byte("term"))...))
			})
		}
		m := newImage(t, data)
		if list := m.freelist(); m.count(list) < 2 {
			t.Fatalf("the freelist in page %d has %d pages", list, m.count(list))
		}
		what := change(m)
		r.Store(t, last, m.data)
		return what
	}
}

func pageFault(name string, change func(m *image) string) Fault {
	return structure("page: "+name, onPages(change), report.KindPage)
}

// varying is for a fault that bbolt's own check finds only where the pages behind
// it are in use.
func varying(f Fault) Fault {
	f.Varies = true
	return f
}

// pageFaults: every sum over the file is right.
func pageFaults() []Fault {
	return []Fault{
		pageFault("one with another kind", func(m *image) string {
			id := m.leaf()
			m.page(id)[8] = 0x40
			return fmt.Sprint("page ", id)
		}),
		pageFault("one that says it is another one", func(m *image) string {
			id := m.leaf()
			m.page(id)[0]++
			return fmt.Sprint("page ", id)
		}),
		pageFault("one filled with zeros", func(m *image) string {
			id := m.leaf()
			clear(m.page(id))
			return fmt.Sprint("page ", id)
		}),
		pageFault("a branch that points behind the end", func(m *image) string {
			m.setChild(m.keyBranch(), 1, 1<<20)
			return "a branch"
		}),
		pageFault("a branch that points to itself", func(m *image) string {
			branch := m.keyBranch()
			m.setChild(branch, 1, branch)
			return "a branch"
		}),
		pageFault("one used twice", func(m *image) string {
			branch := m.keyBranch()
			m.setChild(branch, 1, m.child(branch, 0))
			return "a branch"
		}),
		pageFault("a branch that points to a page of another bucket", func(m *image) string {
			m.setChild(m.keyBranch(), 1, binary.LittleEndian.Uint64(m.meta()[16:]))
			return "a branch"
		}),
		pageFault("two of a branch's pages swapped", func(m *image) string {
			branch := m.keyBranch()
			a, b := m.child(branch, 0), m.child(branch, 1)
			m.setChild(branch, 0, b)
			m.setChild(branch, 1, a)
			return "a branch"
		}),
		pageFault("two rows out of order", func(m *image) string {
			id := m.leaf()
			a, b := m.key(id, 1), m.key(id, 2)
			for i := range min(len(a), len(b)) {
				a[i], b[i] = b[i], a[i]
			}
			return fmt.Sprint("page ", id)
		}),
		pageFault("an element that points out of its page", func(m *image) string {
			id := m.leaf()
			binary.LittleEndian.PutUint32(m.element(id, 1)[4:], 1<<24)
			return fmt.Sprint("page ", id)
		}),
		pageFault("more elements than it has room for", func(m *image) string {
			id := m.leaf()
			m.setCount(id, 5000)
			return fmt.Sprint("page ", id)
		}),
		varying(pageFault("an overflow that reaches into the next ones", func(m *image) string {
			id := m.leaf()
			binary.LittleEndian.PutUint32(m.page(id)[12:], 2)
			return fmt.Sprint("page ", id)
		})),
		pageFault("both meta pages broken", func(m *image) string {
			for i := range 2 {
				m.data[i*m.pageSize+headerSize+20] ^= 1
			}
			return "both sums are wrong"
		}),
		structure("page: the meta pages name another root", onPages(func(m *image) string {
			leaf := m.leaf()
			m.onMetas(func(meta []byte) { binary.LittleEndian.PutUint64(meta[16:], leaf) })
			return fmt.Sprint("page ", leaf)
		}), report.KindPage, report.KindBucket),
		varying(pageFault("the end of the file missing", func(m *image) string {
			m.data = m.data[:len(m.data)-m.pageSize]
			return "a page"
		})),
		structure("page: one lost", onFreelist(func(m *image) string {
			list := m.freelist()
			m.setCount(list, m.count(list)-1)
			return fmt.Sprint("the last one on the freelist in page ", list)
		}), report.KindPage),
		structure("page: one in use and on the freelist", onFreelist(func(m *image) string {
			list, leaf := m.freelist(), m.leaf()
			binary.LittleEndian.PutUint64(m.page(list)[headerSize:], leaf)
			return fmt.Sprint("page ", leaf)
		}), report.KindPage),
	}
}
