package structure

import "math/bits"

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
