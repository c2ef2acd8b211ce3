// Package walfile reads the write-ahead logs of etcd 3.5 to 3.7: those of
// stopped members and copies (Log), and those that a member is writing (Tail).
//
// It promises:
//
//  1. It only reads. Nothing in the directory is changed, locked or repaired.
//  2. Later records win: an entry that a later record at the same or a lower
//     index replaced is not given, and neither is anything that followed it.
//     Entries that a leader's snapshot made doubtful are not given either.
//  3. Entries come in order and without holes. Where the log has one, that is an
//     error which names its ends: *GapError where a leader's snapshot came,
//     *PurgedError where files are gone.
//  4. A write that was cut off by a crash (a torn tail) and damage are distinguished
//     by etcd's own rule, that a torn write leaves zeroed sectors; and a torn
//     tail with synced records behind it is damage. Damage is a *CorruptError:
//     file, offset, cause.
//  5. Memory does not grow with the log. A Tail holds the entries that were not
//     released, softly bounded; a Log one block of 256 KiB (or one entry, where
//     that is larger), and a few words for each overwrite.
//  6. A log of an etcd that is newer than this package is refused by an
//     ErrNewer, which names the version where the log does.
//
// The caller owes: a Log's directory does not change while it is read; a Tail is
// used by one goroutine, polled more often than the member purges (every 30
// seconds, beyond five files), and given what is committed: neither can know
// which entries are.
package walfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/store/safedir"
)

// Log is the log of a stopped member, or a copy of one. Its methods may be used
// at the same time.
type Log struct {
	dir      string
	names    []name
	missing  error // why older files than these are not read
	identity Identity

	mu    sync.Mutex
	plans map[int]*plan // what passes from a segment on found
}

