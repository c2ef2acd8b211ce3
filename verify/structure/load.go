package structure

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
)

const (
	// longestGap between two pages that are wanted is read with them: one longer
	// read is faster than two, and what lies between is mostly what the first of
	// them extends over.
	longestGap = 32 << 10
	// longestRead keeps one read within what the buffers of a disk take.
	longestRead = 1 << 20
	// loadBudget bounds the pages that are read at a time, and again what they
	// extend over, but for a single page that is longer.
	loadBudget = 1 << 20
)

// loader reads pages of a database in the order of the file, and gives them
// back in the order in which they were asked for. It is used by one goroutine.
type loader struct {
	src  *source
	meta boltfile.Meta
	// reuse says that what was loaded is used only until the next load.
	reuse  bool
	spare  []byte
	longer []byte // room for pages that extend over others, made when there is one
	all    []loaded
	order  []int
	runs   []run
}

// run is a part of the file that one read brings.
type run struct {
	first uint64 // page
	pages uint64
	bytes []byte
}

// loaded is a page that was read. err says what is wrong with its header.
type loaded struct {
	id    uint64
	bytes []byte
	err   error
}

// page is what was loaded, if it is a branch or leaf page.
func (l loaded) page() (boltfile.Page, error) {
	if l.err != nil {
		return boltfile.Page{}, l.err
	}
	return boltfile.ParsePage(l.bytes)
}

// load reads as many of the pages, from the first on, as the budget allows, and
// at least one. All are known to lie within the database. An error is the
// source's.
func (l *loader) load(ids []uint64) ([]loaded, error) {
	ids = ids[:min(len(ids), max(1, loadBudget/l.meta.PageSize))]
	// What lies between pages that are wanted counts.
	size := l.plan(ids)
	for ; size > loadBudget && len(ids) > 1; size = l.plan(ids) {
		ids = ids[:len(ids)/2]
	}
	if err := l.readRuns(size); err != nil {
		return nil, err
	}
	if !l.reuse {
		l.all = nil
	}
	l.all = slices.Grow(l.all[:0], len(ids))
	all := l.all
	extra := 0 // bytes beyond each page's first ones
	for i, id := range ids {
		r := l.runOf(id)
		b := r.bytes[(id-r.first)*uint64(l.meta.PageSize):]
		size, err := l.meta.Extent(id, b)
		if err == nil && size > l.meta.PageSize && !l.afford(size) {
			err = fmt.Errorf("it extends over %d more pages, and such pages have more bytes together than the database: they lie on one another", size/l.meta.PageSize-1)
		}
		switch {
		case err != nil:
			all = append(all, loaded{id: id, err: err})
			continue
		case size <= len(b):
			all = append(all, loaded{id: id, bytes: b[:size:size]})
			continue
		}
		if extra += size; extra > loadBudget && i > 0 {
			l.src.extended.Add(-int64(size)) // it is for the next time
			return all, nil
		}
		longer := l.room(extra, size)
		n := copy(longer, b)
		if err := boltfile.ReadFull(l.src, longer[n:], int64(id)*int64(l.meta.PageSize)+int64(n)); err != nil {
			return nil, err
		}
		all = append(all, loaded{id: id, bytes: longer})
	}
	return all, nil
}

// afford reports whether another page of that size can be one of the database's. Who
// made a database up may let each of its pages extend over the same others:
// reading them would never end.
func (l *loader) afford(size int) bool {
	// Each page is loaded once, and once more as the root or to learn the height.
	return uint64(l.src.extended.Add(int64(size))) <= 2*l.meta.Pages*uint64(l.meta.PageSize)
}

// room gives the room for a page of some size, the last one of those that need so
// much together.
func (l *loader) room(together, size int) []byte {
	if !l.reuse || together > loadBudget {
		return make([]byte, size)
	}
	if l.longer == nil {
		l.longer = make([]byte, loadBudget)
	}
	return l.longer[together-size : together : together]
}

// plan finds the parts of the file that hold the pages, and how many bytes
// they have. What stays in memory beyond the next load has no gaps.
func (l *loader) plan(ids []uint64) (size int) {
	l.order = l.order[:0]
	for i := range ids {
		l.order = append(l.order, i)
	}
	slices.SortFunc(l.order, func(a, b int) int { return cmp.Compare(ids[a], ids[b]) })
	gap, longest := uint64(longestGap/l.meta.PageSize), uint64(max(1, longestRead/l.meta.PageSize))
	if !l.reuse {
		gap = 0
	}
	l.runs = l.runs[:0]
	for _, i := range l.order {
		id := ids[i]
		if n := len(l.runs); n > 0 {
			last := &l.runs[n-1]
			if length := id + 1 - last.first; id-last.first <= last.pages+gap && length <= longest {
				size += int(length-last.pages) * l.meta.PageSize
				last.pages = length
				continue
			}
		}
		l.runs = append(l.runs, run{first: id, pages: 1})
		size += l.meta.PageSize
	}
	return size
}

