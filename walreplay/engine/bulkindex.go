package engine

import (
	"bytes"
	"hash/maphash"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/requorum/requorum/snapshot/boltfile"
)

// keyIndex finds the newest row of each key. A key takes 16 bytes and its share of the slots;
// itself it is in its row. Keys that were deleted stay, with their deletion.
type keyIndex struct {
	rows  *rows
	seed  maphash.Seed
	keys  []indexed
	slots []uint32 // number of a key, plus 1; open addressing
	// ordered has the numbers of those that are there, by key, from the first range on
	// that is asked for; nil before.
	ordered *btree.BTree[uint32]
	sought  []byte // the key that soughtKey stands for in ordered
}

// indexed is a key's newest row.
type indexed struct {
	at   rowAt
	size uint32
	hash uint32
}

// soughtKey stands for a key that need not be there.
const soughtKey = ^uint32(0)

const firstSlots = 1 << 10

func newKeyIndex(r *rows) *keyIndex {
	return &keyIndex{rows: r, seed: maphash.MakeSeed(), slots: make([]uint32, firstSlots)}
}

// live reports whether the key has a value.
func (k indexed) live() bool { return k.at != noRow && k.at&isDeleted == 0 }

// key is that of the row, which may be a deletion.
func (x *keyIndex) key(n uint32) []byte {
	if n == soughtKey {
		return x.sought
	}
	_, value := x.rows.get(x.keys[n].at, x.keys[n].size)
	key, _ := boltfile.KeyOf(value) // it was read before, or written here
	return key
}

// find is the number of a key that has, or had, a value.
func (x *keyIndex) find(key []byte) (n uint32, ok bool) {
	n, _, ok = x.lookup(key)
	return n, ok
}

func (x *keyIndex) lookup(key []byte) (n, hash uint32, ok bool) {
	hash = uint32(maphash.Bytes(x.seed, key))
	mask := uint32(len(x.slots) - 1)
	for slot := hash & mask; x.slots[slot] != 0; slot = (slot + 1) & mask {
		n := x.slots[slot] - 1
		if k := x.keys[n]; k.hash == hash && k.at != noRow && bytes.Equal(x.key(n), key) {
			return n, hash, true
		}
	}
	return 0, hash, false
}

// add makes room for a key that lookup has not found.
func (x *keyIndex) add(hash uint32) (n uint32) {
	if 2*(len(x.keys)+1) > len(x.slots) {
		x.slots = make([]uint32, 2*len(x.slots))
		for n, k := range x.keys {
			x.place(uint32(n), k.hash)
		}
	}
	n = uint32(len(x.keys))
	x.keys = append(x.keys, indexed{hash: hash})
	x.place(n, hash)
	return n
}

func (x *keyIndex) place(n, hash uint32) {
	mask := uint32(len(x.slots) - 1)
	slot := hash & mask
	for x.slots[slot] != 0 {
		slot = (slot + 1) & mask
	}
	x.slots[slot] = n + 1
}

// set gives a key another row.
func (x *keyIndex) set(n uint32, at rowAt, size uint32) {
	k := &x.keys[n]
	before := k.live()
	if x.ordered != nil && before && at&isDeleted != 0 {
		x.ordered.Delete(n) // while the key can still be read
	}
	k.at, k.size = at, size
	if x.ordered != nil && !before && k.live() {
		x.ordered.ReplaceOrInsert(n)
	}
}

// hasAny reports whether a key from key on and before end (empty: without end) has a value. It
// looks through all keys: to put them in order takes longer.
func (x *keyIndex) hasAny(key, end []byte) bool {
	for n, k := range x.keys {
		if !k.live() {
			continue
		}
		if at := x.key(uint32(n)); bytes.Compare(at, key) >= 0 && (len(end) == 0 || bytes.Compare(at, end) < 0) {
			return true
		}
	}
	return false
}

// between visits the keys that have a value, from key on and before end (empty: without end),
// until visit says no. It must not change the index.
func (x *keyIndex) between(key, end []byte, visit func(n uint32) bool) {
	if x.ordered == nil {
		x.ordered = btree.New(64, func(a, b uint32) bool { return bytes.Compare(x.key(a), x.key(b)) < 0 })
		for n, k := range x.keys {
			if k.live() {
				x.ordered.ReplaceOrInsert(uint32(n))
			}
		}
	}
	x.sought = key
	x.ordered.AscendGreaterOrEqual(soughtKey, func(n uint32) bool {
		if len(end) > 0 && bytes.Compare(x.key(n), end) >= 0 {
			return false
		}
		return visit(n)
	})
}
