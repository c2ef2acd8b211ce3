package structure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/pages"
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
	// Progress is told how many bytes were read, of how many; nil is nobody. It
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
	// Known are all members that the database can tell of: those there are, those
	// that were removed, and those in raft's configuration. It is nil where one of
	// the three is not known: etcd 3.4 keeps no configuration.
	Known []snapshot.ID
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
// order of its keys, in long stretches that are sorted by their place, by
// several goroutines: r must stand that, as an os.File and a bytes.Reader do.
//
// An error says that r failed, that ctx has ended, or that the database cannot
// be read by this program at all (pages.ErrBigEndian). Damage is no error but
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
	meta    pages.Meta
	found   findings
	result  Result
	// moreNotes are those beyond the limit of findings: a bucket may be full of
	// what is odd.
	moreNotes int

	mapping sync.Mutex // over used
	used    *pageMap
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
func (c *check) open() (*pages.File, error) {
	f, err := pages.Open(c.src, c.size)
	var broken *pages.PageError
	switch {
	case errors.As(err, &broken):
		c.found.add(report.KindPage, pageAt(broken.Page), "%v", broken.Err)
	case errors.Is(err, pages.ErrNotDatabase):
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
		if err := c.src.readAt(b, int64(id)*int64(c.meta.PageSize)); err != nil {
			return err
		}
		m, err := pages.ParseMeta(b, id)
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
