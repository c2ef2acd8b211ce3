package structure

// pageMap has a bit for each page of the database.
type pageMap struct {
	bits  []uint64
	pages uint64
}

func newPageMap(pages uint64) *pageMap {
	return &pageMap{make([]uint64, (pages+63)/64), pages}
}

// set sets the bit of a page below the map's end, and tells whether it was not
// set before.
func (m *pageMap) set(id uint64) bool {
	word, bit := &m.bits[id/64], uint64(1)<<(id%64)
	fresh := *word&bit == 0
	*word |= bit
	return fresh
}

func (m *pageMap) has(id uint64) bool { return m.bits[id/64]&(1<<(id%64)) != 0 }
