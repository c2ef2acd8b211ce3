package replaying

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

// Side is one of the two databases.
type Side struct {
	Name string // how findings call it
	R    io.ReaderAt
	Size int64 // of the database in bytes, without a trailing SHA-256
}

// maxFindings are enough to see what kind of difference it is: where two histories
// diverge, every later row differs.
const maxFindings = 20

// Difference is what came out.
type Difference struct {
	// Findings are of report.KindDifference, those in the key bucket first, in
	// the order of revisions. Differences counts all, also those that are not
	// among them for their number; the last finding then says so.
	Findings    []report.Finding
	Differences int64
	// Passwords are users of whom nothing differs but the hash of the password, which
	// is no finding: etcd 3.4 salted each member's anew, and they stay through upgrades.
	Passwords []string
	// Compared says in sentences what was compared with what, Left what was not.
	Compared []string
	Left     []string
	// Rows that were compared, after compaction.
	Rows int64
}

// Compare compares b with a, row by row in every bucket: two databases that should be
// the same state of one cluster.
//
// It promises:
//
//  1. A row that one of them lacks, or has otherwise, is a finding, and the
//     first one in the order of revisions comes first. Only what is listed below
//     is no finding.
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
//     before 3.6 keep a checkpoint's time only when told to.
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
// A database that cannot be read as one is a
// *snapshot.DamagedError; other errors are those of the readers, and ctx's. progress
// counts bytes of keys and values, of both sides' sizes; it may be nil, and is called
// from Compare's goroutine.
func Compare(ctx context.Context, a, b Side, progress func(done, total int64)) (Difference, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	c := &comparison{ctx: ctx, tell: progress, total: a.Size + b.Size}
	var err error
	for i, s := range []Side{a, b} {
		if c.sides[i], err = openSide(ctx, s); err != nil {
			return Difference{}, err
		}
	}
	if err := c.compare(); err != nil {
		return Difference{}, err
	}
	return c.result(), nil
}

// comparison is one Compare under way.
type comparison struct {
	ctx   context.Context
	tell  func(done, total int64)
	sides [2]*side

	done, total int64
	steps       int
	findings    []report.Finding
	differences int64
	rows        int64
	compared    []string
	buckets     []string // names and numbers of rows
	left        leftOut
	leases      leaseTimes
	passwords   []string
}

func (c *comparison) compare() error {
	c.compactions()
	if err := c.keys(); err != nil {
		return err
	}
	names, err := c.bucketNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.bucket(name); err != nil {
			return err
		}
	}
	if len(c.buckets) > 0 {
		c.compared = append(c.compared, "every row of the other buckets, byte by byte (rows: "+strings.Join(c.buckets, ", ")+")")
	}
	c.progress(c.total - c.done)
	return nil
}

// step counts a row's bytes, and ends a comparison whose context has ended.
func (c *comparison) step(bytes int) error {
	c.done += int64(bytes)
	if c.steps++; c.steps%1024 != 0 {
		return nil
	}
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	c.progress(0)
	return nil
}

func (c *comparison) progress(more int64) {
	c.done += more
	c.tell(min(c.done, c.total), c.total)
}

func (c *comparison) found(where, text string) {
	c.differences++
	if len(c.findings) < maxFindings {
		c.findings = append(c.findings, report.Finding{Kind: report.KindDifference, Where: where, Text: text})
	}
}

func (c *comparison) result() Difference {
	if more := c.differences - int64(len(c.findings)); more > 0 {
		c.findings = append(c.findings, report.Finding{Kind: report.KindDifference, Text: fmt.Sprintf("and %d more rows differ", more)})
	}
	return Difference{Findings: c.findings, Differences: c.differences, Compared: c.compared, Left: c.left.sentences(), Rows: c.rows, Passwords: c.passwords}
}

// missing says which side has a row that the other has not.
func (c *comparison) missing(where string, in int, what string) {
	c.found(where, fmt.Sprintf("%s is in %s, and not in %s", what, c.sides[in].Name, c.sides[1-in].Name))
}

// side is an open database.
type side struct {
	Side
	db                  *boltfile.File
	scheduled, finished int64 // compactions; 0: none
	storage             bool  // it has a storage version: from etcd 3.6 on
}

func openSide(ctx context.Context, s Side) (*side, error) {
	db, err := boltfile.Open(ctx, s.R, s.Size)
	if err != nil {
		return nil, damage(s.Name, err)
	}
	o := &side{Side: s, db: db}
	meta, err := db.Bucket([]byte("meta"))
	if err != nil {
		return nil, damage(s.Name, err)
	}
	if meta == nil {
		return nil, &snapshot.DamagedError{Object: s.Name, Offset: -1, Err: errors.New("no bucket meta: a bbolt database, but not one of etcd")}
	}
	for key, at := range map[string]*int64{"scheduledCompactRev": &o.scheduled, "finishedCompactRev": &o.finished} {
		v, err := meta.Get([]byte(key))
		if err != nil {
			return nil, damage(s.Name, err)
		}
		if v == nil {
			continue
		}
		r, err := boltfile.ParseRow(v)
		if err != nil {
			return nil, &snapshot.DamagedError{Object: s.Name, Offset: -1, Err: fmt.Errorf("%s in bucket meta is no revision", key)}
		}
		*at = r.Main
	}
	storage, err := meta.Get([]byte("storageVersion"))
	o.storage = storage != nil
	return o, damage(s.Name, err)
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

// rows goes through a bucket of a side; nil bucket: it has none.
type rows struct {
	side       *side
	cursor     *boltfile.Cursor
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
