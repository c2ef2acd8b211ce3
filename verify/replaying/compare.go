package replaying

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

// Database is one in a file.
type Database struct {
	Name string // how findings call it
	*snapshot.File
}

// compare returns the first row in which two databases differ that should be the same state
// of one cluster; nil if there is none. The bucket key comes first, and is read only if the
// databases' HashKV differ. A finding shows keys, names, sizes and revisions, never a value
// or the hash of a password.
//
// Not compared is what the raft log does not give, and what another version writes in
// another way; walreplay/engine says where it comes from:
//
//   - Rows of the bucket meta that each member writes by itself: see ofMember. Of
//     compactions, the last scheduled revision is compared.
//   - Rows of key up to the compacted revision that are not the newest of their key, and
//     deletions up to there: a member may not have deleted them yet.
//   - Rows of cluster that one side lacks: older versions do not write them.
//   - The time of leases of up to mostMinTTL, because members raise short ones to 1.5 times
//     their election timeout, which the log does not show.
//   - If neither side has a meta/storageVersion, which members write from 3.6 on: the time
//     left of leases, which older members keep only when asked to, and names, client URLs and
//     learners in the bucket members, which etcd before 3.5.26 leaves as they were when the
//     member was added, and does not use.
//
// A missing bucket and an empty one are the same. A database that cannot be read as one is a
// *snapshot.DamagedError.
func compare(ctx context.Context, a, b Database, sameKeys bool) (_ *report.Finding, err error) {
	c := &comparison{}
	buckets := map[string]bool{}
	for i, d := range []Database{a, b} {
		s := &c.sides[i]
		s.Database = d
		if s.facts, err = d.Facts(ctx); err != nil {
			return nil, err
		}
		f, err := d.ReaderAt()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if s.db, err = boltfile.Open(ctx, f, d.Size()); err != nil {
			return nil, damage(d.Name, err)
		}
		err = s.db.Root().ForEach(func(name, value []byte) error {
			buckets[string(name)] = value == nil
			return nil
		})
		if err != nil {
			return nil, damage(d.Name, err)
		}
	}
	first, second := c.sides[0].facts, c.sides[1].facts
	c.before36 = first.StorageVersion == "" && second.StorageVersion == ""
	if c.compacted = first.CompactedRevision; c.compacted != second.CompactedRevision {
		return difference("bucket meta, compacted revision", "%s is compacted at revision %d, %s at %d", a.Name, c.compacted, b.Name, second.CompactedRevision), nil
	}
	delete(buckets, "key")
	names := slices.Sorted(maps.Keys(buckets))
	if !sameKeys {
		names = append([]string{"key"}, names...)
	}
	for _, name := range names {
		if f, err := c.bucket(name); f != nil || err != nil {
			return f, err
		}
	}
	return nil, nil //nolint:nilnil // no difference
}

func difference(where, format string, args ...any) *report.Finding {
	return &report.Finding{Kind: report.KindDifference, Where: where, Text: fmt.Sprintf(format, args...)}
}

// comparison is one compare under way.
type comparison struct {
	sides     [2]side
	compacted int64 // on both
	before36  bool  // neither side shows an etcd from 3.6 on
}

// side is an open database.
type side struct {
	Database
	db    *boltfile.File
	facts snapshot.Facts
}

