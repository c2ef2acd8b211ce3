package boltfile

import (
	"fmt"
	"hash/maphash"
)

// Newest has the newest row of each user's key that changed in a span of revisions, as
// a compaction needs it. About 50 bytes are kept in memory for each key. Keys are
// distinguished by 128 bits of a hash with random seeds.
type Newest struct {
	// Undecoded says what is wrong with the first row of the span that could not be
	// decoded; such rows are passed over.
	Undecoded error

	seeds [2]maphash.Seed
	rows  map[[2]uint64]Row
}

// ReadNewest reads the rows of etcd's bucket key from the main revision from to last.
func ReadNewest(keys *Bucket, from, last int64) (*Newest, error) {
	n := &Newest{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, rows: map[[2]uint64]Row{}}
	c := keys.Cursor()
	for k, v, err := c.Seek(Revision{Main: from}.Bytes()); k != nil || err != nil; k, v, err = c.Next() {
		if err != nil {
			return nil, err
		}
		r, err := ParseRow(k)
		if err == nil && r.Main > last {
			break
		}
		var key []byte
		if err == nil {
			key, err = rowKey(r, v)
		}
		switch {
		case err == nil:
			n.rows[n.id(key)] = r
		case n.Undecoded == nil:
			n.Undecoded = err
		}
	}
	return n, nil
}

// Has reports whether a row is the newest of its key: whether none of the span is newer.
func (n *Newest) Has(r Row, value []byte) (bool, error) {
	key, err := rowKey(r, value)
	if err != nil || len(n.rows) == 0 {
		return err == nil, err
	}
	newest, changed := n.rows[n.id(key)]
	return !changed || newest.Revision == r.Revision, nil
}

// AnyValue reports whether one of the keys has a value.
func (n *Newest) AnyValue() bool {
	for _, r := range n.rows {
		if !r.Deleted {
			return true
		}
	}
	return false
}

func (n *Newest) id(key []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(n.seeds[0], key), maphash.Bytes(n.seeds[1], key)}
}

func rowKey(r Row, value []byte) ([]byte, error) {
	key, err := KeyOf(value)
	if err != nil {
		err = fmt.Errorf("value at revision %d.%d: %w", r.Main, r.Sub, err)
	}
	return key, err
}
