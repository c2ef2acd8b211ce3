package structure

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"math"
	"runtime"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

// fewestWorkers keep a disk busy even where there are few processors.
const fewestWorkers = 4

// batch is a group of leaves of the bucket key on its way: a worker decodes
// it, and the rows are judged in the order of the groups.
type batch struct {
	*leafGroup
	rows []row
	rest long // the sum over the rows that are no pieces
	done chan struct{}
}

// keyReader decodes the bucket key.
type keyReader struct {
	*check
	hasher  hasher
	limit   int64 // rows up to this revision are pieces
	newer   bool
	noLease bool // the leases could not all be read
	spare   sync.Pool
}

// readKeys goes through the bucket key.
func (c *check) readKeys() error {
	m := &c.db.meta
	wanted := []int64{m.compacted()}
	if other, ok := c.manifestCompaction(); ok {
		wanted = append(wanted, other)
	}
	h := &history{compacted: m.compacted(), finished: m.finished, main: 0, pieces: newPieces(wanted...)}
	k := &keyReader{check: c, hasher: newHasher(), limit: h.pieces.limit, newer: m.isNewer(), noLease: c.incomplete.Load()}
	root, exists := c.buckets["key"]
	missing := c.incomplete.Load() || !exists
	var rest long
	brokenBefore := c.found.more + int64(len(c.found.list))
	err := k.read(root, func(b *batch) {
		k.judge(h, b)
		rest.join(b.rest.crc, b.rest.size)
	})
	if err != nil {
		return err
	}
	if !k.noLease {
		k.checkLeases(h)
	}
	keys, anyKey := h.live()
	c.result.Keys, c.result.Revisions = keys, h.rows
	c.compared("%d rows of the bucket key up to revision %d, each decoded; the history of each key since revision %d, of which %d are there now", h.rows, c.result.Facts.Revision, c.result.Facts.CompactedRevision, keys)
	if missing || h.torn || c.found.more+int64(len(c.found.list)) > brokenBefore {
		c.result.HashKV = snapshot.HashKV{Obtained: noHash}
		return nil
	}
	c.hash(h, anyKey, rest)
	return nil
}

// noHash is why there is no HashKV.
const noHash = "not computed: the database is damaged"

