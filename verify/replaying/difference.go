package replaying

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/report"
)

// Database is one in a file.
type Database struct {
	Name string // how findings call it
	*snapshot.File
}

// Difference is what came out.
type Difference struct {
	// Findings are of report.KindDifference, one for each bucket with rows that differ,
	// that of the key bucket first.
	Findings []report.Finding
	// Passwords are users of whom nothing differs but the hash of the password, which
	// is no finding: etcd 3.4 salted each member's anew, and they stay through upgrades.
	Passwords []string
	// Compared says in sentences what was compared with what, Left what was not.
	Compared []string
	Left     []string
}

// Compare compares b with a, row by row in every bucket: two databases that should be
// the same state of one cluster.
//
// It promises:
//
//  1. A bucket with rows that one of them lacks, or has otherwise, is a finding: it
//     names the first such row, in the order of revisions in the bucket key, and counts
//     the others. Only what is listed below is no finding.
//  2. Both are compared after the same logical compaction: the later one of the
//     two, applied while reading. How far a member had come with deleting rows
//     does not matter.
//  3. Findings show keys, names, sizes and revisions, never a value or the hash
//     of a password.
//  4. Both are read once, in order, and nothing is written. Memory is flat but
//     for about 50 bytes for each key that changed between the compaction that a
//     side has finished and the later one of the two: none where they are the same.
//
// What is left out is what the raft log does not give, and what another version
// writes in another way; walreplay/engine says where it comes from. Difference.Left says
// what of that was met:
//
//   - meta/consistent_index and meta/term: a member's file may be behind what it has
//     applied.
//   - meta/confState: written with the first membership change after the file was made.
//   - meta/storageVersion: each member from 3.6 on writes it by itself.
//   - meta/scheduledCompactRev and meta/finishedCompactRev: the later of the two is the
//     compacted revision, and that is compared.
//   - Rows of key up to the compacted revision that are not the newest of their key, and
//     deletions up to there: a member may not have deleted them yet. etcd up to 3.5.15
//     deletes a deletion at the very revision too, later ones keep it until the next
//     compaction.
//   - cluster/clusterVersion and cluster/downgrade, where one side has none: a version
//     that does not know it has not written it.
//   - RemainingTTL of leases, where neither side has a meta/storageVersion: members
//     before 3.6 keep a checkpoint's time only when asked to.
//   - TTL of leases, where all that differ have one value on one side, of at most 75 s
//     and no more than any lease there: short leases are raised to 1.5 times the
//     members' election timeout.
//   - The hash of a password in authUsers, where the log between does not set it and the
//     two snapshots were read from two members: members of 3.4 salted it anew, each for
//     itself, and keep their own hash when they are upgraded.
//
// A bucket that one side has not, and an empty one, are the same. The v2 store of 3.5 is
// not in the database.
//
// A database that cannot be read as one is a *snapshot.DamagedError; other errors are
// those of the files, and ctx's. progress counts bytes that were read, of both sides'
// sizes; it may be nil, and is called from Compare's goroutine.
func Compare(ctx context.Context, a, b Database, progress func(done, total int64)) (_ Difference, err error) {
	c := &comparison{}
	read := &reading{progress: progress, total: a.Size() + b.Size()}
	names := map[string]bool{}
	for i, d := range []Database{a, b} {
		f, errOpen := safedir.Open(d.File.Name())
		if errOpen != nil {
			return Difference{}, errOpen
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if c.sides[i], err = openSide(ctx, d, &countedFile{f, read}, names); err != nil {
			return Difference{}, err
		}
	}
	c.compactions()
	delete(names, "key")
	for _, name := range append([]string{"key"}, slices.Sorted(maps.Keys(names))...) {
		if err := c.bucket(name); err != nil {
			return Difference{}, err
		}
	}
	if len(c.rows) > 0 {
		c.Compared = append(c.Compared, "every row of the other buckets, byte by byte (rows: "+strings.Join(c.rows, ", ")+")")
	}
	if len(c.ofMember) > 0 {
		c.Left = append([]string{"not compared, because each member writes it by itself: " + strings.Join(c.ofMember, ", ")}, c.Left...)
	}
	read.add(read.total)
	return c.Difference, nil
}

// reading counts what is read of both databases.
type reading struct {
	progress    func(done, total int64)
	done, total int64
}

func (r *reading) add(n int64) {
	before := r.done
	if r.done = min(r.done+n, r.total); r.progress != nil && (before>>20 != r.done>>20 || n == r.total) {
		r.progress(r.done, r.total)
	}
}

type countedFile struct {
	*os.File
	read *reading
}

// ReadAt counts what it reads.
func (f *countedFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(b, at)
	f.read.add(int64(n))
	return n, err
}

// comparison is one Compare under way.
type comparison struct {
	Difference
	sides    [2]*side
	rows     []string // names of buckets, with how many rows were compared
	ofMember []string // rows that differ, and that each member writes for itself
	leases   leaseTimes
}

// side is an open database.
type side struct {
	Database
	db                  *boltfile.File
	scheduled, finished int64 // compactions; 0: none
	storage             bool  // it has a storage version: from etcd 3.6 on
}

// openSide opens a database, and adds the names of its buckets.
func openSide(ctx context.Context, d Database, r io.ReaderAt, names map[string]bool) (*side, error) {
	db, err := boltfile.Open(ctx, r, d.Size())
	if err != nil {
		return nil, damage(d.Name, err)
	}
	o := &side{Database: d, db: db}
	err = db.Root().ForEach(func(name, value []byte) error {
		if value == nil {
			names[string(name)] = true
		}
		return nil
	})
	if err != nil {
		return nil, damage(d.Name, err)
	}
	meta, err := db.Bucket([]byte("meta"))
	if err != nil {
		return nil, damage(d.Name, err)
	}
	if meta == nil {
		return nil, &snapshot.DamagedError{Object: d.Name, Offset: -1, Err: errors.New("no bucket meta: a bbolt database, but not one of etcd")}
	}
	for key, at := range map[string]*int64{"scheduledCompactRev": &o.scheduled, "finishedCompactRev": &o.finished} {
		v, err := meta.Get([]byte(key))
		if err != nil {
			return nil, damage(d.Name, err)
		}
		if v == nil {
			continue
		}
		r, err := boltfile.ParseRow(v)
		if err != nil {
			return nil, &snapshot.DamagedError{Object: d.Name, Offset: -1, Err: fmt.Errorf("%s in bucket meta is no revision", key)}
		}
		*at = r.Main
	}
	storage, err := meta.Get([]byte("storageVersion"))
	o.storage = storage != nil
	return o, damage(d.Name, err)
}

// compacted is the revision that etcd would open the database with: a compaction
// that was scheduled and not finished counts.
func (s *side) compacted() int64 { return max(s.scheduled, s.finished) }

// damage names the database in what pages says of it.
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

// compactions compares what both sides have compacted. The log gives that; how
// much of it a member has deleted, it does not.
func (c *comparison) compactions() {
	a, b := c.sides[0], c.sides[1]
	if a.compacted() != b.compacted() {
		c.found("bucket meta, compacted revision", fmt.Sprintf("%s is compacted at revision %d, %s at %d", a.Name, a.compacted(), b.Name, b.compacted()))
	}
	for _, s := range c.sides {
		if s.scheduled > s.finished {
			c.Left = append(c.Left, fmt.Sprintf("%s had not finished its compaction at revision %d: what it had still to delete was passed over", s.Name, s.scheduled))
		}
	}
}

func (c *comparison) found(where, text string) {
	c.Findings = append(c.Findings, report.Finding{Kind: report.KindDifference, Where: where, Text: text})
}

// rows goes through a bucket of a side.
type rows struct {
	side       *side
	cursor     *boltfile.Cursor             // nil: the side has no such bucket
	deleted    func(key, value []byte) bool // whether the compaction has deleted the row; nil: it deletes none
	key, value []byte                       // nil key: the end; nil value: a bucket inside the bucket
}

// rowsOf is at the first row of a bucket.
func (c *comparison) rowsOf(s *side, bucket string) (*rows, error) {
	b, err := s.db.Bucket([]byte(bucket))
	r := &rows{side: s}
	if err != nil || b == nil {
		return r, damage(s.Name, err)
	}
	r.cursor = b.Cursor()
	if bucket == "key" {
		if r.deleted, err = s.compaction(b, max(c.sides[0].compacted(), c.sides[1].compacted())); err != nil {
			return r, damage(s.Name, err)
		}
	}
	return r, r.advance(r.cursor.First)
}

func (r *rows) next() error { return r.advance(r.cursor.Next) }

// advance goes to the next row that the compaction leaves.
func (r *rows) advance(step func() (key, value []byte, err error)) (err error) {
	for {
		if r.key, r.value, err = step(); err != nil {
			return damage(r.side.Name, err)
		}
		if r.key == nil || r.deleted == nil || !r.deleted(r.key, r.value) {
			return nil
		}
		step = r.cursor.Next
	}
}

// pair is a row of both sides, or of one.
type pair struct {
	key    []byte
	values [2][]byte
	in     [2]bool
}

// nextPair takes the next row of both sides in the order of their keys; the key is nil
// at the end.
func nextPair(sides [2]*rows) (p pair, err error) {
	a, b := sides[0].key, sides[1].key
	order := bytes.Compare(a, b)
	p.in = [2]bool{a != nil && (b == nil || order <= 0), b != nil && (a == nil || order >= 0)}
	for i, r := range sides {
		if !p.in[i] {
			continue
		}
		p.key, p.values[i] = r.key, r.value
		if err := r.next(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// equal reports whether both sides have the very row.
func (p *pair) equal() bool {
	return p.in[0] && p.in[1] && (p.values[0] == nil) == (p.values[1] == nil) && bytes.Equal(p.values[0], p.values[1])
}

// bucket compares one. A bucket that is not there is one without rows: each version makes
// them in its own time.
func (c *comparison) bucket(name string) (err error) {
	var sides [2]*rows
	for i, s := range c.sides {
		if sides[i], err = c.rowsOf(s, name); err != nil {
			return err
		}
	}
	var compared, differ int
	var first report.Finding
	for {
		p, err := nextPair(sides)
		if err != nil {
			return err
		}
		if p.key == nil {
			break
		}
		if c.unreplicated(name, p) {
			continue
		}
		compared++
		if !c.same(name, p) {
			if differ++; differ == 1 {
				first.Where, first.Text = whereOf(name, p), c.how(p)
			}
		}
	}
	if name == "lease" {
		if n := c.leases.judge(c); n > 0 {
			differ += n
			first.Where, first.Text = cmp.Or(first.Where, c.leases.where), cmp.Or(first.Text, c.leases.text)
		}
	}
	if differ > 1 {
		first.Text += "; and " + report.Counted(differ-1, "more row of this bucket differs", "more rows of this bucket differ")
	}
	if differ > 0 {
		c.found(first.Where, first.Text)
	}
	switch at := max(c.sides[0].compacted(), c.sides[1].compacted()); {
	case name == "key" && at > 0:
		c.Compared = append(c.Compared, fmt.Sprintf("every revision of every key that is not compacted at revision %d (of what was overwritten or deleted by then, nothing is left to compare), byte by byte (rows: %d)", at, compared))
	case name == "key":
		c.Compared = append(c.Compared, fmt.Sprintf("every revision of every key, byte by byte (rows: %d)", compared))
	case compared > 0:
		c.rows = append(c.rows, fmt.Sprintf("%s %d", name, compared))
	}
	return nil
}

// same reports whether a row says the same on both sides.
func (c *comparison) same(bucket string, p pair) bool {
	if bucket == "lease" {
		return c.leases.same(c, p)
	}
	if !p.equal() && bucket == "authUsers" && sameButPassword(p) {
		c.Passwords = append(c.Passwords, string(p.key))
		return true
	}
	return p.equal()
}

// unreplicated passes over a row that the log does not give, and remembers it
// where the sides differ in it.
func (c *comparison) unreplicated(bucket string, p pair) bool {
	switch name := bucket + "/" + string(p.key); name {
	case "meta/scheduledCompactRev", "meta/finishedCompactRev": // see compactions
		return true
	case "meta/confState", "meta/consistent_index", "meta/storageVersion", "meta/term":
		if !p.equal() {
			c.ofMember = append(c.ofMember, name)
		}
		return true
	case "cluster/clusterVersion", "cluster/downgrade":
		// A version that did not know of it has not written it.
		if p.in[0] == p.in[1] {
			return false
		}
		c.ofMember = append(c.ofMember, name)
		return true
	}
	return false
}

// sameButPassword reports whether nothing but the hash of a user's password differs.
func sameButPassword(p pair) bool {
	var users [2]authpb.User
	for i := range users {
		if !p.in[i] || proto.Unmarshal(p.values[i], &users[i]) != nil || len(users[i].Password) == 0 {
			return false
		}
		users[i].Password = nil
	}
	return proto.Equal(&users[0], &users[1])
}

// whereOf says which row it is, for people.
func whereOf(bucket string, p pair) string {
	switch {
	case bucket == "lease" && len(p.key) == 8:
		return fmt.Sprintf("bucket lease, lease %016x", binary.BigEndian.Uint64(p.key))
	case bucket != "key":
		return fmt.Sprintf("bucket %s, row %q", bucket, p.key)
	}
	row, err := boltfile.ParseRow(p.key)
	if err != nil {
		return fmt.Sprintf("bucket key, row %x", p.key)
	}
	for i, value := range p.values {
		if key, err := boltfile.KeyOf(value); p.in[i] && err == nil {
			return fmt.Sprintf("key %q, revision %s", key, row)
		}
	}
	return fmt.Sprintf("revision %s", row)
}

// how says in what a row differs.
func (c *comparison) how(p pair) string {
	a, b := c.sides[0].Name, c.sides[1].Name
	switch {
	case !p.in[1]:
		return fmt.Sprintf("it is in %s, and not in %s", a, b)
	case !p.in[0]:
		return fmt.Sprintf("it is in %s, and not in %s", b, a)
	}
	return fmt.Sprintf("it is another one: %d bytes in %s, %d in %s", len(p.values[0]), a, len(p.values[1]), b)
}

// mostMinTTL is the most that a cluster raises a short lease to, in seconds: 1.5
// times etcd's longest election timeout.
const mostMinTTL = 75

// leaseTimes is what is known of leases whose granted times differ. A cluster
// raises short leases to a minimum that follows from its members' election
// timeout, which the log does not show. All that were raised then have that
// minimum on one side, and no lease of that side has less.
type leaseTimes struct {
	least       [2]int64         // the shortest of all leases of a side
	pairs       map[[2]int64]int // how many leases have one time here and another there
	where, text string           // of the first of them
	checkpoints int              // leases of which only the time left differs, before etcd 3.6
}

// same reports whether a lease is the same on both sides, but for what judge decides.
func (l *leaseTimes) same(c *comparison, p pair) bool {
	var leases [2]leasepb.Lease
	for i := range leases {
		if !p.in[i] {
			continue
		}
		if proto.Unmarshal(p.values[i], &leases[i]) != nil {
			return p.equal()
		}
		if ttl := leases[i].TTL; l.least[i] == 0 || ttl < l.least[i] {
			l.least[i] = ttl
		}
	}
	if !p.in[0] || !p.in[1] {
		return false
	}
	a, b := &leases[0], &leases[1]
	if a.RemainingTTL != b.RemainingTTL && !c.sides[0].storage && !c.sides[1].storage {
		l.checkpoints++
		b.RemainingTTL = a.RemainingTTL
	}
	times := [2]int64{a.TTL, b.TTL}
	b.TTL = a.TTL
	if !proto.Equal(a, b) {
		return false
	}
	// More pairs than there are short times are not what raising makes.
	if times[0] == times[1] || len(l.pairs) > mostMinTTL {
		return times[0] == times[1]
	}
	if l.pairs == nil {
		l.pairs = map[[2]int64]int{}
		l.where, l.text = whereOf("lease", p), fmt.Sprintf("the granted time, in seconds, is %d in %s, and %d in %s", times[0], c.sides[0].Name, times[1], c.sides[1].Name)
	}
	l.pairs[times]++
	return true
}

// judge decides whether the leases' times differ because short ones were raised to
// another minimum; else it is how many leases differ.
func (l *leaseTimes) judge(c *comparison) (differ int) {
	if l.checkpoints > 0 {
		c.Left = append(c.Left, fmt.Sprintf("the time left of %d leases was not compared: members before etcd 3.6 do not all keep it", l.checkpoints))
	}
	longer := 0
	if l.least[1] > l.least[0] {
		longer = 1
	}
	raised := l.least[longer] <= mostMinTTL && len(l.pairs) <= mostMinTTL
	for times, n := range l.pairs {
		raised = raised && times[longer] == l.least[longer] && times[1-longer] < times[longer]
		differ += n
	}
	if !raised || differ == 0 {
		return differ
	}
	c.Left = append(c.Left, fmt.Sprintf("%d short leases were granted %d s in %s and less in %s, as if its members had raised them to their minimum, 1.5 times the election timeout: if that is not what they are configured to, these leases differ",
		differ, l.least[longer], c.sides[longer].Name, c.sides[1-longer].Name))
	return 0
}

// compaction names the rows of the key bucket that a compaction deletes: up to its
// revision all but the newest of each key, and that as well where it is a deletion. One at
// the very revision counts too, though newer etcds keep it until the next compaction. A
// row that cannot be decoded is compared as it is.
func (s *side) compaction(keys *boltfile.Bucket, at int64) (deletes func(key, value []byte) bool, err error) {
	// Up to the compaction that the side has finished no key has two rows.
	newest, err := boltfile.ReadNewest(keys, s.finished+1, at)
	if err != nil {
		return nil, err
	}
	return func(key, value []byte) bool {
		row, err := boltfile.ParseRow(key)
		switch {
		case err != nil || row.Main > at:
			return false
		case row.Deleted:
			return true
		}
		last, err := newest.Has(row, value)
		return err == nil && !last
	}, nil
}
