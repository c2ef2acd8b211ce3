// A summary is what a host reports of its member's data without the data: who writes it
// has read the member's databases and its log, and who reads it compares that log with
// others.
//
// It is JSON, one summaryLine for each line: the first with what is known before the log
// is read, then the entries, by their sums, in the order of their indexes, and last all
// that was found. It comes from a process of this very version, as the first line of a
// conversation with a host makes sure, or from this one; and what altered it on its way is
// seen by the sum over all that a host sends.
//
// It promises:
//
//  1. Reading and writing hold one line in memory, whatever the log's length.
//  2. What was cut off, or lengthened, is an error. Nothing of a summary is to be used
//     before its end was read without one.
//  3. Nothing that comes from outside makes it panic, or allocate much more than a line
//     can have.
//
// A sum of an entry is no secret's keeper: who can guess the data can check the guess by
// it. A summary is as confidential as the log.

package sources

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/walfile"
)

// maxSummaryLine bounds a line. What is found of a member takes a few KiB.
const maxSummaryLine = 1 << 20

// summaryLine is a line of a summary: one of these is there.
type summaryLine struct {
	Begin *Remains `json:"begin,omitempty"` // what is known before the log's entries are read
	Run   *logRun  `json:"run,omitempty"`
	End   *Remains `json:"end,omitempty"` // all of it
}

// logRun is some entries of one term whose indexes follow each other.
type logRun struct {
	First uint64 `json:"first"`
	Term  uint64 `json:"term"`
	Sums  []byte `json:"sums"` // one entrySum after the other
}

// mostOfRun is how many entries are in a run at most.
const mostOfRun = 1024

func (r *logRun) len() int { return len(r.Sums) / len(entrySum{}) }

// add adds an entry, if it goes on with the run.
func (r *logRun) add(e logEntry) bool {
	switch n := r.len(); {
	case n == 0:
		r.First, r.Term = e.Index, e.Term
	case n == mostOfRun || e.Index != r.First+uint64(n) || e.Term != r.Term:
		return false
	}
	r.Sums = append(r.Sums, e.Sum[:]...)
	return true
}

// entries are those of a run, which has to begin behind an index.
func (r *logRun) entries(behind uint64) ([]logEntry, error) {
	n := r.len()
	if n == 0 || len(r.Sums)%len(entrySum{}) != 0 || r.First <= behind || r.First+uint64(n) < r.First {
		return nil, fmt.Errorf("there are no entries from raft index %d on, of %d bytes, behind %d", r.First, len(r.Sums), behind)
	}
	all := make([]logEntry, n)
	for i := range all {
		all[i] = logEntry{r.First + uint64(i), r.Term, entrySum(r.Sums[i*len(entrySum{}):])}
	}
	return all, nil
}

// Summary is what WriteSummary writes of a member, on its own host or here.
type Summary struct {
	Name string // how the operator calls the member
	// Open begins to read it from its start. Survey closes the reader.
	Open func() (io.ReadCloser, error)
}

// SummaryOptions are for WriteSummary.
type SummaryOptions struct {
	// CheckBase looks at a member's database, of size bytes; where nil, only its pages
	// are checked. What it finds is a *snapshot.DamagedError.
	CheckBase func(ctx context.Context, name string, r io.ReaderAt, size int64) error
	// Progress may be nil. It is called until the entries begin.
	Progress func(phase string, done, total int64)
}

