package structure

import "math/bits"

// table keeps the newest row of each user's key. It is made for many small,
// equal records: a slot has 48 bytes, of which the key's hash takes 16, and a
// quarter to a half of the slots are free. One of its shards grows at a time, so
// that there are never two whole copies.
type table struct {
	shards [256]shard
}

type shard struct {
	slots []slot
	used  int
}

// slot is the newest row of a key.
type slot struct {
	id      keyID
	create  int64
	main    int64
	version int64
	piece   uint32 // its piece of the hash, where it has one
	flags   uint32 // taken, and those of the row
}

// at returns the slot of a key; a free one, with its id set, where there is none
// yet. The caller sets the flag taken, and keeps the slot only until the next
// call.
func (t *table) at(id keyID) *slot {
	s := &t.shards[id[0]>>56]
	if s.used >= len(s.slots)/4*3 {
		s.grow()
	}
	slot := s.find(id)
	if slot.flags&taken == 0 {
		s.used++
		slot.id = id
	}
	return slot
}

func (s *shard) find(id keyID) *slot {
	at, _ := bits.Mul64(id[1], uint64(len(s.slots)))
	for {
		slot := &s.slots[at]
		if slot.flags&taken == 0 || slot.id == id {
			return slot
		}
		if at++; at == uint64(len(s.slots)) {
			at = 0
		}
	}
}

func (s *shard) grow() {
	old := s.slots
	s.slots = make([]slot, max(16, len(old)*3/2))
	for i := range old {
		if old[i].flags&taken != 0 {
			*s.find(old[i].id) = old[i]
		}
	}
}

// each calls do for every key.
func (t *table) each(do func(*slot)) {
	for i := range t.shards {
		for j := range t.shards[i].slots {
			if s := &t.shards[i].slots[j]; s.flags&taken != 0 {
				do(s)
			}
		}
	}
}
