// Package structure proves that a database is one that etcd can have written.
//
// It promises:
//
//  1. Every page is looked at once: each is reached from one place only, or is
//     on the freelist; keys are in order within and across pages.
//  2. Every bucket of etcd is decoded, and what belongs together fits: members
//     and the raft configuration, users and roles, keys and their leases.
//  3. Every key's history is one that etcd's mvcc makes: revisions without a
//     gap above the compacted one, create revision, mod revision and version in
//     step, a fresh start after each deletion, and what a compaction had to
//     leave.
//  4. HashKV, computed in the same pass, is the manifest's, and so are the
//     facts and the number of keys.
//  5. All faults are found, not only the first; what only follows from a fault
//     that is listed already is not listed beside it.
//  6. Damage never panics, never loops, and takes no more memory than a healthy
//     database of that size.
//  7. Nothing that etcd 3.5 to 3.7 writes is called a fault.
//
// A value that was altered together with every sum over it is found by the
// HashKV that a member answered with, or by no level below replay.
//
// # Memory
//
// Two MiB for each worker, and for each key that the history names (also a
// deleted one, until its deletion is compacted) 46 to 48 bytes of a table that
// is keyed by 96 bits of a hash with random seeds. Beside that 8 bytes for
// each row up to the compacted revision, 8 for each lease, and two bits for
// each page. A process has up to twice of that, as Go's garbage collector goes. Values are never kept, so their size does not matter.
//
// # Not called faults
//
//   - A bucket or a key of the bucket meta that etcd 3.7 does not know: a note.
//   - A row without a value, as `etcdutl snapshot restore --bump-revision` and
//     requorum put in to raise the revision.
//   - A member of a database of etcd 3.5 that the raft configuration
//     does not have: those keep members that were removed in some cases, and
//     do not use them. A note.
//   - Members that the raft configuration does not have, or the other way, where
//     consistent_index says that no entry came since a restore: etcdutl leaves
//     the old configuration in the database until the member starts. A note.
//   - One member that the raft configuration is ahead of: etcd stores the
//     configuration first, and a snapshot can come between the two. A note.
//   - Revisions that are missing up to the compacted one, also when the
//     compaction is not finished.
//
// A database that `etcdctl migrate` of old versions made from etcd 2 has gaps in its
// revisions until they are compacted, and is called damaged.
package structure

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

// DefaultMaxFindings is enough to see what happened, and few enough to read.
const DefaultMaxFindings = 100

// Options say what a database is held against. The zero value is of use.
type Options struct {
	// Manifest is what the backup's manifest says; nil where there is none.
	Manifest *snapshot.Manifest
	// MaxFindings bounds Result.Findings; 0 is DefaultMaxFindings.
	MaxFindings int
	// Progress is given how many bytes were read, of how many; nil is nobody. It
	// is called by one goroutine at a time.
	Progress func(done, total int64)
}

// Result is what was found.
type Result struct {
	// Findings are the faults, none when the database is sound.
	Findings []report.Finding
	// More is how many faults there are beyond the listed ones.
	More int64
	// Facts are what the database says of itself, as far as it can be read.
	Facts snapshot.Facts
	// HashKV is that of etcd at the newest revision. Where rows could not be
	// read there is none, and Obtained says so.
	HashKV snapshot.HashKV
	// Keys that are alive at the newest revision, and rows of all revisions.
	Keys, Revisions int64
	// Compared are sentences: what was held against what.
	Compared []string
	// Notes are what is odd, and no fault.
	Notes []string
	// Bytes that were read.
	Bytes int64
}

