package engine

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
)

func removeIfThere(path string) error {
	if err := safedir.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// abandon frees everything.
func (b *Bulk) abandon() (err error) {
	b.closed, b.failed = true, ErrClosed
	if b.rest != nil && !b.rest.closed {
		err = b.rest.Close()
	}
	if b.rows != nil {
		err = errors.Join(err, b.rows.close())
	}
	b.index, b.leases, b.undo = nil, nil, nil
	return errors.Join(err, removeIfThere(b.restPath()))
}

// writeOut writes the database.
func (b *Bulk) writeOut() error {
	b.rest.applied, b.rest.term = b.applied, b.term
	b.rest.index.SetConsistentIndex(b.applied, b.term)
	if err := b.rest.Close(); err != nil {
		return err
	}
	f, err := safedir.Create(b.out)
	if err != nil {
		return err
	}
	w := newPageWriter(f)
	err = b.writeRows(w)
	if ended := w.finish(); err == nil {
		err = ended
	}
	if err := errors.Join(err, f.Close(), b.rows.unchanged()); err != nil {
		return err
	}
	return b.writeOthers()
}

// writeRows writes the rows that a compaction leaves, and hashes them.
func (b *Bulk) writeRows(w *pageWriter) error {
	count := 0
	each := func(visit func(bulkRow) error) error {
		return b.rows.each(func(r bulkRow) error {
			if count++; count%10_000 == 0 {
				if err := b.interrupted(); err != nil {
					return err
				}
			}
			return visit(r)
		})
	}
	anyKey := slices.ContainsFunc(b.index.keys, indexed.live)
	// newest is a key's last row, where the index has another one.
	newest := func(n uint32) rowAt { return b.index.keys[n].at }
	if b.compacts {
		last := make([]rowAt, len(b.index.keys))
		for n := range last {
			last[n] = b.index.keys[n].at
		}
		newest = func(n uint32) rowAt { return last[n] }
		// From here on the index is about the rows that the compaction leaves: the last one of
		// each key, up to its revision.
		if err := each(func(r bulkRow) error {
			if r.Main <= b.compacted {
				n, err := b.rowsKey(r)
				if err != nil {
					return err
				}
				b.index.keys[n].at, b.index.keys[n].size = r.at, r.size
			}
			return nil
		}); err != nil {
			return err
		}
	}
	hash := snapshot.NewRowHasher(b.compacted)
	err := each(func(r bulkRow) error {
		isNewest := false // which only the rows up to the compacted revision are asked for
		if r.Main <= b.compacted {
			n, err := b.rowsKey(r)
			if err != nil || b.compacts && (b.index.keys[n].at != r.at || r.Deleted && r.Main < b.compacted) {
				return err
			}
			isNewest = newest(n) == r.at
		}
		hash.Add(r.Row, r.name, r.value, isNewest)
		return w.add(r.name, r.value)
	})
	b.hash = snapshot.HashKV{Obtained: "computed from the database", Hash: hash.Sum(anyKey), Revision: b.revision, CompactedRevision: b.compacted}
	if b.compacted == 0 {
		b.hash.CompactedRevision = -1
	}
	return err
}

// rowsKey is the number of a row's key.
func (b *Bulk) rowsKey(r bulkRow) (n uint32, err error) {
	if r.at&inSpool != 0 {
		return r.n, nil
	}
	key, err := boltfile.KeyOf(r.value)
	if err == nil {
		if n, known := b.index.find(key); known {
			return n, nil
		}
		err = errors.New("its key is not indexed")
	}
	return 0, notBulk("row %s changed: %w", r.Revision, err)
}

// writeOthers adds the other buckets, by bbolt.
func (b *Bulk) writeOthers() (err error) {
	from, err := bolt.Open(b.restPath(), 0o600, &bolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := bolt.Open(b.out, 0o600, &bolt.Options{Timeout: lockTimeout, NoSync: true, NoGrowSync: true})
	if err != nil {
		return err
	}
	err = to.Update(func(tx *bolt.Tx) error {
		err := from.View(func(rest *bolt.Tx) error {
			return rest.ForEach(func(name []byte, bucket *bolt.Bucket) error {
				if string(name) == string(keyBucket) {
					return nil
				}
				copied, err := tx.CreateBucketIfNotExists(name)
				if err != nil {
					return err
				}
				return bucket.ForEach(copied.Put)
			})
		})
		if err != nil {
			return err
		}
		if err := b.writeLeases(tx.Bucket(schema.Lease.Name())); err != nil {
			return err
		}
		if b.compacted >= 0 {
			meta, compacted := tx.Bucket(schema.Meta.Name()), boltfile.Revision{Main: b.compacted}.Bytes()
			err = errors.Join(meta.Put(schema.ScheduledCompactKeyName, compacted), meta.Put(schema.FinishedCompactKeyName, compacted))
		}
		return err
	})
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	return extend(b.out)
}

func (b *Bulk) writeLeases(bucket *bolt.Bucket) error {
	for _, id := range slices.Sorted(maps.Keys(b.leases)) { // bbolt moves all that are behind a new one
		if err := bucket.Put(leaseName(id), b.leases[id].row); err != nil {
			return err
		}
	}
	return nil
}

const (
	// writeBuffer is how much is written at once.
	writeBuffer = 4 << 20
	// maxElements is what the count of a page can say.
	maxElements = 0xfff0

	// The sizes of a page's header, of what it has for each of its elements, and of the
	// value of a bucket's.
	pageHeader   = 16
	pageElement  = 16
	bucketHeader = 16

	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	kindBranch   = 0x01
	kindLeaf     = 0x02
	kindMeta     = 0x04
	kindFreelist = 0x10
)

// pageWriter writes a bolt database with one bucket, whose keys come in their order: its
// leaves one after the other, and what leads to them behind.
type pageWriter struct {
	file     *os.File
	pageSize int
	next     uint64 // page
	buffer   []byte // pages up to next that are not in the file
	leaf     []element
	leafSize int
	children []child
	err      error
}

type element struct{ key, value []byte }

type child struct {
	first []byte // key
	page  uint64
}

// firstPage comes after two meta pages, the freelist and the leaf of buckets.
const firstPage = 4

func newPageWriter(f *os.File) *pageWriter {
	w := &pageWriter{file: f, pageSize: os.Getpagesize(), next: firstPage, leafSize: pageHeader}
	w.buffer = make([]byte, firstPage*w.pageSize, writeBuffer+w.pageSize) // written by finish
	return w
}

// add writes a key, which stays as it is until finish.
func (w *pageWriter) add(key, value []byte) error {
	need := pageElement + len(key) + len(value)
	if len(w.leaf) > 0 && (w.leafSize+need > w.pageSize || len(w.leaf) == maxElements) {
		w.endLeaf()
	}
	w.leaf = append(w.leaf, element{key, value})
	w.leafSize += need
	return w.err
}

func (w *pageWriter) endLeaf() {
	var first []byte
	if len(w.leaf) > 0 {
		first = w.leaf[0].key
	}
	page := w.begin(kindLeaf, len(w.leaf), w.leafSize)
	w.children = append(w.children, child{first, page})
	le, data := binary.LittleEndian, pageElement*len(w.leaf)
	for i, e := range w.leaf {
		w.buffer = le.AppendUint32(w.buffer, 0)
		w.buffer = le.AppendUint32(w.buffer, uint32(data-pageElement*i))
		w.buffer = le.AppendUint32(w.buffer, uint32(len(e.key)))
		w.buffer = le.AppendUint32(w.buffer, uint32(len(e.value)))
		data += len(e.key) + len(e.value)
	}
	for _, e := range w.leaf {
		w.buffer = append(append(w.buffer, e.key...), e.value...)
	}
	w.end()
	w.leaf, w.leafSize = w.leaf[:0], pageHeader
}

// begin writes the header of a page of so many bytes.
func (w *pageWriter) begin(kind uint16, count, size int) (page uint64) {
	page = w.next
	more := (size - 1) / w.pageSize
	w.next += uint64(more) + 1
	le := binary.LittleEndian
	w.buffer = le.AppendUint64(w.buffer, page)
	w.buffer = le.AppendUint16(w.buffer, kind)
	w.buffer = le.AppendUint16(w.buffer, uint16(count))
	w.buffer = le.AppendUint32(w.buffer, uint32(more))
	return page
}

// end fills the page up.
func (w *pageWriter) end() {
	if over := len(w.buffer) % w.pageSize; over > 0 {
		w.buffer = append(w.buffer, make([]byte, w.pageSize-over)...)
	}
	if len(w.buffer) >= writeBuffer {
		w.flush()
	}
}

func (w *pageWriter) flush() {
	if w.err == nil {
		_, w.err = w.file.Write(w.buffer)
	}
	w.buffer = w.buffer[:0]
}

// branches writes the pages above children, and gives those in their turn.
func (w *pageWriter) branches(children []child) (above []child) {
	for len(children) > 0 {
		n, size := 0, pageHeader
		for n < len(children) && (n < 2 || size+pageElement+len(children[n].first) <= w.pageSize) {
			size += pageElement + len(children[n].first)
			n++
		}
		if len(children) == n+1 && n > 2 { // none is left alone
			n--
			size -= pageElement + len(children[n].first)
		}
		page := w.begin(kindBranch, n, size)
		above = append(above, child{children[0].first, page})
		le, data := binary.LittleEndian, pageElement*n
		for i, c := range children[:n] {
			w.buffer = le.AppendUint32(w.buffer, uint32(data-pageElement*i))
			w.buffer = le.AppendUint32(w.buffer, uint32(len(c.first)))
			w.buffer = le.AppendUint64(w.buffer, c.page)
			data += len(c.first)
		}
		for _, c := range children[:n] {
			w.buffer = append(w.buffer, c.first...)
		}
		w.end()
		children = children[n:]
	}
	return above
}

// finish writes what is left, and the pages that a database begins with.
func (w *pageWriter) finish() error {
	if len(w.leaf) > 0 || len(w.children) == 0 {
		w.endLeaf()
	}
	top := w.children
	for len(top) > 1 {
		top = w.branches(top)
	}
	w.flush()
	pages, le := w.next, binary.LittleEndian
	w.next = 0
	for transaction := range uint64(2) {
		w.begin(kindMeta, 0, w.pageSize)
		at := len(w.buffer)
		w.buffer = le.AppendUint32(w.buffer, boltMagic)
		w.buffer = le.AppendUint32(w.buffer, boltVersion)
		w.buffer = le.AppendUint32(w.buffer, uint32(w.pageSize))
		w.buffer = le.AppendUint32(w.buffer, 0)
		w.buffer = le.AppendUint64(w.buffer, firstPage-1) // the leaf of buckets
		w.buffer = le.AppendUint64(w.buffer, 0)
		w.buffer = le.AppendUint64(w.buffer, firstPage-2) // the freelist
		w.buffer = le.AppendUint64(w.buffer, pages)
		w.buffer = le.AppendUint64(w.buffer, transaction)
		sum := fnv.New64a()
		sum.Write(w.buffer[at:])
		w.buffer = le.AppendUint64(w.buffer, sum.Sum64())
		w.end()
	}
	w.begin(kindFreelist, 0, pageHeader)
	w.end()
	w.begin(kindLeaf, 1, w.pageSize)
	w.buffer = le.AppendUint32(w.buffer, 1) // a bucket
	w.buffer = le.AppendUint32(w.buffer, pageElement)
	w.buffer = le.AppendUint32(w.buffer, uint32(len(keyBucket)))
	w.buffer = le.AppendUint32(w.buffer, bucketHeader)
	w.buffer = append(w.buffer, keyBucket...)
	w.buffer = le.AppendUint64(w.buffer, top[0].page)
	w.buffer = le.AppendUint64(w.buffer, 0)
	w.end()
	if w.err == nil {
		_, w.err = w.file.WriteAt(w.buffer, 0)
	}
	return w.err
}