// readRuns reads the runs, of size bytes.
func (l *loader) readRuns(size int) error {
	switch {
	case !l.reuse:
		l.spare = make([]byte, size)
	case len(l.spare) < size:
		l.spare = make([]byte, max(size, min(2*len(l.spare), loadBudget)))
	}
	rest := l.spare[:size]
	for i := range l.runs {
		r := &l.runs[i]
		n := r.pages * uint64(l.meta.PageSize)
		r.bytes, rest = rest[:n:n], rest[n:]
		if err := boltfile.ReadFull(l.src, r.bytes, int64(r.first)*int64(l.meta.PageSize)); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) runOf(id uint64) *run {
	i, found := slices.BinarySearchFunc(l.runs, id, func(r run, id uint64) int { return cmp.Compare(r.first, id) })
	if !found {
		i--
	}
	return &l.runs[i]
}

// pieces put HashKV together in one pass. Which rows up to the compacted
// revision count is known only at the end, when it is known which of them are
// still the newest of their key: so each of those is summed alone, and the sums
// are joined later. All rows after them are summed as they come.
type pieces struct {
	limit  int64 // rows up to this revision are pieces
	chunks []*[chunkPieces]piece
	count  int
	marks  []mark
}

// chunkPieces make a chunk of 16 KiB: what is there is never moved.
const chunkPieces = 2048

// mark is a compacted revision that a hash is wanted for, how many pieces are
// below it, and how many up to it.
type mark struct {
	compacted   int64
	below, upTo int
}

// piece is the sum over a number of bytes. A row has less than 2^30.
type piece struct{ crc, size uint32 }

// long is a piece of any size.
type long struct {
	crc  uint32
	size int64
}

const (
	superseded = 1 << 31 // a later row of the same key exists
	deletion   = 1 << 30
	sizeMask   = deletion - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newPieces(compacted ...int64) pieces {
	var p pieces
	for _, c := range compacted {
		p.limit = max(p.limit, c)
		p.marks = append(p.marks, mark{compacted: c})
	}
	return p
}

func (p *pieces) add(r *row) uint32 {
	size := r.size & sizeMask
	if r.flags&deleted != 0 {
		size |= deletion
	}
	if p.count == len(p.chunks)*chunkPieces {
		p.chunks = append(p.chunks, new([chunkPieces]piece))
	}
	*p.at(p.count) = piece{r.crc, size}
	p.count++
	for i := range p.marks {
		m := &p.marks[i]
		if r.main < m.compacted {
			m.below = p.count
		}
		if r.main <= m.compacted {
			m.upTo = p.count
		}
	}
	return uint32(p.count - 1)
}

func (p *pieces) at(i int) *piece { return &p.chunks[i/chunkPieces][i%chunkPieces] }

func (p *pieces) supersede(i uint32) { p.at(int(i)).size |= superseded }

// sum is etcd's hash after a compaction, of rows with rest behind the pieces.
func (p *pieces) sum(compacted int64, anyKey bool, rest long) uint32 {
	total := long{crc: crc32.Checksum([]byte("key"), castagnoli), size: 3}
	m := p.marks[slices.IndexFunc(p.marks, func(m mark) bool { return m.compacted == compacted })]
	for i := range p.count {
		s := p.at(i)
		if i < m.upTo && !snapshot.Hashed(s.size&deletion != 0, s.size&superseded == 0, i >= m.below, anyKey) {
			continue
		}
		total.join(s.crc, int64(s.size&sizeMask))
	}
	total.join(rest.crc, rest.size)
	return total.crc
}

// table keeps the newest row of each user's key. Slots lie in chunks, one after
// the other as the keys came: none is free, and none is ever moved. An index
// finds them by the key's hash, and takes 5 to 8 bytes for each. It is cut into
// shards that grow one at a time, so that there are never two whole copies.
type table struct {
	chunks []*[chunkSlots]slot
	used   uint32
	shards [256]shard
}

// chunkSlots make a chunk of 20 KiB.
const chunkSlots = 512

// shard is a part of the index.
type shard struct {
	index []uint32 // numbers of slots, from 1 on; 0 is free
	used  int
}

// slot is the newest row of a key, in 40 bytes.
type slot struct {
	id     keyID
	piece  uint32 // its piece of the hash, where it has one
	create int64
	main   int64
	packed uint64 // the version, and below it the flags: taken, and those of the row
}

// flagBits are the lowest of a slot's packed ones. A version has the others: etcd
// counts one up with each change, and never gets there.
const flagBits = 8

func pack(version int64, flags uint32) uint64 { return uint64(version)<<flagBits | uint64(flags) }

func (s *slot) version() int64        { return int64(s.packed >> flagBits) }
func (s *slot) has(flags uint32) bool { return s.packed&uint64(flags) == uint64(flags) }
func (s *slot) add(flags uint32)      { s.packed |= uint64(flags) }

// at returns the slot of a key; a new one, with its id set, where there is none
// yet. The caller sets the flag taken.
func (t *table) at(id keyID) *slot {
	s := &t.shards[id[0]>>24]
	if s.used >= len(s.index)/4*3 {
		t.grow(s)
	}
	entry := t.find(s, id)
	if *entry == 0 {
		if int(t.used) == len(t.chunks)*chunkSlots {
			t.chunks = append(t.chunks, new([chunkSlots]slot))
		}
		t.used++
		s.used++
		*entry = t.used
		t.slot(*entry).id = id
	}
	return t.slot(*entry)
}

// slot is the one with a number.
func (t *table) slot(n uint32) *slot { return &t.chunks[(n-1)/chunkSlots][(n-1)%chunkSlots] }

// find returns the entry of a key in the index, or the free one where it goes.
func (t *table) find(s *shard, id keyID) *uint32 {
	at, _ := bits.Mul64(uint64(id[1])<<32|uint64(id[2]), uint64(len(s.index)))
	for {
		entry := &s.index[at]
		if *entry == 0 || t.slot(*entry).id == id {
			return entry
		}
		if at++; at == uint64(len(s.index)) {
			at = 0
		}
	}
}

func (t *table) grow(s *shard) {
	old := s.index
	s.index = make([]uint32, max(16, len(old)*3/2))
	for _, n := range old {
		if n != 0 {
			*t.find(s, t.slot(n).id) = n
		}
	}
}

// each calls do for every key.
func (t *table) each(do func(*slot)) {
	for n := uint32(1); n <= t.used; n++ {
		do(t.slot(n))
	}
}
