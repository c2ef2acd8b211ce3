package replaying

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/boltfile"
)

// compactions compares what both sides have compacted. The log gives that; how
// much of it a member has deleted, it does not.
func (c *comparison) compactions() {
	a, b := c.sides[0], c.sides[1]
	if a.compacted() != b.compacted() {
		c.found("bucket meta, compacted revision", fmt.Sprintf("%s is compacted at revision %d, %s at %d", a.Name, a.compacted(), b.Name, b.compacted()))
	}
	for _, s := range c.sides {
		if s.scheduled > s.finished {
			c.left.unfinished = append(c.left.unfinished, fmt.Sprintf("%s had not finished its compaction at revision %d: what it had still to delete was passed over", s.Name, s.scheduled))
		}
	}
}

// keys compares the history of all keys.
func (c *comparison) keys() error {
	at := max(c.sides[0].compacted(), c.sides[1].compacted())
	var (
		all     [2]*rows
		filters [2]*filter
		err     error
	)
	for i, s := range c.sides {
		if all[i], err = s.rows("key"); err != nil {
			return err
		}
		if filters[i], err = c.filterFor(s, at); err != nil {
			return err
		}
	}
	before := c.rows
	err = c.join(all, func(i int, r *rows) error { return filters[i].next(c, r) }, func(p pair) error {
		c.rows++
		if p.in[0] && p.in[1] && bytes.Equal(p.values[0], p.values[1]) {
			return nil
		}
		c.key(p)
		return nil
	})
	if err != nil {
		return err
	}
	what := "every revision of every key"
	if at > 0 {
		what = fmt.Sprintf("every revision of every key that is not compacted at revision %d (of what was overwritten or deleted by then, nothing is left to compare)", at)
	}
	c.compared = append(c.compared, fmt.Sprintf("%s, byte by byte (rows: %d)", what, c.rows-before))
	return nil
}

// key says how a row of the key bucket differs.
func (c *comparison) key(p pair) {
	row, err := boltfile.ParseRow(p.key)
	if err != nil {
		c.found(fmt.Sprintf("bucket key, row %x", p.key), fmt.Sprintf("the row is no revision, and %s", c.how(p)))
		return
	}
	var kvs [2]*mvccpb.KeyValue
	var where string
	for i := range kvs {
		if !p.in[i] {
			continue
		}
		kvs[i] = &mvccpb.KeyValue{}
		if err := proto.Unmarshal(p.values[i], kvs[i]); err != nil {
			c.found(fmt.Sprintf("revision %s", row), fmt.Sprintf("%s has a row there that cannot be decoded, and %s", c.sides[i].Name, c.how(p)))
			return
		}
		if where == "" {
			where = fmt.Sprintf("key %q, revision %s", kvs[i].Key, row)
		}
	}
	what := "this write"
	if row.Deleted {
		what = "this deletion"
	}
	switch {
	case !p.in[1]:
		c.missing(where, 0, what)
	case !p.in[0]:
		c.missing(where, 1, what)
	default:
		c.found(where, c.fields(kvs[0], kvs[1]))
	}
}

// fields says in which fields two rows of one revision differ.
func (c *comparison) fields(a, b *mvccpb.KeyValue) string {
	first, second := c.sides[0].Name, c.sides[1].Name
	var all []string
	if !bytes.Equal(a.Key, b.Key) {
		all = append(all, fmt.Sprintf("the key is %q in %s, and %q in %s", a.Key, first, b.Key, second))
	}
	if !bytes.Equal(a.Value, b.Value) {
		all = append(all, fmt.Sprintf("the value is another one: %d bytes in %s, %d in %s", len(a.Value), first, len(b.Value), second))
	}
	for _, f := range []struct {
		what string
		a, b int64
	}{
		{"the create revision", a.CreateRevision, b.CreateRevision},
		{"the mod revision", a.ModRevision, b.ModRevision},
		{"the version", a.Version, b.Version},
		{"the lease", a.Lease, b.Lease},
	} {
		if f.a != f.b {
			all = append(all, fmt.Sprintf("%s is %d in %s, and %d in %s", f.what, f.a, first, f.b, second))
		}
	}
	if len(all) == 0 {
		return "it is encoded in another way"
	}
	return strings.Join(all, "; ")
}

// how says who has a row.
func (c *comparison) how(p pair) string {
	switch {
	case !p.in[1]:
		return "only " + c.sides[0].Name + " has it"
	case !p.in[0]:
		return "only " + c.sides[1].Name + " has it"
	}
	return "it is another one in " + c.sides[0].Name + " and in " + c.sides[1].Name
}

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
	newest map[keyID]boltfile.Revision
}

// keyID stands for a user's key: 128 bits of hashes with random seeds.
type keyID [2]uint64

func (c *comparison) filterFor(s *side, at int64) (*filter, error) {
	f := &filter{at: at, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	if at <= s.finished {
		return f, nil
	}
	f.newest = map[keyID]boltfile.Revision{}
	b, err := s.db.Bucket([]byte("key"))
	if err != nil || b == nil {
		return f, damage(s.Name, err)
	}
	cursor := b.Cursor()
	from := boltfile.Revision{Main: s.finished + 1}.Bytes()
	for k, v, err := cursor.Seek(from); k != nil || err != nil; k, v, err = cursor.Next() {
		if err != nil {
			return nil, damage(s.Name, err)
		}
		r, err := boltfile.ParseRow(k)
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
	row, err := boltfile.ParseRow(r.key)
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
