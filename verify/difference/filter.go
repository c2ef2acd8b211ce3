package difference

import (
	"hash/maphash"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/rowkey"
)

// filter passes over the rows of the key bucket that a compaction would delete:
// up to its revision all but the newest of each key, and that as well where it
// is a deletion. One at the very revision is passed over too, though newer etcds
// keep it until the next compaction.
type filter struct {
	at    int64
	seeds [2]maphash.Seed
	// newest has, of each key that changed between the compaction that the side
	// has finished and at, the last change up to at. No other key has two rows up
	// to there.
	newest map[keyID]rowkey.Revision
}

// keyID stands for a user's key: 128 bits of hashes with random seeds.
type keyID [2]uint64

func (c *comparison) filterFor(s *side, at int64) (*filter, error) {
	f := &filter{at: at, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	if at <= s.finished {
		return f, nil
	}
	f.newest = map[keyID]rowkey.Revision{}
	b, err := s.db.Bucket([]byte("key"))
	if err != nil || b == nil {
		return f, damage(s.Name, err)
	}
	cursor := b.Cursor()
	from := rowkey.Revision{Main: s.finished + 1}.Bytes()
	for k, v, err := cursor.Seek(from); k != nil || err != nil; k, v, err = cursor.Next() {
		if err != nil {
			return nil, damage(s.Name, err)
		}
		r, err := rowkey.Parse(k)
		if err != nil {
			continue // it is compared as it is
		}
		if r.Main > at {
			break
		}
		if id, ok := f.id(v); ok {
			f.newest[id] = r.Revision
		}
		if err := c.step(0); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// next goes to the next row that the compaction leaves.
func (f *filter) next(c *comparison, r *rows) error {
	for {
		if err := r.next(); err != nil || r.key == nil || !f.drops(r) {
			return err
		}
		if err := c.step(len(r.key) + len(r.value)); err != nil {
			return err
		}
	}
}

func (f *filter) drops(r *rows) bool {
	row, err := rowkey.Parse(r.key)
	switch {
	case err != nil || row.Main > f.at:
		return false
	case row.Deleted:
		return true
	case len(f.newest) == 0:
		return false
	}
	id, ok := f.id(r.value)
	newest, changed := f.newest[id]
	return ok && changed && newest != row.Revision
}

// id is that of the user's key in a row; false where the row cannot be decoded,
// and is compared as it is.
func (f *filter) id(value []byte) (keyID, bool) {
	var kv mvccpb.KeyValue
	err := proto.Unmarshal(value, &kv)
	return keyID{maphash.Bytes(f.seeds[0], kv.Key), maphash.Bytes(f.seeds[1], kv.Key)}, err == nil
}
