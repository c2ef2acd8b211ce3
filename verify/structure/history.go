package structure

import (
	"fmt"
	"math"

	"github.com/requorum/requorum/snapshot/rowkey"
)

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

// tear tells that rows are missing from here on, whose page or bytes are a fault
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

// gap tells whether a revision is missing before a row. Above the compacted one
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
	at := rowkey.Revision{Main: r.main, Sub: r.sub}
	if h.main > h.compacted {
		return fmt.Sprintf("it follows revision %s: rows are missing between them", rowkey.Revision{Main: h.main, Sub: h.sub})
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

// live counts the keys that are there at the newest revision, and tells whether
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
