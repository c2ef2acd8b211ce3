package structure

import (
	"bytes"
	"fmt"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

const (
	// maxDepth is above any tree's: a page has two children at least, and a
	// database of 2^40 pages is beyond what bbolt can map.
	maxDepth = 40
	// groupLeaves is how many leaf pages are handed on together.
	groupLeaves = 256
)

// leaf is a leaf page that a branch refers to, and the keys that may be in it:
// from low on, and below high. nil is no bound; the root is a leaf without any.
type leaf struct {
	id        uint64
	low, high []byte
	root      bool
	torn      bool // pages are missing before it
}

// leafGroup is a row of leaf pages in the order of their keys, and what was found
// on the way to them.
type leafGroup struct {
	leaves []leaf
	faults findings
	// tornAtEnd is set by eachLeaf where the last leaf cannot be read.
	tornAtEnd bool
}

// walker goes through the branch pages of one bucket.
type walker struct {
	*check
	bucket string
	load   loader // its pages stay valid: the bounds lie in them
	torn   bool   // pages are missing before the next one
	next   leafGroup
	emit   func(*leafGroup) error
}

// walk calls emit for all leaves of the bucket with this root, in order.
func (c *check) walk(bucket string, root uint64, emit func(*leafGroup) error) error {
	w := &walker{check: c, bucket: bucket, load: loader{src: c.src, meta: c.meta}, emit: emit}
	w.next.faults.most = c.found.most
	if w.claim(root, "the bucket's root") {
		if err := w.root(root); err != nil {
			return err
		}
	}
	return w.flush()
}

func (w *walker) root(id uint64) error {
	all, err := w.load.load([]uint64{id})
	if err != nil {
		return err
	}
	if boltfile.ParseHeader(w.load.runOf(id).bytes).Kind == leafKind {
		w.next.leaves = append(w.next.leaves, leaf{id: id, root: true})
		return nil
	}
	p, ok := w.parse(all[0])
	if !ok {
		return nil
	}
	height, err := w.height(p, 1)
	if err != nil || height == 0 {
		return err
	}
	return w.branch(id, p, height, nil, nil)
}

const leafKind = 0x02 // of a page's header

// height is how many levels of branches there are from p on, which the first
// page below it that can be read shows; 0 where none can.
func (w *walker) height(p boltfile.Page, depth int) (int, error) {
	if depth == maxDepth {
		w.lost("", "the bucket's branches go on for %d levels: they go round in a circle", maxDepth)
		return 0, nil
	}
	probe := loader{src: w.src, meta: w.meta}
	for i := range p.Len() {
		id := p.Element(i).Child
		if id < 2 || id >= w.meta.Pages {
			continue
		}
		all, err := probe.load([]uint64{id})
		if err != nil {
			return 0, err
		}
		child, err := all[0].page()
		switch {
		case err != nil:
			continue
		case child.Leaf():
			return 1, nil
		}
		n, err := w.height(child, depth+1)
		if err != nil || n == 0 {
			return 0, err
		}
		return n + 1, nil
	}
	w.lost("", "no page below the bucket's root can be read")
	return 0, nil
}

// branch goes through the children of a branch page of some height.
func (w *walker) branch(id uint64, p boltfile.Page, height int, low, high []byte) error {
	ordered := w.inOrder(id, p, low, high)
	children := make([]leaf, 0, p.Len())
	what := fmt.Sprintf("a child of page %d", id)
	for i := range p.Len() {
		e := p.Element(i)
		if n := len(children); n > 0 {
			children[n-1].high = e.Key
		}
		if w.claim(e.Child, what) {
			children = append(children, leaf{id: e.Child, low: e.Key, high: high, torn: w.torn})
			w.torn = false
		}
	}
	if !ordered {
		for i := range children {
			children[i].low, children[i].high = nil, nil
		}
	}
	after := w.torn
	w.torn = false
	defer func() { w.torn = w.torn || after }()
	if height == 1 {
		return w.pass(children)
	}
	return w.descend(children, height-1)
}

// inOrder finds fault with a branch whose keys are not in order. Its children
// cannot be held against them then.
func (w *walker) inOrder(id uint64, p boltfile.Page, low, high []byte) bool {
	var before []byte
	for i := range p.Len() {
		key := p.Element(i).Key
		if i == 0 && low != nil && bytes.Compare(key, low) < 0 || i > 0 && bytes.Compare(key, before) <= 0 || high != nil && bytes.Compare(key, high) >= 0 {
			w.next.faults.add(report.KindPage, pageAt(id), "bucket %s: its child %d begins with %s, which is out of order", w.bucket, i, shown(key))
			return false
		}
		before = key
	}
	return true
}

// descend goes through branch pages that are siblings.
func (w *walker) descend(children []leaf, height int) error {
	ids := make([]uint64, len(children))
	for i, c := range children {
		ids[i] = c.id
	}
	for done := 0; done < len(ids); {
		all, err := w.load.load(ids[done:])
		if err != nil {
			return err
		}
		for i, l := range all {
			c := children[done+i]
			w.torn = w.torn || c.torn
			p, ok := w.parse(l)
			if !ok {
				continue
			}
			if p.Leaf() {
				w.lost(pageAt(l.id), "bucket %s: it is a leaf where a branch must be", w.bucket)
				continue
			}
			if err := w.branch(c.id, p, height, c.low, c.high); err != nil {
				return err
			}
		}
		done += len(all)
	}
	return nil
}

// pass hands leaves on, as soon as they are enough.
func (w *walker) pass(leaves []leaf) error {
	if len(leaves) > 0 {
		leaves[0].torn, w.torn = leaves[0].torn || w.torn, false
	}
	w.next.leaves = append(w.next.leaves, leaves...)
	if len(w.next.leaves) < groupLeaves {
		return nil
	}
	return w.flush()
}

func (w *walker) flush() error {
	s := w.next
	w.next = leafGroup{faults: findings{most: s.faults.most}}
	return w.emit(&s)
}

// parse parses a branch page, and finds fault with it.
func (w *walker) parse(l loaded) (boltfile.Page, bool) {
	p, err := l.page()
	if err != nil {
		w.lost(pageAt(l.id), "bucket %s: %v", w.bucket, err)
		return p, false
	}
	w.claimMore(&w.next.faults, l)
	return p, true
}

// lost adds a fault that makes leaves unreachable.
func (w *walker) lost(where, format string, args ...any) {
	w.next.faults.add(report.KindPage, where, format, args...)
	w.torn = true
	w.incomplete.Store(true)
}

// claim marks a page as used, and finds fault where that cannot be.
func (w *walker) claim(id uint64, what string) bool {
	if id < 2 || id >= w.meta.Pages {
		w.lost(pageAt(id), "bucket %s: it is %s, and the pages that can hold data are 2 to %d", w.bucket, what, w.meta.Pages-1)
		return false
	}
	w.mapping.Lock()
	fresh := w.used.set(id)
	w.mapping.Unlock()
	if !fresh {
		w.lost(pageAt(id), "bucket %s: it is used twice, also as %s", w.bucket, what)
	}
	return fresh
}

// claimMore marks what a page extends over.
func (c *check) claimMore(f *findings, l loaded) {
	n := uint64(len(l.bytes)) / uint64(c.meta.PageSize)
	if n == 1 {
		return
	}
	c.mapping.Lock()
	defer c.mapping.Unlock()
	for id := l.id + 1; id < l.id+n; id++ {
		if !c.used.set(id) {
			f.add(report.KindPage, pageAt(id), "it is used twice, also by page %d, which extends over it", l.id)
		}
	}
}

func pageAt(id uint64) string { return fmt.Sprintf("page %d", id) }

// pageMap has a bit for each page of the database.
type pageMap []uint64

func newPageMap(pages uint64) pageMap { return make(pageMap, (pages+63)/64) }

// set sets the bit of a page below the map's end, and reports whether it was not
// set before.
func (m pageMap) set(id uint64) bool {
	word, bit := &m[id/64], uint64(1)<<(id%64)
	fresh := *word&bit == 0
	*word |= bit
	return fresh
}

func (m pageMap) has(id uint64) bool { return m[id/64]&(1<<(id%64)) != 0 }

// checkFreelist holds the pages that no bucket has against the freelist. etcd
// has bbolt store none.
func (c *check) checkFreelist() error {
	id := c.meta.Freelist
	if id == boltfile.NoFreelist {
		return nil
	}
	fault := func(format string, args ...any) {
		c.found.add(report.KindPage, pageAt(id), "freelist: "+format, args...)
	}
	if id < 2 || id >= c.meta.Pages {
		fault("the pages that can hold it are 2 to %d", c.meta.Pages-1)
		return nil
	}
	load := loader{src: c.src, meta: c.meta}
	all, err := load.load([]uint64{id})
	if err != nil {
		return err
	}
	damage := all[0].err
	var list []uint64
	if damage == nil {
		list, damage = boltfile.ParseFreelist(all[0].bytes)
	}
	if damage != nil {
		fault("%v", damage)
		return nil
	}
	if !c.used.set(id) {
		fault("a bucket uses this page as well")
	}
	c.claimMore(&c.found, all[0])
	free := newPageMap(c.meta.Pages)
	for _, p := range list {
		switch {
		case p < 2 || p >= c.meta.Pages:
			fault("it names page %d, and the pages that can be free are 2 to %d", p, c.meta.Pages-1)
		case !free.set(p):
			fault("it names page %d twice", p)
		case c.used.has(p):
			c.found.add(report.KindPage, pageAt(p), "it is in use, and the freelist has it as free")
		}
	}
	if !c.incomplete.Load() {
		c.findLost(free)
	}
	return nil
}

// findLost finds pages that are neither used nor free, a row of them at a time.
func (c *check) findLost(free pageMap) {
	lost := func(id uint64) bool { return id < c.meta.Pages && !c.used.has(id) && !free.has(id) }
	for id := uint64(2); id < c.meta.Pages; id++ {
		if !lost(id) {
			continue
		}
		first := id
		for lost(id + 1) {
			id++
		}
		where := pageAt(first)
		if id > first {
			where = fmt.Sprintf("pages %d to %d", first, id)
		}
		c.found.add(report.KindPage, where, "in no bucket, and not on the freelist: lost")
	}
}

func (c *check) comparePages() {
	if c.meta.Freelist == boltfile.NoFreelist {
		c.compared("page graph: every page that is reached from the root against every other one; the database stores no freelist, as etcd has it, so pages that are not reached are free")
		return
	}
	c.compared("page graph: every page is reached once or is on the freelist")
}