// read decodes all leaves with several workers, and calls do for the batches in
// their order.
func (k *keyReader) read(root bucketRoot, do func(*batch)) error {
	if root.broken || root.page == 0 && root.inline.Len() == 0 {
		return nil
	}
	if root.page == 0 {
		b := k.newBatch(&leafGroup{faults: findings{most: k.found.most}})
		k.decode(b, leaf{root: true}, loaded{id: k.meta.Root}, root.inline)
		do(b)
		return nil
	}
	workers := max(fewestWorkers, runtime.GOMAXPROCS(0))
	group, ctx := errgroup.WithContext(k.src.ctx)
	todo, order := make(chan *batch), make(chan *batch, workers)
	group.Go(func() error {
		defer close(order)
		defer close(todo)
		return k.walk("key", root.page, func(s *leafGroup) error {
			b := k.newBatch(s)
			for _, c := range []chan *batch{todo, order} {
				select {
				case c <- b:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
	})
	for range workers {
		group.Go(func() error {
			load := loader{src: k.src, meta: k.meta, reuse: true}
			for b := range todo {
				err := k.eachLeaf(&load, &b.faults, "key", b.leafGroup, func(l leaf, page loaded, p boltfile.Page) error {
					k.decode(b, l, page, p)
					return nil
				})
				if err != nil {
					return err
				}
				close(b.done)
			}
			return nil
		})
	}
	group.Go(func() error {
		for b := range order {
			select {
			case <-b.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			do(b)
			k.progress()
			b.leafGroup = nil // it holds branch pages
			k.spare.Put(b)
		}
		return nil
	})
	return group.Wait()
}

func (k *keyReader) newBatch(s *leafGroup) *batch {
	b, ok := k.spare.Get().(*batch)
	if !ok {
		b = &batch{}
	}
	*b = batch{leafGroup: s, rows: b.rows[:0], done: make(chan struct{})}
	return b
}

// decode decodes the rows of a leaf. Those of a leaf that is out of place would
// only say the same again: they count as missing.
func (k *keyReader) decode(b *batch, l leaf, page loaded, p boltfile.Page) {
	l.torn, b.tornAtEnd = l.torn || b.tornAtEnd, false
	if !inPlace(&b.faults, "key", page.id, p, l) {
		b.tornAtEnd = true
		return
	}
	n := p.Len()
	// Most leaves are sums of their own, or none of their rows is.
	rest := sort.Search(n, func(i int) bool {
		r, err := boltfile.ParseRow(p.Element(i).Key)
		return err == nil && r.Main > k.limit
	})
	content := p.Content(rest, n)
	b.rest.crc = crc32.Update(b.rest.crc, castagnoli, content)
	b.rest.size += int64(len(content))
	for i := range n {
		r := k.row(&b.faults, page.id, p.Element(i))
		if i < rest {
			bytes := p.Content(i, i+1)
			r.crc, r.size = crc32.Checksum(bytes, castagnoli), uint32(len(bytes))
		}
		if i == 0 && l.torn {
			r.flags |= torn
		}
		b.rows = append(b.rows, r)
	}
}

// row decodes a row, and checks what needs no other one.
func (k *keyReader) row(f *findings, page uint64, e boltfile.Element) row {
	at, err := boltfile.ParseRow(e.Key)
	r := row{main: at.Main, sub: at.Sub}
	fault := func(format string, args ...any) row {
		if f.room() {
			f.add(report.KindRow, fmt.Sprintf("%s, bucket key, %s", pageAt(page), shown(e.Key)), format, args...)
		} else {
			f.more++
		}
		r.flags = broken
		return r
	}
	switch {
	case e.Bucket:
		return fault("it is a bucket")
	case err != nil:
		return fault("it is no revision")
	case len(e.Value) == 0 && !at.Deleted:
		r.id, r.flags = k.hasher.id(nil), bump
		return r
	}
	kv, err := boltfile.ParseKeyValue(e.Value)
	if err == nil && kv.Unknown != 0 && !k.newer {
		err = fmt.Errorf("unknown field %d", kv.Unknown)
	}
	if err != nil {
		return fault("it cannot be decoded: %v", err)
	}
	r.id, r.create, r.version = k.hasher.id(kv.Key), kv.Created, kv.Version
	if at.Deleted {
		r.flags |= deleted
	}
	if kv.Lease != 0 && !k.noLease && !k.db.hasLease(kv.Lease) {
		r.flags |= noLease
	}
	if text := faultOf(at, &kv); text != "" {
		f.add(report.KindHistory, whereRow(kv.Key, at.Revision), "%s", text)
		if len(kv.Key) == 0 {
			r.flags |= broken
		}
		r.flags |= suspect
	}
	return r
}

// judge holds the rows of a batch against the history.
func (k *keyReader) judge(h *history, b *batch) {
	k.found.join(&b.faults)
	for i := range b.rows {
		r := &b.rows[i]
		sequence, ofKey := h.add(r)
		if r.flags&(suspect|broken) == suspect {
			// The row itself is a fault already, and no measure for the next one.
			ofKey = ""
			h.keys.at(r.id).add(suspect)
		}
		for _, text := range []string{sequence, ofKey} {
			if text == "" {
				continue
			}
			if !k.found.room() {
				k.found.more++
				continue
			}
			at := boltfile.Revision{Main: r.main, Sub: r.sub}
			where := "bucket key, revision " + at.String()
			if text == ofKey {
				where = whereRow(k.keyOf(r.id, r.main), at)
			}
			k.found.add(report.KindHistory, where, "%s", text)
		}
	}
	if b.tornAtEnd {
		h.tear()
	}
}

// checkLeases finds keys that hang on a lease that is not there. Older rows of
// a key may: a lease that ends takes the key with it, not its history.
func (k *keyReader) checkLeases(h *history) {
	var lost []slot
	h.keys.each(func(s *slot) {
		if s.has(noLease) && !s.has(deleted) {
			lost = append(lost, *s)
		}
	})
	slices.SortFunc(lost, func(a, b slot) int { return cmp.Or(cmp.Compare(a.main, b.main), cmp.Compare(a.version(), b.version())) })
	for _, s := range lost {
		if !k.found.room() {
			k.found.more++
			continue
		}
		k.found.add(report.KindLease, whereRow(k.keyOf(s.id, s.main), boltfile.Revision{Main: s.main}), "the key hangs on a lease that does not exist")
	}
	k.compared("the lease of each key against %d leases", len(k.db.leases))
}

// keyOf looks up the key of a row again, for a finding; nil where it is not
// found.
func (k *keyReader) keyOf(id keyID, main int64) []byte {
	f, err := boltfile.Open(k.src.ctx, k.src, k.size)
	if err != nil {
		return nil
	}
	b, err := f.Bucket([]byte("key"))
	if err != nil || b == nil {
		return nil
	}
	c := b.Cursor()
	for key, value, err := c.Seek(boltfile.Revision{Main: main}.Bytes()); key != nil && err == nil; key, value, err = c.Next() {
		r, err := boltfile.ParseRow(key)
		if err != nil || r.Main != main {
			break
		}
		if kv, err := boltfile.ParseKeyValue(value); err == nil && k.hasher.id(kv.Key) == id {
			return bytes.Clone(kv.Key)
		}
	}
	return nil
}

func whereRow(key []byte, at boltfile.Revision) string {
	if key == nil {
		return "bucket key, revision " + at.String()
	}
	const most = 200
	if len(key) > most {
		return fmt.Sprintf("key %q…, revision %s", key[:most], at)
	}
	return fmt.Sprintf("key %q, revision %s", key, at)
}

// keyID stands for a user's key: 96 bits of a hash with random seeds. Of a billion
// keys, two have the same one with a probability of 10^-11.
type keyID [3]uint32

// row is what the history needs of a row of the bucket key.
type row struct {
	id              keyID
	main, sub       int64
	create, version int64
	crc, size       uint32 // of its bytes, up to the revision where HashKV needs them
	flags           uint32
}

// Flags of rows, and of the table's slots, which have flagBits for them.
const (
	taken   = 1 << iota // the slot has a key
	deleted             // the user's key was deleted
	bump                // a row without a value: it raises the revision
	noLease             // its lease does not exist
	broken              // it cannot be decoded
	torn                // rows may be missing before it
	suspect             // its numbers are wrong: what follows cannot be held against them
)

// hasher makes keyIDs.
type hasher [2]maphash.Seed

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (h *hasher) id(key []byte) keyID {
	a, b := maphash.Bytes(h[0], key), maphash.Bytes(h[1], key)
	return keyID{uint32(a >> 32), uint32(a), uint32(b)}
}

// faultOf says what is wrong with a row alone, without those before it; empty
// when nothing is.
func faultOf(r boltfile.Row, kv *boltfile.KeyValue) string {
	if len(kv.Key) == 0 {
		return "it has no key"
	}
	if r.Deleted {
		if kv.Created != 0 || kv.Modified != 0 || kv.Version != 0 || kv.Lease != 0 || kv.Value != nil {
			return "a deletion that holds more than the key"
		}
		return ""
	}
	switch {
	case kv.Modified != r.Main:
		return fmt.Sprintf("its mod revision is %d", kv.Modified)
	case kv.Created < 1 || kv.Created > r.Main:
		return fmt.Sprintf("its create revision is %d", kv.Created)
	case kv.Version < 1:
		return fmt.Sprintf("its version is %d", kv.Version)
	case kv.Version == 1 && kv.Created != r.Main:
		return fmt.Sprintf("it is version 1, and was created at revision %d", kv.Created)
	case kv.Version-1 > r.Main-kv.Created:
		return fmt.Sprintf("version %d cannot be reached since revision %d, where it was created", kv.Version, kv.Created)
	}
	return ""
}

// history follows the rows of the bucket key in their order, and judges each
// against the newest one of its key and against the one before it.
type history struct {
	compacted int64 // rows up to here may be missing
	finished  int64 // rows up to here obey the compaction
	keys      table
	pieces    pieces
	rows      int64

	main, sub int64 // of the row before
	// torn says that rows are missing somewhere, after revision tornAfter last.
	torn      bool
	tornAfter int64
	resync    bool // no row came since
}

const noPiece = math.MaxUint32

// tear says that rows are missing from here on, whose page or bytes are a fault
// of their own.
func (h *history) tear() { h.torn, h.tornAfter, h.resync = true, h.main, true }

// add takes the next row, and returns what is wrong with its place in the
// history: of the revisions, and of its key.
func (h *history) add(r *row) (sequence, ofKey string) {
	if r.flags&torn != 0 {
		h.tear()
	}
	h.rows++
	if h.gap(r) {
		sequence = h.gapText(r)
	}
	h.main, h.sub, h.resync = r.main, r.sub, false
	piece := uint32(noPiece)
	if r.main <= h.pieces.limit {
		piece = h.pieces.add(r)
	}
	if r.flags&broken != 0 {
		h.tear()
		return sequence, ""
	}
	before := h.keys.at(r.id)
	flags := r.flags&(deleted|bump|noLease) | taken
	if ofKey = h.judge(before, r); ofKey != "" {
		flags |= suspect
	}
	if before.has(taken) && before.piece != noPiece {
		h.pieces.supersede(before.piece)
	}
	*before = slot{id: r.id, piece: piece, create: r.create, main: r.main, packed: pack(r.version, flags)}
	return sequence, ofKey
}

// gap reports whether a revision is missing before a row. Above the compacted one
// each transaction takes the next main revision, and each change in it the next
// sub revision. The first one of an empty database is 2.
func (h *history) gap(r *row) bool {
	if r.main <= h.compacted || h.resync || r.flags&bump != 0 {
		return false
	}
	if h.main > h.compacted && h.main == r.main {
		return r.sub != h.sub+1
	}
	return r.sub != 0 || r.main != max(h.main, h.compacted, 1)+1
}

func (h *history) gapText(r *row) string {
	at := boltfile.Revision{Main: r.main, Sub: r.sub}
	if h.main > h.compacted {
		return fmt.Sprintf("it follows revision %s: rows are missing between them", boltfile.Revision{Main: h.main, Sub: h.sub})
	}
	return fmt.Sprintf("revision %s is the first after the compacted revision %d: rows are missing between them", at, h.compacted)
}

// judge says what is wrong with a row that follows another one of the same key,
// or none; empty when nothing is.
func (h *history) judge(before *slot, r *row) string {
	if r.flags&bump != 0 {
		return ""
	}
	first := !before.has(taken)
	if r.main <= h.finished {
		switch {
		case !first:
			return fmt.Sprintf("the compaction of revision %d had to remove the key's row at revision %d, and did not", h.finished, before.main)
		case r.flags&deleted != 0 && r.main < h.finished:
			return fmt.Sprintf("the compaction of revision %d had to remove this deletion, and did not", h.finished)
		}
	}
	// Rows may be missing before: in a part that cannot be read, or by a
	// compaction.
	if h.torn && (first || before.main <= h.tornAfter) || before.has(suspect) {
		return ""
	}
	gone := first && r.main > h.compacted || !first && before.has(deleted)
	switch {
	case !first && before.main == r.main:
		return "the key is changed twice in one revision"
	case r.flags&deleted != 0:
		if gone {
			return "it deletes a key that is not there"
		}
	case gone || first:
		if gone && r.version != 1 {
			return fmt.Sprintf("it is version %d of a key that is not there", r.version)
		}
	case r.version == 1:
		return fmt.Sprintf("it makes a key anew that is there since revision %d", before.create)
	case r.create != before.create:
		return fmt.Sprintf("its create revision is %d, and that of the row before, at revision %d, is %d", r.create, before.main, before.create)
	case r.version != before.version()+1:
		return fmt.Sprintf("version %d follows version %d, of revision %d", r.version, before.version(), before.main)
	}
	return ""
}

// live counts the keys that are there at the newest revision, and reports whether
// etcd's index has any: it takes a row that raises the revision for a key.
func (h *history) live() (keys int64, any bool) {
	h.keys.each(func(s *slot) {
		if s.has(deleted) {
			return
		}
		any = true
		if !s.has(bump) {
			keys++
		}
	})
	return keys, any
}
