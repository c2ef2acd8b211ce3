package join

import (
	"crypto/sha256"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// Entry is an entry of a log that is compared. Of a log that is read elsewhere its
// data may have stayed there: a sum stands for it then.
type Entry struct {
	raftlog.Entry
	// Outline tells that Data is left out. Sum stands for it then, and Moves tells
	// whether the entry may have moved the revision.
	Outline bool
	Sum     Sum
	Moves   bool
}

// Sum stands for the data of an entry: the first half of its SHA-256. That two
// entries of one index and term have one sum by chance does not happen.
type Sum [sha256.Size / 2]byte

// SumOf is the sum of an entry's data.
func SumOf(data []byte) Sum {
	full := sha256.Sum256(data)
	return Sum(full[:len(Sum{})])
}

// Whole gives entries that have their data.
func Whole(e raftlog.Entry) Entry { return Entry{Entry: e} }

// same tells whether two entries are the same. What it has to sum it keeps.
func same(a, b *head) bool {
	x, y := &a.entry, &b.entry
	if !x.Outline && !y.Outline {
		return x.Equal(y.Entry)
	}
	return x.Index == y.Index && x.Term == y.Term && x.Type == y.Type && a.sum() == b.sum()
}

// sum is that of the next entry's data.
func (h *head) sum() Sum {
	if !h.entry.Outline && !h.summed {
		h.entry.Sum, h.summed = SumOf(h.entry.Data), true
	}
	return h.entry.Sum
}
