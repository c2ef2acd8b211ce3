package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/walfile"
)

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

// Summarize gives the summary of a stopped member whose data lies on this machine: it is
// written while it is read. A member that runs is a *RunningError at once.
func Summarize(ctx context.Context, s Survivor, o SummaryOptions) (Summary, error) {
	return Summary{Name: s.Name, Open: func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		p := &pipedSummary{r, make(chan struct{})}
		go func() {
			defer close(p.ended)
			_ = w.CloseWithError(WriteSummary(ctx, w, s, o)) // who reads it gets the error
		}()
		return p, nil
	}}, checkIdle(s)
}

// pipedSummary is a summary that is read while it is written.
type pipedSummary struct {
	*io.PipeReader
	ended chan struct{}
}

// Close returns once nothing reads the member's files any more.
func (p *pipedSummary) Close() error {
	err := p.PipeReader.Close()
	<-p.ended
	return err
}

// WriteSummary reads one stopped member, its databases and its log to the end, and
// writes what Survey needs of it: what the databases and the files tell, and of each
// entry of the log which one it is; of entries that are about members, all. It
// opens files for reading only, locks nothing, holds one entry in memory, and fails
// with a *RunningError where the member runs, or was started meanwhile. What is damaged
// is told in the summary, and no error.
//
// What was written when it fails is refused by Survey. A summary is as
// confidential as the log: see summary.go.
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
	out, err := newSummaryWriter(w, headOf(d))
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	end, err := d.outline(ctx, out)
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	// One that was started meanwhile has written into what was read.
	if err := checkIdle(s); err != nil {
		return err
	}
	if err := out.End(end); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return nil
}

// summaryHead is what the first pass over a directory found.
type summaryHead struct {
	Remains Remains          `json:"remains"` // as it was then
	Facts   []snapshot.Facts `json:"facts"`   // of each database
	Missing *logError        `json:"missing,omitempty"`
}

// summaryEnd is what the second one did.
type summaryEnd struct {
	Chain raftlog.Sum `json:"chain"`
	Error *logError   `json:"error,omitempty"` // that ended the log
}

// logError is an error of reading a log, as far as what is made of it depends on
// it.
type logError struct {
	Dir     string `json:"dir,omitempty"`
	Segment string `json:"segment,omitempty"` // empty where it is no damage of a file
	Offset  int64  `json:"offset,omitempty"`
	Text    string `json:"text"`
}

func logErrorOf(err error) *logError {
	var corrupt *walfile.CorruptError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &corrupt):
		return &logError{corrupt.Dir, corrupt.Segment, corrupt.Offset, corrupt.Err.Error()}
	}
	return &logError{Text: err.Error()}
}

func (e *logError) error() error {
	switch {
	case e == nil:
		return nil
	case e.Segment == "":
		return errors.New(e.Text)
	}
	return &walfile.CorruptError{Dir: e.Dir, Segment: e.Segment, Offset: e.Offset, Err: errors.New(e.Text)}
}

func headOf(d *memberDir) summaryHead {
	head := summaryHead{Remains: *d.remains, Facts: []snapshot.Facts{}, Missing: logErrorOf(d.missing)}
	for _, db := range d.remains.Databases {
		head.Facts = append(head.Facts, db.facts)
	}
	return head
}

// outline writes all entries of the log.
func (d *memberDir) outline(ctx context.Context, out *summaryWriter) (summaryEnd, error) {
	var end summaryEnd
	if d.log == nil {
		return end, nil
	}
	done := 0
	for e, err := range entriesOf(ctx, d.log, d.remains.Log.FirstIndex) {
		if ctx.Err() != nil {
			return end, context.Cause(ctx)
		}
		if err != nil {
			end.Error = logErrorOf(err)
			break
		}
		end.Chain = end.Chain.Next(e)
		if err := out.Add(outlineOf(e)); err != nil {
			return end, err
		}
		if done++; done%progressEvery == 0 {
			if err := out.Flush(); err != nil { // nobody takes it any more
				return end, err
			}
		}
	}
	return end, nil
}