// Check goes through the whole database in r, of size bytes without a trailing
// SHA-256, once, and finds all faults. The pages of a bucket are read in the
// order of its keys, in long runs that are sorted by their place, by
// several goroutines: r must stand that, as an os.File and a bytes.Reader do.
//
// An error says that r failed, that ctx has ended, or that the database cannot
// be read by this program at all (boltfile.ErrBigEndian). Damage is no error but
// in Result.Findings.
func Check(ctx context.Context, r io.ReaderAt, size int64, o Options) (Result, error) {
	if o.MaxFindings <= 0 {
		o.MaxFindings = DefaultMaxFindings
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &check{src: &source{ctx: ctx, r: r}, size: size, options: o, found: findings{most: o.MaxFindings}}
	err := c.run(ctx)
	if err != nil {
		return Result{}, err
	}
	c.result.Findings, c.result.More, c.result.Bytes = c.found.list, c.found.more, c.src.read.Load()
	if c.moreNotes > 0 {
		c.result.Notes = append(c.result.Notes, fmt.Sprintf("%d more of these are not listed", c.moreNotes))
	}
	if c.result.More > 0 {
		c.result.Notes = append(c.result.Notes, fmt.Sprintf("%d more faults are not listed", c.result.More))
	}
	return c.result, nil
}

// check is one run.
type check struct {
	src     *source
	size    int64
	options Options
	meta    boltfile.Meta
	found   findings
	result  Result
	// moreNotes are those beyond the limit of findings: a bucket may be full of
	// what is odd.
	moreNotes int

	mapping sync.Mutex // over used
	used    pageMap
	// incomplete says that pages could not be reached: which ones are not used
	// is unknown then.
	incomplete atomic.Bool

	buckets map[string]bucketRoot
	unread  error // why there are no facts
	db      contents
}

// contents is what is remembered of the small buckets.
type contents struct {
	meta    metaBucket
	leases  []uint64 // sorted
	auth    auth
	members membership
}

func (c *check) run(ctx context.Context) error {
	f, err := c.open()
	if f == nil {
		c.result.HashKV = snapshot.HashKV{Obtained: noHash}
		return err
	}
	c.meta = f.Meta()
	c.used = newPageMap(c.meta.Pages)
	for _, step := range []func() error{c.checkMetaPages, c.readRoot, c.readSmallBuckets, func() error { return c.readFacts(ctx) }, c.readKeys, c.checkFreelist} {
		if err := step(); err != nil {
			return err
		}
		c.progress()
	}
	if c.unread != nil && !c.found.any() {
		c.found.add(report.KindRow, "", "%v", c.unread)
	}
	c.checkIndex()
	c.comparePages()
	c.compareManifest()
	return nil
}

// open opens the database; it is nil where that cannot be done, which is a fault
// unless there is an error.
func (c *check) open() (*boltfile.File, error) {
	f, err := boltfile.Open(c.src.ctx, c.src, c.size)
	var broken *boltfile.PageError
	switch {
	case errors.As(err, &broken):
		c.found.add(report.KindPage, pageAt(broken.Page), "%v", broken.Err)
	case errors.Is(err, boltfile.ErrNotDatabase):
		c.found.add(report.KindPage, "", "%v", err)
	default:
		return f, err
	}
	return nil, nil
}

func (c *check) progress() { c.options.Progress(min(c.src.read.Load(), c.size), c.size) }

func (c *check) note(format string, args ...any) {
	if len(c.result.Notes) >= c.options.MaxFindings {
		c.moreNotes++
		return
	}
	c.result.Notes = append(c.result.Notes, fmt.Sprintf(format, args...))
}

func (c *check) compared(format string, args ...any) {
	c.result.Compared = append(c.result.Compared, fmt.Sprintf(format, args...))
}

// checkMetaPages looks at both meta pages: bbolt goes on with one where the
// other is broken, and then with an older state.
func (c *check) checkMetaPages() error {
	b := make([]byte, min(c.meta.PageSize, 4096))
	for id := range uint64(2) {
		c.used.set(id)
		if err := boltfile.ReadFull(c.src, b, int64(id)*int64(c.meta.PageSize)); err != nil {
			return err
		}
		m, err := boltfile.ParseMeta(b, id)
		if err == nil && m.PageSize != c.meta.PageSize {
			err = fmt.Errorf("it says that pages have %d bytes, the other meta page says %d", m.PageSize, c.meta.PageSize)
		}
		if err != nil {
			c.found.add(report.KindPage, pageAt(id), "meta page: %v; bbolt would go on with the other one", err)
		}
	}
	return nil
}

// readFacts reads what the database says of itself.
func (c *check) readFacts(ctx context.Context) error {
	facts, err := snapshot.ReadFacts(ctx, c.src, c.size)
	var damaged *snapshot.DamagedError
	switch {
	case errors.As(err, &damaged):
		c.unread = damaged.Err
	case err != nil:
		return err
	}
	c.result.Facts = facts
	return nil
}

// findings are collected up to a number; further ones are counted.
type findings struct {
	most int
	list []report.Finding
	more int64
}

// add adds a fault. Its text is made only while there is room for it.
func (f *findings) add(kind report.Kind, where, format string, args ...any) {
	if len(f.list) >= f.most {
		f.more++
		return
	}
	f.list = append(f.list, report.Finding{Kind: kind, Where: where, Text: fmt.Sprintf(format, args...)})
}

// room reports whether another one would be kept.
func (f *findings) room() bool { return len(f.list) < f.most }

// join takes over the findings of another collection.
func (f *findings) join(other *findings) {
	n := min(len(other.list), f.most-len(f.list))
	f.list = append(f.list, other.list[:n]...)
	f.more += other.more + int64(len(other.list)-n)
}

func (f *findings) any() bool { return len(f.list) > 0 || f.more > 0 }

// source reads the database, until the context ends, and counts. It may be used
// by several goroutines.
type source struct {
	ctx  context.Context
	r    io.ReaderAt
	read atomic.Int64
	// extended are the bytes of the pages that extend over others, each time that
	// one is loaded.
	extended atomic.Int64
}

// ReadAt reads unless the context has ended.
func (s *source) ReadAt(b []byte, at int64) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	n, err := s.r.ReadAt(b, at)
	s.read.Add(int64(n))
	return n, err
}

