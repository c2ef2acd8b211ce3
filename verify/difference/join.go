package difference

import (
	"bytes"

	"github.com/requorum/requorum/snapshot/pages"
)

// rows goes through a bucket of a side; nil bucket: it has none.
type rows struct {
	side       *side
	cursor     *pages.Cursor
	begun      bool
	key, value []byte
	bucket     bool // the row is a bucket inside the bucket
}

func (s *side) rows(bucket string) (*rows, error) {
	b, err := s.db.Bucket([]byte(bucket))
	if err != nil {
		return nil, damage(s.Name, err)
	}
	r := &rows{side: s}
	if b != nil {
		r.cursor = b.Cursor()
	}
	return r, nil
}

// next goes to the next row; the key is nil at the end.
func (r *rows) next() (err error) {
	switch {
	case r.cursor == nil:
		return nil
	case r.begun:
		r.key, r.value, err = r.cursor.Next()
	default:
		r.begun = true
		r.key, r.value, err = r.cursor.First()
	}
	r.bucket = r.key != nil && r.value == nil
	return damage(r.side.Name, err)
}

// pair is a row of both sides, or of one: the other's row is nil then.
type pair struct {
	key    []byte
	values [2][]byte
	in     [2]bool
}

// join goes through the rows of both sides in the order of their keys. next
// moves one side on.
func (c *comparison) join(sides [2]*rows, next func(i int, r *rows) error, do func(pair) error) error {
	for i, r := range sides {
		if err := next(i, r); err != nil {
			return err
		}
	}
	for sides[0].key != nil || sides[1].key != nil {
		var p pair
		order := compareEnds(sides[0].key, sides[1].key)
		p.in = [2]bool{order <= 0, order >= 0}
		for i, r := range sides {
			if !p.in[i] {
				continue
			}
			p.key, p.values[i] = r.key, r.value
			if r.bucket {
				p.values[i] = []byte("a bucket inside the bucket")
			}
			if err := c.step(len(r.key) + len(r.value)); err != nil {
				return err
			}
		}
		if err := do(p); err != nil {
			return err
		}
		for i, r := range sides {
			if p.in[i] {
				if err := next(i, r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// compareEnds compares keys; nil is behind all.
func compareEnds(a, b []byte) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return bytes.Compare(a, b)
}