// damage names the database in what pages say of it.
func damage(name string, err error) error {
	var page *boltfile.PageError
	switch {
	case errors.As(err, &page):
		return &snapshot.DamagedError{Object: name, Offset: page.Offset, Err: err}
	case errors.Is(err, boltfile.ErrNotDatabase), errors.Is(err, boltfile.ErrBigEndian):
		return &snapshot.DamagedError{Object: name, Offset: -1, Err: err}
	case err != nil:
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// bucket returns the first row of a bucket that differs; nil if there is none.
func (c *comparison) bucket(name string) (*report.Finding, error) {
	var rows [2]*rows
	for i := range c.sides {
		var err error
		if rows[i], err = c.rowsOf(&c.sides[i], name); err != nil {
			return nil, err
		}
	}
	for a, b := rows[0], rows[1]; a.key != nil || b.key != nil; {
		order := bytes.Compare(a.key, b.key)
		if a.key == nil || b.key == nil {
			order = -order // nil is the end
		}
		missing := order != 0 && name != "cluster"
		if missing || order == 0 && (!bytes.Equal(a.value, b.value) || (a.value == nil) != (b.value == nil)) {
			return c.describe(name, a, b, order), nil
		}
		if order <= 0 {
			if err := a.advance(a.cursor.Next); err != nil {
				return nil, err
			}
		}
		if order >= 0 {
			if err := b.advance(b.cursor.Next); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil //nolint:nilnil // no difference
}

// rows goes through the rows of a bucket that are compared.
type rows struct {
	*side
	cursor     *boltfile.Cursor                             // nil: the side has no such bucket
	compared   func(key, value []byte) (as []byte, ok bool) // what a row is compared as, if it is compared
	key, value []byte                                       // nil key: the end
	size       int                                          // of the value as it is stored
}

// rowsOf is at the first row of a bucket.
func (c *comparison) rowsOf(s *side, bucket string) (*rows, error) {
	r := &rows{side: s, compared: func(key, value []byte) ([]byte, bool) { return c.compared(bucket, key, value) }}
	b, err := s.db.Bucket([]byte(bucket))
	if err != nil || b == nil {
		return r, damage(s.Name, err)
	}
	if bucket == "key" {
		newest, err := boltfile.ReadNewest(b, 0, c.compacted)
		if err != nil {
			return nil, damage(s.Name, err)
		}
		r.compared = func(key, value []byte) ([]byte, bool) { return value, isLeft(newest, c.compacted, key, value) }
	}
	r.cursor = b.Cursor()
	return r, r.advance(r.cursor.First)
}

func (r *rows) advance(step func() (key, value []byte, err error)) error {
	for {
		key, value, err := step()
		if err != nil {
			return damage(r.Name, err)
		}
		if r.key = key; key == nil {
			return nil
		}
		as, ok := r.compared(key, value)
		if ok {
			r.value, r.size = as, len(value)
			return nil
		}
		step = r.cursor.Next
	}
}

// isLeft reports whether a compaction leaves a row of the bucket key. One that cannot be
// decoded is left.
func isLeft(newest *boltfile.Newest, compacted int64, key, value []byte) bool {
	row, err := boltfile.ParseRow(key)
	if err != nil || row.Main > compacted {
		return true
	}
	last, err := newest.Has(row, value)
	return err != nil || last && !row.Deleted
}

// ofMember are the rows of the bucket meta that each member writes by itself.
var ofMember = []string{"confState", "consistent_index", "finishedCompactRev", "scheduledCompactRev", "storageVersion", "term"}

// mostMinTTL is the most that a cluster raises a short lease to, in seconds: 1.5
// times etcd's longest election timeout.
const mostMinTTL = 75

// compared gives what the log determines of a row, and reports whether that is anything.
// A row that cannot be decoded is compared as it is.
func (c *comparison) compared(bucket string, key, value []byte) ([]byte, bool) {
	switch bucket {
	case "meta":
		return value, !slices.Contains(ofMember, string(key))
	case "lease":
		var l leasepb.Lease
		if proto.Unmarshal(value, &l) != nil {
			break
		}
		if l.TTL = max(l.TTL, mostMinTTL); c.before36 {
			l.RemainingTTL = 0
		}
		if as, err := proto.Marshal(&l); err == nil {
			return as, true
		}
	case "members":
		var m snapshot.StoredMember
		if !c.before36 || json.Unmarshal(value, &m) != nil {
			break
		}
		if as, err := json.Marshal(snapshot.StoredMember{ID: m.ID, PeerURLs: m.PeerURLs}); err == nil {
			return as, true
		}
	}
	return value, true
}

// describe makes a finding of a row that differs. It is of side a alone if order is below 0, and
// of side b alone if it is above.
func (c *comparison) describe(bucket string, a, b *rows, order int) *report.Finding {
	one, other := a, b
	if order > 0 {
		one, other = b, a
	}
	where := fmt.Sprintf("bucket %s, row %q", bucket, one.key)
	switch row, err := boltfile.ParseRow(one.key); {
	case bucket == "lease" && len(one.key) == 8:
		where = fmt.Sprintf("bucket lease, lease %016x", binary.BigEndian.Uint64(one.key))
	case bucket == "key" && err != nil:
		where = fmt.Sprintf("bucket key, row %x", one.key)
	case bucket == "key":
		where = "revision " + row.String()
		key, err := boltfile.KeyOf(one.value)
		if err != nil && order == 0 {
			key, err = boltfile.KeyOf(other.value)
		}
		if err == nil {
			where = fmt.Sprintf("key %q, %s", key, where)
		}
	}
	if order != 0 {
		return difference(where, "it is in %s, and not in %s", one.Name, other.Name)
	}
	if bucket == "authUsers" && isSameButPassword(a.value, b.value) {
		return difference(where, "only the hash of its password is another one. If the cluster began on etcd 3.4, that is no damage: each member made its own. Set the password again (etcdctl user passwd), then take a full snapshot")
	}
	return difference(where, "it is another one: %d bytes in %s, %d in %s", a.size, a.Name, b.size, b.Name)
}

// isSameButPassword reports whether two users differ in the hash of their password only.
func isSameButPassword(a, b []byte) bool {
	var one, other authpb.User
	if proto.Unmarshal(a, &one) != nil || proto.Unmarshal(b, &other) != nil {
		return false
	}
	one.Password, other.Password = nil, nil
	return proto.Equal(&one, &other)
}