// join puts the CRC-32C of size more bytes behind the sum, as if it had been
// computed over all of them. A CRC is a remainder of polynomials over GF(2):
// bytes behind a text multiply its remainder by x^(8*size).
func (l *long) join(crc uint32, size int64) {
	power, n := uint32(1<<31), size // the polynomial 1: bits are reversed
	for level := 0; n > 0; level, n = level+1, n>>8 {
		if b := n & 0xff; b != 0 {
			power = multiply(power, shifts[level][b])
		}
	}
	l.crc = multiply(l.crc, power) ^ crc
	l.size += size
}

// shifts[level][b] is x^(8*b*256^level), for all sizes below 2^48.
var shifts = makeShifts()

func makeShifts() (all [6][256]uint32) {
	unit := uint32(1 << 31 >> 8) // x^8
	for level := range all {
		all[level][0] = 1 << 31
		for b := 1; b < 256; b++ {
			all[level][b] = multiply(all[level][b-1], unit)
		}
		unit = multiply(all[level][255], unit)
	}
	return all
}

// castagnoliPolynomial in reversed bits, without x^32.
const castagnoliPolynomial = 0x82f63b78

// multiply multiplies two remainders: in reversed bits the highest one of a is
// its power 0.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ castagnoliPolynomial&-(b&1)
	}
	return product
}

// manifestCompaction is the compacted revision of the manifest's HashKV, when
// there is one that can be held against the database. The member that answered
// may have compacted meanwhile.
func (c *check) manifestCompaction() (int64, bool) {
	m := c.options.Manifest
	if m == nil || m.HashKV.Revision == 0 || m.HashKV.Revision != c.result.Facts.Revision {
		return 0, false
	}
	compacted := max(0, m.HashKV.CompactedRevision)
	return compacted, compacted >= c.db.meta.compacted() && compacted <= m.HashKV.Revision
}

// hash computes HashKV, and holds it against the manifest's.
func (c *check) hash(h *history, anyKey bool, rest long) {
	compacted := c.db.meta.compacted()
	c.result.HashKV = snapshot.HashKV{Obtained: "computed from the database", Hash: h.pieces.sum(compacted, anyKey, rest),
		Revision: c.result.Facts.Revision, CompactedRevision: compacted}
	if compacted == 0 {
		c.result.HashKV.CompactedRevision = -1 // as etcd has it
	}
	m := c.options.Manifest
	if m == nil || m.HashKV.Revision == 0 {
		c.compared("HashKV %d of revision %d was computed, with nothing to hold it against", c.result.HashKV.Hash, c.result.HashKV.Revision)
		return
	}
	other, ok := c.manifestCompaction()
	if !ok {
		c.found.add(report.KindHash, "", "the manifest's HashKV is of revision %d, compacted at %d: the database is at %d, compacted at %d",
			m.HashKV.Revision, m.HashKV.CompactedRevision, c.result.HashKV.Revision, c.result.HashKV.CompactedRevision)
		return
	}
	got := h.pieces.sum(other, anyKey, rest)
	switch {
	case got == m.HashKV.Hash:
		c.compared("HashKV %d of revision %d against the manifest's, which was obtained %s", got, m.HashKV.Revision, m.HashKV.Obtained)
	case !anyKey && snapshot.HashesOtherwise(m.Source.Version):
		c.note("HashKV was not held against the manifest's: etcd %s hashes a database without keys in another way", m.Source.Version)
	default:
		c.found.add(report.KindHash, "", "HashKV at revision %d, compacted at %d, is %d: the manifest has %d, obtained %s",
			m.HashKV.Revision, m.HashKV.CompactedRevision, got, m.HashKV.Hash, m.HashKV.Obtained)
	}
}

// compareManifest holds what the database says of itself against the manifest.
func (c *check) compareManifest() {
	m := c.options.Manifest
	if m == nil {
		return
	}
	differs := func(what string, found, said any) {
		if !reflect.DeepEqual(found, said) {
			c.found.add(report.KindFacts, "", "%s is %v, and the manifest has %v", what, found, said)
		}
	}
	if raw := m.Object.RawSize; raw != c.size+sha256.Size {
		differs("the database's size with its SHA-256", c.size+sha256.Size, raw)
	}
	if c.incomplete.Load() || c.unread != nil {
		return
	}
	found, said := reflect.ValueOf(c.result.Facts), reflect.ValueOf(m.Facts)
	for i := range found.NumField() {
		if found.Field(i).Kind() == reflect.Slice && found.Field(i).Len() == 0 && said.Field(i).Len() == 0 {
			continue // none is none, as null and as an empty list
		}
		differs(found.Type().Field(i).Tag.Get("json"), found.Field(i).Interface(), said.Field(i).Interface())
	}
	if n := m.Keys.Count; n != nil && !c.found.any() {
		differs("the number of keys", c.result.Keys, *n)
	}
	c.compared("revision, compacted revision, raft index and term, versions, members, alarms and authentication, size and number of keys against the manifest")
}
