package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"
)

// Event is what an entry says.
type Event string

// The events.
const (
	EventDecided  Event = "decided" // Data is the decision; a later one takes its place
	EventBegun    Event = "begun"   // a phase, on a host or as a whole
	EventDone     Event = "done"    // Data is what came out
	EventFailed   Event = "failed"  // Error says why
	EventSurveyed Event = "surveyed"
	EventFinished Event = "finished" // Data is the report
	EventUndoing  Event = "undoing"
	EventUndone   Event = "undone"
	EventDeclined Event = "declined" // what had been stopped runs again
)

// Entry is one line.
type Entry struct {
	Time  time.Time       `json:"time"`
	Event Event           `json:"event"`
	Phase string          `json:"phase,omitempty"`
	Host  string          `json:"host,omitempty"`
	Error string          `json:"error,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// Run is the journal of one run. Its methods may be called by several goroutines.
type Run struct {
	id     string
	folder string
	now    func() time.Time

	mu      sync.Mutex
	file    *os.File
	entries []Entry
}

const fileName = "journal.jsonl"

// ID is the run's.
func (r *Run) ID() string { return r.id }

// Folder is the run's own, for what goes with its journal.
func (r *Run) Folder() string { return r.folder }

// Entries are those so far.
func (r *Run) Entries() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Entry(nil), r.entries...)
}

// Close closes the file.
func (r *Run) Close() error { return r.file.Close() }

func (r *Run) path() string { return filepath.Join(r.folder, fileName) }

// open opens the file for going on with it.
func (r *Run) open() error {
	f, err := os.OpenFile(r.path(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("the journal: %w", err)
	}
	r.file = f
	err = takeUp(f, r.take)
	if err == nil {
		err = syncDir(r.folder)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("journal %s: %w: without the journal the run can be neither gone on with nor undone", r.path(), err), f.Close())
	}
	return nil
}

// take takes up a line.
func (r *Run) take(line []byte) error {
	var e Entry
	if err := strict(line, &e); err != nil {
		return err
	}
	r.entries = append(r.entries, e)
	return nil
}

// Add writes an entry, durably, and gives it as it was written: with its time, and
// with data, which may be nil, as its Data.
func (r *Run) Add(e Entry, data any) (Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if data != nil {
		raw, err := json.Marshal(data)
		if err != nil {
			return e, fmt.Errorf("journal %s: %w", r.path(), err)
		}
		e.Data = raw
	}
	e.Time = r.now().UTC()
	if err := appendLine(r.file, e); err != nil {
		return e, fmt.Errorf("journal %s: %w", r.path(), err)
	}
	r.entries = append(r.entries, e)
	return e, nil
}

// ErrBusy says that another process has the folder, or is at work on the host.
var ErrBusy = errors.New("another recovery of this cluster is at work")

// Folder is the state folder of a cluster's recoveries, locked until Close.
type Folder struct {
	path string
	lock *os.File
	runs []*Run // oldest first
}

var runFolder = regexp.MustCompile(`^(\d{4,})-([A-Za-z0-9.-]+)$`)

// OpenFolder makes the folder where it is not there, locks it, and reads the journals in
// it. The caller closes it.
func OpenFolder(path string) (*Folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	if err := takeLock(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("state folder %s: %w", path, err), lock.Close())
	}
	f := &Folder{path: path, lock: lock}
	if f.runs, err = list(path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	for i, r := range f.runs {
		if err := r.open(); err != nil {
			f.runs = f.runs[:i]
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// ReadFolder gives the runs of a folder, oldest first, as their journals are now: without
// a lock, and for reading only. A folder that is not there has none.
func ReadFolder(path string) ([]*Run, error) {
	runs, err := list(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if err := r.read(); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

func (r *Run) read() error {
	in, err := os.Open(r.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was just being begun
	}
	if err != nil {
		return fmt.Errorf("the journal: %w", err)
	}
	_, err = eachLine(in, r.take)
	if err := errors.Join(err, in.Close()); err != nil {
		return fmt.Errorf("journal %s: %w", r.path(), err)
	}
	return nil
}

// list finds the runs' folders, in the order of their numbers.
func list(path string) ([]*Run, error) {
	all, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	var runs []*Run
	number := map[*Run]int{}
	for _, e := range all {
		m := runFolder.FindStringSubmatch(e.Name())
		if m == nil || !e.IsDir() {
			continue
		}
		r := &Run{id: m[2], folder: filepath.Join(path, e.Name()), now: time.Now}
		var n int
		if _, err := fmt.Sscan(trimZeros(m[1]), &n); err != nil {
			return nil, fmt.Errorf("the state folder: %s: %w", e.Name(), err)
		}
		number[r] = n
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b *Run) int { return number[a] - number[b] })
	return runs, nil
}

// trimZeros keeps a number from being read as an octal one.
func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}

// Runs are those that have at least one entry, oldest first.
func (f *Folder) Runs() []*Run { return StartedRuns(f.runs) }

// Begin makes the journal of a new run, which is empty. The folder closes it.
func (f *Folder) Begin(id string) (*Run, error) {
	number := 0
	if n := len(f.runs); n > 0 {
		m := runFolder.FindStringSubmatch(filepath.Base(f.runs[n-1].folder))
		if _, err := fmt.Sscan(trimZeros(m[1]), &number); err != nil {
			return nil, err
		}
	}
	r := &Run{id: id, folder: filepath.Join(f.path, fmt.Sprintf("%04d-%s", number+1, id)), now: time.Now}
	if err := os.Mkdir(r.folder, 0o700); err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	f.runs = append(f.runs, r)
	return r, syncDir(f.path)
}

// Close releases the lock and closes the journals.
func (f *Folder) Close() error {
	var errs []error
	for _, r := range f.runs {
		errs = append(errs, r.Close())
	}
	return errors.Join(append(errs, f.lock.Close())...)
}

// StartedRuns leaves out those runs that a crash ended before their first entry.
func StartedRuns(runs []*Run) []*Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return len(r.Entries()) == 0 })
}
