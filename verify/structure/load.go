package structure

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/requorum/requorum/snapshot/pages"
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
	meta pages.Meta
	// reuse says that what was loaded is used only until the next load.
	reuse  bool
	spare  []byte
	longer []byte // room for pages that extend over others, made when there is one
	all    []loaded
	order  []int
	runs   []run
}

// run is a stretch of the file that one read brings.
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
		h := pages.ParseHeader(b)
		size := (h.More + 1) * uint64(l.meta.PageSize)
		switch {
		case h.ID != id:
			all = append(all, loaded{id: id, err: fmt.Errorf("it says that it is page %d", h.ID)})
			continue
		case h.More >= l.meta.Pages-id:
			all = append(all, loaded{id: id, err: fmt.Errorf("it extends over %d more pages, beyond the end", h.More)})
			continue
		case size > pages.MaxPageSize:
			all = append(all, loaded{id: id, err: fmt.Errorf("it extends over %d more pages, which is more than %d bytes", h.More, pages.MaxPageSize)})
			continue
		case h.More > 0 && !l.afford(size):
			all = append(all, loaded{id: id, err: fmt.Errorf("it extends over %d more pages, and such pages have more bytes together than the database: they lie on one another", h.More)})
			continue
		case size <= uint64(len(b)):
			all = append(all, loaded{id: id, bytes: b[:size:size]})
			continue
		}
		if extra += int(size); extra > loadBudget && i > 0 {
			l.src.extended.Add(-int64(size)) // it is for the next time
			return all, nil
		}
		longer := l.room(extra, int(size))
		n := copy(longer, b)
		if err := l.src.readAt(longer[n:], int64(id)*int64(l.meta.PageSize)+int64(n)); err != nil {
			return nil, err
		}
		all = append(all, loaded{id: id, bytes: longer})
	}
	return all, nil
}

// afford tells whether another page of that size can be one of the database's. Who
// made a database up may let each of its pages extend over the same others:
// reading them would never end.
func (l *loader) afford(size uint64) bool {
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

// plan finds the stretches of the file that hold the pages, and how many bytes
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

// readRuns reads the stretches, of size bytes.
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
		if err := l.src.readAt(r.bytes, int64(r.first)*int64(l.meta.PageSize)); err != nil {
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
