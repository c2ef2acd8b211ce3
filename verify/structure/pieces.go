package structure

import (
	"hash/crc32"
	"slices"
)

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
// Where the index has no key at all, etcd's hash leaves nothing out; a deletion
// at the compacted revision it leaves out in any case.
func (p *pieces) sum(compacted int64, anyKey bool, rest long) uint32 {
	total := long{crc: crc32.Checksum([]byte("key"), castagnoli), size: 3}
	m := p.marks[slices.IndexFunc(p.marks, func(m mark) bool { return m.compacted == compacted })]
	for i := range p.count {
		s := p.at(i)
		if i < m.upTo {
			if i >= m.below && s.size&deletion != 0 {
				continue
			}
			if anyKey && s.size&(superseded|deletion) != 0 {
				continue
			}
		}
		total.join(s.crc, int64(s.size&sizeMask))
	}
	total.join(rest.crc, rest.size)
	return total.crc
}
