package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// ErrBusy says that another driver has the folder.
var ErrBusy = errors.New("another recovery of this cluster is at work")

// Folder is the state folder of a cluster's recoveries, locked until Close.
type Folder struct {
	path string
	lock *os.File
	runs []*Run // oldest first
}

var runFolder = regexp.MustCompile(`^(\d{4,})-([A-Za-z0-9.-]+)$`)

// Open makes the folder where it is not there, locks it, and reads the journals in
// it. The caller closes it.
func Open(path string) (*Folder, error) {
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

// lockPatience is longer than a child process that was just forked holds a copy of
// a file that its parent has closed.
const lockPatience = time.Second

func takeLock(f *os.File) error {
	for began := time.Now(); ; time.Sleep(lockPatience / 20) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Since(began) > lockPatience {
			return ErrBusy
		}
	}
}

// Read gives the runs of a folder, oldest first, as their journals are now: without
// a lock, and for reading only. A folder that is not there has none.
func Read(path string) ([]*Run, error) {
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
	r.entries, _, err = parse(in, r.path())
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
func (f *Folder) Runs() []*Run { return Started(f.runs) }

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

// Started leaves out those runs that a crash ended before their first entry.
func Started(runs []*Run) []*Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return len(r.Entries()) == 0 })
}