// Open opens the log in a directory, such as <data directory>/member/wal. Files
// of others in it, and those that etcd was still preparing, are ignored. It is
// ErrNoLog when there is none. Files are open only while they are read.
func Open(dir string) (*Log, error) {
	names, err := list(dir)
	if err != nil {
		return nil, fmt.Errorf("open the write-ahead log: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoLog)
	}
	l := &Log{dir: dir, names: names, plans: map[int]*plan{}}
	for i := len(names) - 1; i > 0; i-- {
		if names[i].seq != names[i-1].seq+1 {
			l.missing = &CorruptError{Dir: dir, Segment: names[i].String(), Err: fmt.Errorf("the file before it is missing: %s is the next older one", names[i-1])}
			l.names = names[i:]
			break
		}
	}
	return l, l.readIdentity()
}

// Newest is the path of the file that the member wrote last.
func (l *Log) Newest() string { return filepath.Join(l.dir, l.names[len(l.names)-1].String()) }

// Begins returns the raft index that the name of the oldest file has: the one after the last
// entry before it.
func (l *Log) Begins() uint64 { return l.names[0].index }

// readIdentity reads the head of the newest segment that has one.
func (l *Log) readIdentity() error {
	for i := len(l.names) - 1; i >= 0; i-- {
		id, err := l.head(l.names[i])
		if err == nil {
			l.identity = id
			return nil
		}
		if i == 0 {
			return err
		}
	}
	return nil
}

func (l *Log) head(n name) (Identity, error) {
	f, size, err := openSegment(l.dir, n)
	if err != nil {
		return Identity{}, err
	}
	defer f.Close() //nolint:errcheck // reading
	return headOf(f, size, l.dir, n)
}

// headOf reads whose log a segment belongs to.
func headOf(f io.ReaderAt, size int64, dir string, n name) (Identity, error) {
	r := newReader(f, 0, size, chain{})
	rec, err := r.next()
	if err == nil {
		rec, err = r.next()
	}
	if err == nil && rec.kind != wal.MetadataType {
		err = fmt.Errorf("a record of type %d is where whose log it is should be", rec.kind)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return Identity{}, &CorruptError{Dir: dir, Segment: n.String(), Offset: rec.at, Err: explain(err)}
	}
	id, err := parseIdentity(rec.data)
	if err != nil {
		return id, fmt.Errorf("%s: %w", filepath.Join(dir, n.String()), err)
	}
	return id, nil
}

func openSegment(dir string, n name) (*os.File, int64, error) {
	f, err := safedir.Open(filepath.Join(dir, n.String()))
	if err != nil {
		return nil, 0, fmt.Errorf("the write-ahead log: %w", withRight(err))
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("the write-ahead log: %w", closing(f, err))
	}
	return f, info.Size(), nil
}

// Identity is whose log it is.
func (l *Log) Identity() Identity { return l.identity }

// name is that of a segment file: <sequence number>-<first index>.wal.
type name struct {
	seq uint64
	// index is the one after the last that had been written when the file was
	// begun. Entries in the file may have lower ones: overwrites.
	index uint64
}

func (n name) String() string { return fmt.Sprintf("%016x-%016x.wal", n.seq, n.index) }

// parseName is false for everything that etcd would not read: what it is still
// preparing (.tmp), what it set aside (.broken), and what others left there.
func parseName(s string) (name, bool) {
	if len(s) != len("0123456789abcdef-0123456789abcdef.wal") {
		return name{}, false
	}
	seq, err1 := strconv.ParseUint(s[:16], 16, 64)
	index, err2 := strconv.ParseUint(s[17:33], 16, 64)
	n := name{seq, index}
	return n, err1 == nil && err2 == nil && n.String() == s
}

// list gives the segments of a directory by sequence number.
func list(dir string) ([]name, error) {
	entries, err := safedir.ReadDir(dir)
	if err != nil {
		return nil, withRight(err)
	}
	var names []name
	for _, e := range entries {
		if n, ok := parseName(e.Name()); ok && !e.IsDir() {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, bySequence)
	for i := 1; i < len(names); i++ {
		if names[i].seq == names[i-1].seq {
			return nil, &CorruptError{Dir: dir, Segment: names[i].String(), Err: fmt.Errorf("two files have this sequence number, the other one is %s", names[i-1])}
		}
	}
	return names, nil
}

// Size is how many bytes a log's files have, none where there is no log.
func Size(dir string) (sum int64, err error) {
	entries, err := safedir.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".wal" {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}

// From are those of a log's files, given by name, that a reader of its entries
// from index on needs, in their order: later records overwrite earlier ones, so
// they are the file that holds the entry, and all behind it. Names of other files
// are left out.
func From(files []string, index uint64) []string {
	var names []name
	for _, file := range files {
		if n, ok := parseName(file); ok {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.SortFunc(names, bySequence)
	names = names[holding(names, index):]
	needed := make([]string, len(names))
	for i, n := range names {
		needed[i] = n.String()
	}
	return needed
}

func bySequence(a, b name) int {
	return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.index, b.index))
}

// holding is the last of the names at whose beginning index had not been
// written, or the first of all: every entry from index on is in it or behind it.
func holding(names []name, index uint64) int {
	for i := len(names) - 1; i > 0; i-- {
		if names[i].index <= index {
			return i
		}
	}
	return 0
}

// plan is what one pass over a log found: which of the entry records make up the
// log in the end.
type plan struct {
	start    int     // the segment that it began with
	runs     []run   // by index, with the gaps between them
	ordinals []int64 // by segment, from start on: the first entry record in it
	summary  Summary
	err      error // why it ends where it does, when that is not the log's end
}

// Summary is what a log holds.
type Summary struct {
	Identity Identity
	// FirstIndex and LastIndex are of the entries there are, overwrites resolved;
	// 0 when there are none. Where the log ends with a leader's snapshot,
	// LastIndex and LastTerm are the snapshot's, and LastIndex is no entry's.
	FirstIndex, LastIndex, LastTerm uint64
	// Commit is the highest commit index that the member recorded. What it
	// acknowledged may be a little beyond.
	Commit uint64
	Term   uint64 // of the last hard state: nothing to rank members by
	// Snapshot is the newest one that the log records at or before Commit, and
	// Snapshots are all of these.
	Snapshot  Mark
	Snapshots []Mark
	Gaps      []GapError // by index
	Torn      *TornTail  // nil when the log ends cleanly
}

// Summary reads the whole log once; a second call costs nothing. When the log is
// damaged it reports the part before the damage, and the error comes with it.
// When files are missing it reports what is behind them.
func (l *Log) Summary(ctx context.Context) (Summary, error) {
	p, err := l.planned(ctx, 0)
	if err != nil {
		return Summary{Identity: l.identity}, err
	}
	return p.summary, errors.Join(l.missing, p.err)
}

// planned makes the plan of the segments from start on, once.
func (l *Log) planned(ctx context.Context, start int) (*plan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.plans[start]; p != nil {
		return p, nil
	}
	p := &planner{plan: plan{start: start, summary: Summary{Identity: l.identity}}}
	p.log.base.Index = max(1, l.names[start].index) - 1
	torn, err := l.walk(ctx, start, p.visit)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l.plans[start] = p.finish(torn, err)
	return l.plans[start], nil
}

// plannedFor makes a plan that holds an index. Damage in segments before those
// that matter for it is no hindrance: etcd doesn't read them either.
func (l *Log) plannedFor(ctx context.Context, first uint64) (*plan, error) {
	p, err := l.planned(ctx, 0)
	var damage *CorruptError
	if err != nil || !errors.As(p.err, &damage) || len(p.runs) > 0 && first <= p.runs[len(p.runs)-1].last() {
		return p, err
	}
	if start := holding(l.names, first); l.names[start].String() > damage.Segment {
		return l.planned(ctx, start)
	}
	return p, nil
}

type planner struct {
	plan
	log       resolver
	snapshots []Mark // beyond the commit index, or the newest one that is not
	commit    uint64
}

func (p *planner) visit(segment int, rec record) error {
	for len(p.ordinals) <= segment-p.start {
		p.ordinals = append(p.ordinals, p.log.entries)
	}
	if rec.kind == wal.SnapshotType {
		m, err := parseMark(rec.data)
		if err != nil {
			return fmt.Errorf("a snapshot record: %w", err)
		}
		p.snapshots = append(p.snapshots, m)
		p.log.snapshot(m)
		return p.pass(p.log.settle())
	}
	if err := p.pass(p.log.settle()); err != nil {
		return err
	}
	if rec.kind == wal.StateType {
		s, err := parseState(rec.data)
		if err != nil {
			return fmt.Errorf("a hard state: %w", err)
		}
		p.commit = max(p.commit, s.commit)
		p.log.hardState(s)
		return nil
	}
	e, err := parseEntry(rec.data)
	if err == nil {
		err = refuseNewer(e)
	}
	if err != nil {
		return err
	}
	if err := p.pass(p.log.hole(e.Index)); err != nil {
		return err
	}
	if n := len(p.runs); n > 0 && e.Index <= p.runs[n-1].last() {
		return fmt.Errorf("entry %d is after a snapshot at a higher index", e.Index)
	}
	p.log.add(e.Index, e.Term)
	return nil
}

// pass takes a gap into the plan. All other errors stay errors.
func (p *planner) pass(err error) error {
	if err == nil { // as nearly always, and without an allocation
		return nil
	}
	var gap *GapError
	if !errors.As(err, &gap) {
		return err
	}
	p.runs = append(p.runs, p.log.runs...)
	n := len(p.summary.Gaps)
	switch {
	case len(p.runs) == 0: // nothing is missing: the log begins there
	case n > 0 && gap.After < p.summary.Gaps[n-1].Next: // no entries between the two
		p.summary.Gaps[n-1].Next = gap.Next
	default:
		p.summary.Gaps = append(p.summary.Gaps, *gap)
	}
	p.log.restart()
	return nil
}

func (p *planner) finish(torn *TornTail, err error) *plan {
	if settled := p.pass(p.log.settle()); err == nil {
		err = settled
	}
	p.runs = append(p.runs, p.log.runs...)
	p.err = err
	s := &p.summary
	s.Torn, s.Commit, s.Term = torn, p.commit, p.log.term
	if len(p.runs) > 0 {
		s.FirstIndex = p.runs[0].first
	}
	if p.log.started || p.log.base.Term > 0 {
		s.LastIndex = p.log.last()
		s.LastTerm, _ = p.log.termAt(s.LastIndex)
	}
	for _, m := range p.snapshots {
		if m.Index <= p.commit {
			s.Snapshot = m
			s.Snapshots = append(s.Snapshots, m)
		}
	}
	return &p.plan
}

// CorruptError says that a log is damaged, and not only at its torn end.
type CorruptError struct {
	Dir, Segment string // Segment is a file's name
	Offset       int64  // of the first byte that cannot be read, in that file
	Err          error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("the write-ahead log is damaged: %s at byte %d: %v; what is before that is good: take the rest from another member's log or from the archive",
		filepath.Join(e.Dir, e.Segment), e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// PurgedError says that entries are no longer in the log: etcd deletes old files.
type PurgedError struct {
	Want  uint64 // the first index that is missing
	First uint64 // the first one that is there behind it; 0 where there is none
}

func (e *PurgedError) Error() string {
	if e.First == 0 {
		return fmt.Sprintf("raft index %d and what follows it: %s", e.Want, purged)
	}
	return fmt.Sprintf("raft index %d: %s, which now begins with %d; another member's log may have it, or take a full snapshot", e.Want, purged, e.First)
}

const purged = "purged from the write-ahead log"

// GapError says that the member never had some entries: a leader sent it a
// snapshot in their place. Entries before the gap that nothing recorded as
// committed count as missing: the snapshot may have replaced them.
type GapError struct {
	After uint64 // the last index before the gap
	Next  uint64 // the first one behind it
}

func (e *GapError) Error() string {
	return fmt.Sprintf("the log has no entries between raft index %d and %d: a leader's snapshot came in their place; another member's log may have them, or take a full snapshot", e.After, e.Next)
}

// ErrNewer says that a newer etcd than this package knows wrote the log.
var ErrNewer = errors.New("written by an etcd that is newer than this requorum knows")

// newer is ErrNewer with what is not known, and the version that the log names; empty
// where it names none.
func newer(version, format string, args ...any) error {
	if version == "" {
		version = "a later version than " + knownRelease()
	} else {
		version = "version " + version
	}
	return fmt.Errorf("%s: %w: %s; use a newer requorum", fmt.Sprintf(format, args...), ErrNewer, version)
}

// ErrReplaced says that another log took the place of the one that was being
// read: the member was wiped, restored or rolled back. Open the directory anew.
var ErrReplaced = errors.New("another log took the place of the one that was being read: was the member wiped, restored or rolled back? Open its directory anew")

// ErrNoLog says that a directory holds no write-ahead log.
var ErrNoLog = errors.New("no write-ahead log (files like 0000000000000000-0000000000000000.wal) in the directory; give the data directory's member/wal, or the one of --wal-dir")

// withRight adds to an error of opening what to do where the right is missing:
// etcd's files can be read by its own user alone.
func withRight(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run this as etcd's own user, or with CAP_DAC_READ_SEARCH (see docs/agent.md)", err)
	}
	return err
}