// WriteSummary reads one stopped member, its databases and its log to the end, and
// writes what Survey needs of it: what the databases, the log and the files show, and of
// each entry of the log which one it is. It opens files for reading only, locks nothing,
// holds a few entries in memory, and fails with a restore.ErrInUse if the member runs, or was
// started meanwhile. What is damaged is reported in the summary, and no error.
//
// What was written when it fails is refused by Survey. A summary is as
// confidential as the log: see above.
func WriteSummary(ctx context.Context, w io.Writer, s Survivor, o SummaryOptions) error {
	for _, dir := range []*string{&s.DataDir, &s.WALDir} {
		if *dir == "" {
			continue
		}
		var err error
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if err := checkIdle(s); err != nil {
		return err
	}
	if o.CheckBase == nil {
		o.CheckBase = snapshot.CheckStructure
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	d, err := openMember(ctx, s, o)
	if err != nil {
		return err
	}
	return d.write(ctx, w, d.entries(ctx))
}

// write reads the log's entries, and writes the summary.
func (d *memberDir) write(ctx context.Context, w io.Writer, log iter.Seq2[raftlog.Entry, error]) error {
	out := bufio.NewWriterSize(w, 64<<10)
	line := func(l summaryLine) error {
		b, err := json.Marshal(l)
		if err == nil && len(b) >= maxSummaryLine {
			err = fmt.Errorf("a line would have %d bytes, at most %d are possible", len(b), maxSummaryLine)
		}
		if err == nil {
			_, err = out.Write(append(b, '\n'))
		}
		if err != nil {
			return fmt.Errorf("write the summary: %w", err)
		}
		return nil
	}
	if err := line(summaryLine{Begin: d.remains}); err != nil {
		return err
	}
	f := d.follow()
	var run logRun
	var ended error
	for e, err := range f.visited(log) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ended = err; err != nil {
			break
		}
		if !run.add(e) {
			if err := line(summaryLine{Run: &run}); err != nil {
				return err
			}
			run.Sums = run.Sums[:0]
			run.add(e)
		}
	}
	if run.len() > 0 {
		if err := line(summaryLine{Run: &run}); err != nil {
			return err
		}
	}
	f.finish(d, ended)
	// One that was started meanwhile has written into what was read.
	if err := checkIdle(d.Survivor); err != nil {
		return err
	}
	return cmp.Or(line(summaryLine{End: d.remains}), out.Flush())
}

// entries yields all entries of the log, over its gaps.
func (d *memberDir) entries(ctx context.Context) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		if d.log == nil {
			return
		}
		for first := d.remains.Log.FirstIndex; first != 0; {
			var gap *walfile.GapError
			for e, err := range d.log.Entries(ctx, first) {
				if errors.As(err, &gap) {
					break
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
			if gap == nil || gap.Next <= first {
				return
			}
			first = gap.Next
		}
	}
}

// openedSummary is a summary while it is read.
type openedSummary struct {
	name   string
	from   io.Closer
	lines  *bufio.Scanner
	number int     // of the line
	found  Remains // first of the first line, and of the last one once all entries were read
}

// open reads the first line. The others are read when logs are compared, and only then
// is it known whether the summary is whole.
func (y *survey) open(s Summary) error {
	from, err := s.Open()
	if err != nil {
		return fmt.Errorf("the summary of %s: %w", s.Name, err)
	}
	o := &openedSummary{name: s.Name, from: from, lines: bufio.NewScanner(from)}
	o.lines.Buffer(nil, maxSummaryLine)
	y.members = append(y.members, o)
	l, err := o.next()
	if err == nil && l.Begin == nil {
		err = o.invalid(errors.New("it is no beginning"))
	}
	if err == nil {
		err = o.take(l.Begin)
	}
	return err
}

// take takes over what was found.
func (o *openedSummary) take(m *Remains) error {
	for _, db := range m.Databases {
		// What is rebuilt opens files by the last parts of their paths.
		if !isDatabase(filepath.Base(db.Path)) {
			return o.invalid(fmt.Errorf("%q is no name of a member's database", db.Path))
		}
	}
	o.found, o.found.Name = *m, o.name
	return nil
}

func (o *openedSummary) next() (*summaryLine, error) {
	o.number++
	if !o.lines.Scan() {
		return nil, o.invalid(cmp.Or(o.lines.Err(), io.ErrUnexpectedEOF))
	}
	var l summaryLine
	if err := json.Unmarshal(o.lines.Bytes(), &l); err != nil {
		return nil, o.invalid(cmp.Or(o.lines.Err(), err)) // half a line comes before the error that cut it
	}
	return &l, nil
}

func (o *openedSummary) invalid(err error) error {
	return fmt.Errorf("the summary of %s: line %d: %w", o.name, o.number, err)
}

// entries yields the entries of the member's log, up to where that could be read. An
// error is that the summary is not a whole one.
func (o *openedSummary) entries(ctx context.Context) iter.Seq2[logEntry, error] {
	return func(yield func(logEntry, error) bool) {
		for last, ended := uint64(0), false; !ended; {
			var run []logEntry
			l, err := o.next()
			switch {
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case err != nil:
			case l.End != nil:
				err, ended = o.take(l.End), true
				if err == nil && o.lines.Scan() {
					err = o.invalid(errors.New("something follows its end"))
				}
				err = cmp.Or(err, o.lines.Err())
			case l.Run == nil || o.found.Log == nil:
				err = o.invalid(errors.New("it is neither entries of a log that was read nor the end"))
			default:
				if run, err = l.Run.entries(last); err != nil {
					err = o.invalid(err)
				}
			}
			if err != nil {
				yield(logEntry{}, err)
				return
			}
			for _, e := range run {
				if last = e.Index; !yield(e, nil) {
					return
				}
			}
		}
	}
}

func (y *survey) close() error {
	var all []error
	for _, o := range y.members {
		if err := o.from.Close(); err != nil {
			all = append(all, fmt.Errorf("the summary of %s: %w", o.name, err))
		}
	}
	return errors.Join(all...)
}
