package walfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/etcd/server/v3/storage/wal"
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
// ErrNoLog when there is none. Close the log.
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

// Newest is the name of the file that the member wrote last.
func (l *Log) Newest() string { return l.names[len(l.names)-1].String() }

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
	defer f.Close()
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

// file is what is used of an open segment.
type file interface {
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
}

func openSegment(dir string, n name) (file, int64, error) {
	f, err := os.Open(filepath.Join(dir, n.String()))
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

// Close ends the use of the log. Files are open only while they are read.
func (l *Log) Close() error { return nil }
