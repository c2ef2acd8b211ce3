package structure

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/pages"
	"github.com/requorum/requorum/snapshot/rowkey"
	"github.com/requorum/requorum/verify/report"
)

// fewestWorkers keep a disk busy even where there are few processors.
const fewestWorkers = 4

// batch is a stretch of leaves of the bucket key on its way: a worker decodes
// it, and the rows are judged in the order of the stretches.
type batch struct {
	*stretch
	rows []row
	rest long // the sum over the rows that are no pieces
	done chan struct{}
	err  error
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
		b := k.newBatch(&stretch{faults: findings{most: k.found.most}})
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
		return k.walk("key", root.page, func(s *stretch) error {
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
				err := k.eachLeaf(&load, &b.faults, "key", b.stretch, func(l leaf, page loaded, p pages.Page) error {
					k.decode(b, l, page, p)
					return nil
				})
				if b.err = err; err != nil {
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
			b.stretch = nil // it holds branch pages
			k.spare.Put(b)
		}
		return nil
	})
	return group.Wait()
}

func (k *keyReader) newBatch(s *stretch) *batch {
	b, ok := k.spare.Get().(*batch)
	if !ok {
		b = &batch{}
	}
	*b = batch{stretch: s, rows: b.rows[:0], done: make(chan struct{})}
	return b
}

// decode decodes the rows of a leaf. Those of a leaf that is out of place would
// only say the same again: they count as missing.
func (k *keyReader) decode(b *batch, l leaf, page loaded, p pages.Page) {
	l.torn, b.tornAtEnd = l.torn || b.tornAtEnd, false
	if !inPlace(&b.faults, "key", page.id, p, l) {
		b.tornAtEnd = true
		return
	}
	n := p.Len()
	// Most leaves are sums of their own, or none of their rows is.
	rest := sort.Search(n, func(i int) bool {
		r, err := rowkey.Parse(p.Element(i).Key)
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
func (k *keyReader) row(f *findings, page uint64, e pages.Element) row {
	at, err := rowkey.Parse(e.Key)
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
	kv, err := parseKeyValue(e.Value, k.newer)
	if err != nil {
		return fault("it cannot be decoded: %v", err)
	}
	r.id, r.create, r.version = k.hasher.id(kv.key), kv.create, kv.version
	if at.Deleted {
		r.flags |= deleted
	}
	if kv.leaseID != 0 && !k.noLease && !k.db.hasLease(kv.leaseID) {
		r.flags |= noLease
	}
	if text := faultOf(at, &kv); text != "" {
		f.add(report.KindHistory, whereRow(kv.key, at.Revision), "%s", text)
		if len(kv.key) == 0 {
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
			at := rowkey.Revision{Main: r.main, Sub: r.sub}
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
		k.found.add(report.KindLease, whereRow(k.keyOf(s.id, s.main), rowkey.Revision{Main: s.main}), "the key hangs on a lease that does not exist")
	}
	k.compared("the lease of each key against %d leases", len(k.db.leases))
}

// keyOf looks up the key of a row again, for a finding; nil where it is not
// found.
func (k *keyReader) keyOf(id keyID, main int64) []byte {
	f, err := pages.Open(k.src, k.size)
	if err != nil {
		return nil
	}
	b, err := f.Bucket([]byte("key"))
	if err != nil || b == nil {
		return nil
	}
	c := b.Cursor()
	for key, value, err := c.Seek(rowkey.Revision{Main: main}.Bytes()); key != nil && err == nil; key, value, err = c.Next() {
		r, err := rowkey.Parse(key)
		if err != nil || r.Main != main {
			break
		}
		if kv, err := parseKeyValue(value, true); err == nil && k.hasher.id(kv.key) == id {
			return bytes.Clone(kv.key)
		}
	}
	return nil
}

func whereRow(key []byte, at rowkey.Revision) string {
	if key == nil {
		return "bucket key, revision " + at.String()
	}
	const most = 200
	if len(key) > most {
		return fmt.Sprintf("key %q…, revision %s", key[:most], at)
	}
	return fmt.Sprintf("key %q, revision %s", key, at)
}