// entriesOf yields all entries of a member's log, over its gaps.
func entriesOf(ctx context.Context, log *walfile.Log, first uint64) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		for first != 0 {
			var gap *walfile.GapError
			for e, err := range log.Entries(ctx, first) {
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

// outlineOf leaves out what only a replay needs.
func outlineOf(e raftlog.Entry) logEntry {
	moved := moves(e)
	if !moved && concernsMembership(e) {
		return wholeEntry(e)
	}
	return logEntry{Entry: raftlog.Entry{Index: e.Index, Term: e.Term, Type: e.Type}, Outline: true, Sum: entrySumOf(e.Data), Moves: moved}
}

// check refuses paths that no member has: what is rebuilt opens files by their
// last parts.
func (h *summaryHead) check() error {
	if len(h.Facts) != len(h.Remains.Databases) {
		return fmt.Errorf("it tells of %d databases, and has facts of %d", len(h.Remains.Databases), len(h.Facts))
	}
	for _, db := range h.Remains.Databases {
		if name := filepath.Base(db.Path); !isDatabase(name) {
			return fmt.Errorf("%q is no name of a member's database", db.Path)
		}
	}
	return nil
}

// SummaryError says that a summary is not what WriteSummary wrote: it was cut off,
// altered, or is of another format. Err is ErrInvalidSummary, a
// *SummaryFormatError, or why it could not be read.
type SummaryError struct {
	Name string // of the member
	Err  error
}

func (e *SummaryError) Error() string {
	next := ""
	if errors.Is(e.Err, ErrInvalidSummary) {
		next = ": fetch it again from the member's host"
	}
	return fmt.Sprintf("the summary of %s: %v%s", e.Name, e.Err, next)
}

func (e *SummaryError) Unwrap() error { return e.Err }

// openedSummary is a summary while it is read.
type openedSummary struct {
	name   string
	reader *summaryReader
	closer io.Closer
	chain  raftlog.Sum // of the whole log; known once it was read
}

// openSummary reads the first part. The second is read when logs are compared, and
// only then is it known whether the first is what was written.
func (y *survey) openSummary(s Summary) (*memberDir, error) {
	from, err := s.Open()
	if err != nil {
		return nil, &SummaryError{s.Name, err}
	}
	o := &openedSummary{name: s.Name, closer: from}
	y.summaries = append(y.summaries, o)
	var head summaryHead
	if o.reader, err = newSummaryReader(from, &head); err != nil {
		return nil, &SummaryError{s.Name, err}
	}
	if err := head.check(); err != nil {
		return nil, &SummaryError{s.Name, fmt.Errorf("%w: %w", ErrInvalidSummary, err)}
	}
	m := &head.Remains
	m.Name = s.Name
	for i := range m.Databases {
		m.Databases[i].facts = head.Facts[i]
	}
	d := &memberDir{Survivor: Survivor{Name: s.Name, DataDir: m.DataDir, WALDir: m.WALDir}, remains: m, summary: o, missing: head.Missing.error()}
	if m.Log != nil {
		return d, nil
	}
	for _, err := range o.entries(context.Background()) {
		if err == nil {
			err = &SummaryError{s.Name, fmt.Errorf("%w: it has entries of a log that could not be read", ErrInvalidSummary)}
		}
		return nil, err
	}
	return d, nil
}

// entries yields what the member's own log would, and ends as it did.
func (o *openedSummary) entries(ctx context.Context) iter.Seq2[logEntry, error] {
	return func(yield func(logEntry, error) bool) {
		for e, err := range o.reader.Entries() {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				yield(logEntry{}, &SummaryError{o.name, err})
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		var end summaryEnd
		if err := o.reader.End(&end); err != nil {
			yield(logEntry{}, &SummaryError{o.name, err})
			return
		}
		o.chain = end.Chain
		if err := end.Error.error(); err != nil {
			yield(logEntry{}, err)
		}
	}
}

// broken is the error of a summary that is not what was written, among those that
// logs ended with.
func broken(errs []error) error {
	for _, err := range errs {
		var bad *SummaryError
		if errors.As(err, &bad) {
			return err
		}
	}
	return nil
}

func (y *survey) close() error {
	var all []error
	for _, o := range y.summaries {
		if err := o.closer.Close(); err != nil {
			all = append(all, &SummaryError{o.name, err})
		}
	}
	return errors.Join(all...)
}
