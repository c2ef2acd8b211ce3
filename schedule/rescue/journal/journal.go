// Package journal is what a recovery's driver remembers: what was decided, and each
// step, before and after it. It promises:
//
//  1. An entry is on the disk before Add returns.
//  2. A journal whose last line was cut off by a crash is read without it, and goes
//     on. A line that is damaged otherwise is an error, with its place.
//  3. One driver at a time has the folder; reading takes no lock.
//
// The folder has a sub-folder for each run, 0001-ID and on, which stays when the run
// is over.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Event is what an entry says.
type Event string

// The events.
const (
	Decided  Event = "decided" // Data is the decision; a later one takes its place
	Begun    Event = "begun"   // a phase, on a host or as a whole
	Done     Event = "done"    // Data is what came out
	Failed   Event = "failed"  // Error says why
	Surveyed Event = "surveyed"
	Finished Event = "finished" // Data is the report
	Undoing  Event = "undoing"
	Undone   Event = "undone"
	Declined Event = "declined" // what had been stopped runs again
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
	entries, whole, err := parse(f, r.path())
	if err == nil {
		err = f.Truncate(whole)
	}
	if err == nil {
		_, err = f.Seek(whole, io.SeekStart)
	}
	if err == nil {
		err = syncDir(r.folder)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("journal %s: %w", r.path(), err), f.Close())
	}
	r.entries = entries
	return nil
}

// parse reads entries, and says how many bytes are whole lines.
func parse(in io.Reader, name string) (all []Entry, whole int64, err error) {
	lines := bufio.NewReader(in)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // perhaps in the middle of a line
			return all, whole, nil
		}
		if err != nil {
			return nil, 0, err
		}
		var e Entry
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			return nil, 0, fmt.Errorf("%s, line %d: %w: look at it; without the journal the run can be neither gone on with nor undone", name, number, err)
		}
		all = append(all, e)
		whole += int64(len(line))
	}
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
	line, err := json.Marshal(e)
	if err != nil {
		return e, fmt.Errorf("journal %s: %w", r.path(), err)
	}
	at, err := r.file.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = r.file.Sync()
	}
	if err != nil {
		// Half a line must not stand before the next one.
		cut := r.file.Truncate(at)
		_, seek := r.file.Seek(at, io.SeekStart)
		return e, fmt.Errorf("journal %s: %w", r.path(), errors.Join(err, cut, seek))
	}
	r.entries = append(r.entries, e)
	return e, nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
