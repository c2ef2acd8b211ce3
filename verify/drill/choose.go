package drill

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/requorum/requorum/snapshot/pages"
)

// chosen is a random choice of rows, each as likely as the others, with the
// first and the last one.
type chosen struct {
	rows int64 // there are
	list []chosenRow
}

type chosenRow struct {
	main int64
	key  []byte
}

// chooseRows goes through all rows and keeps o.Reads of them.
func chooseRows(ctx context.Context, db *pages.File, o Options) (*chosen, error) {
	random := rand.New(o.Random)
	s := &chosen{}
	var last chosenRow
	err := eachRow(ctx, db, func(r row) error {
		s.rows++
		last = chosenRow{r.Main, r.key}
		at := s.rows - 1
		if at >= int64(o.Reads) {
			at = random.Int64N(s.rows)
		}
		switch {
		case s.rows == 1: // and once more, as one of many
			s.list = append(s.list, last.clone(), last.clone())
		case at < int64(len(s.list))-1:
			s.list[at+1] = last.clone()
		case at < int64(o.Reads):
			s.list = append(s.list, last.clone())
		}
		return nil
	})
	if s.rows > 0 {
		s.list = append(s.list, last.clone())
	}
	return s, err
}

// clone is for what is kept: keys lie in pages that should be freed.
func (c chosenRow) clone() chosenRow { return chosenRow{c.main, bytes.Clone(c.key)} }

// mostSpans is how many stretches the keys are counted in.
const mostSpans = 64

// plan decides what to read: each chosen row at its own revision, its key now,
// and the number of keys between some of the chosen ones.
func (e *expected) plan(s *chosen) {
	for _, c := range s.list {
		key := string(c.key)
		// Of the compacted past only what was the newest then is left.
		at := max(c.main, e.compacted)
		e.probes = append(e.probes, &probe{key: key, revision: at})
		if at != e.revision {
			e.probes = append(e.probes, &probe{key: key, revision: e.revision})
		}
	}
	var keys []string
	for _, p := range e.probes {
		keys = append(keys, p.key)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	e.spans = []*span{{from: "\x00"}} // before all keys
	for i := 1; i < mostSpans; i++ {
		if at := i * len(keys) / mostSpans; at > 0 && keys[at] != e.spans[len(e.spans)-1].from {
			e.spans = append(e.spans, &span{from: keys[at]})
		}
	}
}

// spanOf is the stretch that a key lies in.
func (e *expected) spanOf(key []byte) *span {
	i := sort.Search(len(e.spans), func(i int) bool { return e.spans[i].from > string(key) })
	return e.spans[max(i-1, 0)]
}
