// Package journal is what a control process remembers of what it did to its
// member: which recovery has it, and what was set aside. It promises that an
// entry is on the disk before Add returns, and that a journal whose last line was
// cut off by a crash is read without it, and goes on.
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

	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/restore"
)

// Step is what an entry says.
type Step string

// The steps.
const (
	Held     Step = "held"      // the run has the member from now on
	Released Step = "released"  // it no longer has it
	Asiding  Step = "set-aside" // begun: Aside says what is moved
	Asided   Step = "set-aside-done"
	Undoing  Step = "undo" // begun, of what Aside says
	Undone   Step = "undo-done"
	// Building begins the last step of a rebuild: Built says of which plan.
	// Superseded says that it was done: from then on the old cluster counts as
	// superseded by the new one, until an undo of the same run.
	Building   Step = "rebuild"
	Superseded Step = "superseded"
	// Quiescing begins a quiesce: Clients says which of them ran. ClientAt says how
	// far the run got with those that it names; Resumed that the quiesce is over.
	Quiescing Step = "quiesce"
	ClientAt  Step = "client"
	Resumed   Step = "resume-done"
	// Flagging begins to bring etcd's flags in line: Flags says where. Unflagged says
	// that the old ones are back.
	Flagging  Step = "flags"
	Unflagged Step = "flags-undone"
)

// Entry is one line.
type Entry struct {
	Time  time.Time      `json:"time"`
	Run   string         `json:"run"`
	Step  Step           `json:"step"`
	Aside *restore.Aside `json:"aside,omitempty"`
	Built *Built         `json:"built,omitempty"`
	// Clients are those of Quiescing and ClientAt.
	Clients []Client `json:"clients,omitempty"`
	Flags   *Flags   `json:"flags,omitempty"`
}

// Aside is a set-aside, as far as it got.
type Aside struct {
	restore.Aside
	Done    bool
	Undoing bool
}

// Journal is open until Close. Its methods may be called by several goroutines.
type Journal struct {
	path string
	now  func() time.Time

	mu    sync.Mutex
	file  *os.File
	run   string  // that has the member
	aside []Aside // not undone, oldest first
	built []Built // not undone, oldest first
	taken []Built // undone

	quiesce *Quiesce // not resumed

	flags []Flags // not undone, oldest first
}

// Open opens the journal in a folder, which it makes, and locks it: one process
// controls a member. The caller closes it.
func Open(folder string) (*Journal, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	j := &Journal{path: filepath.Join(folder, "journal.jsonl"), now: time.Now}
	f, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the journal: %w", err)
	}
	j.file = f
	if err := takeLock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s is in use by another control process: %w", j.path, err), f.Close())
	}
	if err := j.read(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

// lockPatience is longer than a program that was just started holds a copy of a file
// that has been closed.
const lockPatience = time.Second

func takeLock(f *os.File) error {
	for began := time.Now(); ; time.Sleep(lockPatience / 20) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Since(began) > lockPatience {
			return err
		}
	}
}

// Close releases the lock.
func (j *Journal) Close() error { return j.file.Close() }

// read takes up what stands there, and cuts off a line that was not finished.
func (j *Journal) read() error {
	in := bufio.NewReader(j.file)
	whole := int64(0)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if err != nil { // the end, perhaps in the middle of a line
			break
		}
		var e Entry
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("journal %s, line %d: %w: look at it, and move it away once nothing is set aside that is still wanted", j.path, number, err)
		}
		j.apply(e)
		whole += int64(len(line))
	}
	if err := j.file.Truncate(whole); err != nil {
		return fmt.Errorf("journal %s: %w", j.path, err)
	}
	_, err := j.file.Seek(whole, io.SeekStart)
	return err
}

func (j *Journal) apply(e Entry) {
	j.applyClients(e)
	switch e.Step {
	case Held:
		j.run = e.Run
	case Released:
		if j.run == e.Run {
			j.run = ""
		}
	case Asiding:
		j.aside = append(j.aside, Aside{Aside: *e.Aside})
	case Asided, Undoing, Undone:
		for i := range j.aside {
			if a := &j.aside[i]; a.Run == e.Run {
				a.Done = a.Done || e.Step == Asided
				a.Undoing = a.Undoing || e.Step == Undoing
				if e.Step == Undone {
					j.aside = append(j.aside[:i], j.aside[i+1:]...)
					j.takeBack(e.Run)
				}
				return
			}
		}
	case Building, Superseded:
		j.build(e)
	case Flagging, Unflagged:
		j.flag(e)
	default: // it is about clients
	}
}

// Add writes an entry, durably.
func (j *Journal) Add(e Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Time = j.now().UTC()
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("journal %s: %w", j.path, err)
	}
	at, err := j.file.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err == nil && at == 0 {
		err = syncDir(filepath.Dir(j.path))
	}
	if err != nil {
		// Half a line must not stand before the next one.
		cut := j.file.Truncate(at)
		_, seek := j.file.Seek(at, io.SeekStart)
		return fmt.Errorf("journal %s: %w", j.path, errors.Join(err, cut, seek))
	}
	j.apply(e)
	return nil
}

// Run is the one that has the member, or has quiesced the host's clients; empty
// where none has.
func (j *Journal) Run() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.run == "" && j.quiesce != nil {
		return j.quiesce.Run
	}
	return j.run
}

// Holds tells whether a run has the member itself.
func (j *Journal) Holds(run string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.run == run
}

// Asides are those that were not undone, oldest first.
func (j *Journal) Asides() []Aside {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]Aside(nil), j.aside...)
}

// Aside is the one of a run; nil where there is none.
func (j *Journal) Aside(run string) *Aside {
	for _, a := range j.Asides() {
		if a.Run == run {
			return &a
		}
	}
	return nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
