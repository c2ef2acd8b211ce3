package difference

import (
	"bytes"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/rowkey"
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
	row, err := rowkey.Parse(p.key)
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
