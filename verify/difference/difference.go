package difference

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/requorum/requorum/verify/report"
)

// Side is one of the two databases.
type Side struct {
	Name string // how findings call it
	R    io.ReaderAt
	Size int64 // of the database in bytes, without a trailing SHA-256
}

// DefaultMaxFindings are enough to see what kind of difference it is: where two
// histories diverge, every later row differs.
const DefaultMaxFindings = 100

// Options say what to compare.
type Options struct {
	// MaxFindings bounds Result.Findings; 0 is DefaultMaxFindings.
	MaxFindings int
	// OwnPassword decides, where nothing but the hash of a user's password differs,
	// whether that is no finding: each member of etcd 3.4 made its own. nil: never.
	OwnPassword func(user string, a, b []byte) bool
	// WithoutKeys leaves out the key bucket: for a quick look at the rest.
	WithoutKeys bool
	// Progress counts bytes of keys and values, of both sides' sizes. It may be
	// nil, and is called from Compare's goroutine.
	Progress func(done, total int64)
}

// Result is what came out.
type Result struct {
	// Findings are of report.KindDifference, those in the key bucket first, in
	// the order of revisions. Differences counts all, also those that are not
	// among them for their number; the last finding then says so.
	Findings    []report.Finding
	Differences int64
	// Compared says in sentences what was compared with what, Left what was not.
	Compared []string
	Left     []string
	// Rows that were compared, after compaction.
	Rows int64
}

// Compare compares b with a. A database that cannot be read as one is a
// *snapshot.DamagedError; other errors are those of the readers, and ctx's.
func Compare(ctx context.Context, a, b Side, o Options) (Result, error) {
	c := &comparison{ctx: ctx, o: o, total: a.Size + b.Size}
	if c.o.MaxFindings <= 0 {
		c.o.MaxFindings = DefaultMaxFindings
	}
	var err error
	for i, s := range []Side{a, b} {
		if c.sides[i], err = openSide(ctx, s); err != nil {
			return Result{}, err
		}
	}
	if err := c.compare(); err != nil {
		return Result{}, err
	}
	return c.result(), nil
}

// comparison is one Compare under way.
type comparison struct {
	ctx   context.Context
	o     Options
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
}

func (c *comparison) compare() error {
	c.compactions()
	if !c.o.WithoutKeys {
		if err := c.keys(); err != nil {
			return err
		}
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
	if c.o.Progress != nil {
		c.o.Progress(min(c.done, c.total), c.total)
	}
}

func (c *comparison) found(where, text string) {
	c.differences++
	if len(c.findings) < c.o.MaxFindings {
		c.findings = append(c.findings, report.Finding{Kind: report.KindDifference, Where: where, Text: text})
	}
}

func (c *comparison) result() Result {
	if more := c.differences - int64(len(c.findings)); more > 0 {
		c.findings = append(c.findings, report.Finding{Kind: report.KindDifference, Text: fmt.Sprintf("and %d more rows differ", more)})
	}
	return Result{Findings: c.findings, Differences: c.differences, Compared: c.compared, Left: c.left.sentences(), Rows: c.rows}
}

// missing says which side has a row that the other has not.
func (c *comparison) missing(where string, in int, what string) {
	c.found(where, fmt.Sprintf("%s is in %s, and not in %s", what, c.sides[in].Name, c.sides[1-in].Name))
}
