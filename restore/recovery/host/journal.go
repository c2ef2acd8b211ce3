// The journal is what a recovery remembers on each host: what was decided, and what was
// done to its member. The coordinator remembers nothing. It promises:
//
//  1. An entry is on the disk before Add returns.
//  2. A journal whose last line was cut off by a crash is read without it, and goes
//     on. A line that is damaged otherwise, and a journal that cannot be read to its
//     end, is an error, and the file stays as it is.
//  3. One process writes a journal at a time; reading takes no lock.

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
)

// step is what an entry says.
type step string

// The steps.
const (
	stepDecided      step = "decided"   // Decision is the run's from now on, and the run the newest
	stepSetAside     step = "set-aside" // begun: Aside says what is moved
	stepSetAsideDone step = "set-aside-done"
	stepUndo         step = "undo" // begun, of what Aside says
	stepUndoDone     step = "undo-done"
	// Building begins the last step of a rebuild: Built says of which plan.
	// Superseded says that it was done: from then on the old cluster counts as
	// superseded by the new one, until an undo of the same run.
	stepRebuild    step = "rebuild"
	stepSuperseded step = "superseded"
	// Quiescing begins a quiesce: Clients says which of them ran. ClientAt says how
	// far the run got with those that it names; Resumed that the quiesce is over.
	stepQuiesce step = "quiesce"
	stepClient  step = "client"
	stepResumed step = "resume-done"
	// Asked is the first of a line: what is asked on an earlier one is refused.
	stepEpoch step = "asked"
)

// record is one line.
type record struct {
	Time  time.Time      `json:"time"`
	Run   string         `json:"run"`
	Step  step           `json:"step"`
	Aside *restore.Aside `json:"aside,omitempty"`
	Built *builtRecord   `json:"built,omitempty"`
	// Decision is the newest of its run.
	Decision *Decision `json:"decision,omitempty"`
	// Clients are those of Quiescing and ClientAt.
	Clients []clientRecord `json:"clients,omitempty"`
	Epoch   uint64         `json:"epoch,omitempty"`
}

// journal is open until Close. Its methods may be called by several goroutines.
type journal struct {
	path string
	now  func() time.Time

	mu        sync.Mutex
	file      *os.File
	decisions []Decision    // the newest of each run, and the newest of all last
	aside     []SetAside    // not undone, oldest first
	built     []builtRecord // not undone, oldest first
	taken     []builtRecord // undone

	quiesce *quiesceRecord // not resumed

	epoch uint64 // the highest
}

// openJournal opens the journal in a folder, which it makes, and locks it: one process
// changes a member at a time, and for another one the error is ErrBusy. The caller
// closes it.
func openJournal(folder string) (*journal, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	j := &journal{path: filepath.Join(folder, "journal.jsonl"), now: time.Now}
	f, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the journal: %w", err)
	}
	j.file = f
	if err := takeLock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w", j.path, err), f.Close())
	}
	err = takeUp(f, j.take)
	if err == nil {
		err = syncDir(folder)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w: look at it, and move it away once nothing is set aside that is still wanted", j.path, err), f.Close())
	}
	return j, nil
}

// readJournal gives the journal of a folder as it is now: without a lock, and for reading
// only. A folder that is not there has an empty one.
func readJournal(folder string) (*journal, error) {
	j := &journal{path: filepath.Join(folder, "journal.jsonl"), now: time.Now}
	f, err := os.Open(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the journal: %w", err)
	}
	_, err = eachLine(f, j.take)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("journal %s: %w", j.path, err)
	}
	return j, nil
}

// Close releases the lock.
func (j *journal) Close() error { return j.file.Close() }

// take takes up a line.
func (j *journal) take(line []byte) error {
	var e record
	if err := strict(line, &e); err != nil {
		return err
	}
	if e.Step == stepSetAside && e.Aside == nil || e.Step == stepDecided && e.Decision == nil || (e.Step == stepRebuild || e.Step == stepSuperseded) && e.Built == nil {
		return fmt.Errorf("a step %q does not say of what", e.Step)
	}
	j.apply(e)
	return nil
}

func (j *journal) apply(e record) {
	j.applyClients(e)
	switch e.Step {
	case stepDecided:
		j.decisions = append(slices.DeleteFunc(j.decisions, func(d Decision) bool { return d.Run == e.Decision.Run }), *e.Decision)
	case stepSetAside:
		j.aside = append(j.aside, SetAside{Aside: *e.Aside})
	case stepSetAsideDone, stepUndo, stepUndoDone:
		for i := range j.aside {
			if a := &j.aside[i]; a.Run == e.Run {
				a.Done = a.Done || e.Step == stepSetAsideDone
				a.Undoing = a.Undoing || e.Step == stepUndo
				if e.Step == stepUndoDone {
					j.aside = append(j.aside[:i], j.aside[i+1:]...)
					j.takeBack(e.Run)
				}
				return
			}
		}
	case stepRebuild, stepSuperseded:
		j.build(e)
	case stepEpoch:
		j.epoch = max(j.epoch, e.Epoch)
	default: // it is about clients
	}
}

// Add writes an entry, durably.
func (j *journal) Add(e record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Time = j.now().UTC()
	if err := appendLine(j.file, e); err != nil {
		return fmt.Errorf("journal %s: %w", j.path, err)
	}
	j.apply(e)
	return nil
}

// Epoch is that of the newest line on which anything was asked.
func (j *journal) Epoch() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.epoch
}

// Decisions are the newest of each run, and the newest of all last.
func (j *journal) Decisions() []Decision {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.decisions)
}

// Decided is the newest decision; nil where there is none.
func (j *journal) Decided() *Decision {
	all := j.Decisions()
	if len(all) == 0 {
		return nil
	}
	return &all[len(all)-1]
}

// Asides are those that were not undone, oldest first.
func (j *journal) Asides() []SetAside {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]SetAside(nil), j.aside...)
}

// Aside is the one of a run; nil where there is none.
func (j *journal) Aside(run string) *SetAside {
	for _, a := range j.Asides() {
		if a.Run == run {
			return &a
		}
	}
	return nil
}

// builtRecord is a rebuild of the member.
type builtRecord struct {
	Run  string `json:"-"` // the entry's
	Plan string `json:"plan"`
	// Old is the cluster that was lost, and New the one that goes on in its place.
	Old snapshot.ID `json:"old_cluster_id"`
	New snapshot.ID `json:"new_cluster_id"`
	// Result is what the rebuild gave, or, while it is not Done, what is known of it
	// by then.
	Result json.RawMessage `json:"result,omitempty"`
	Done   bool            `json:"-"`
}

// build keeps one rebuild for each run: a later plan of the run takes the place of
// an earlier one.
func (j *journal) build(e record) {
	b := *e.Built
	b.Run, b.Done = e.Run, e.Step == stepSuperseded
	j.built = append(slices.DeleteFunc(j.built, func(o builtRecord) bool { return o.Run == e.Run }), b)
	if b.Done {
		j.taken = slices.DeleteFunc(j.taken, func(o builtRecord) bool { return o.Old == b.Old && o.New == b.New })
	}
}

// takeBack forgets what a run built, whose set-aside was undone.
func (j *journal) takeBack(run string) {
	for _, b := range j.built {
		if b.Run == run && b.Done {
			j.taken = append(j.taken, b)
		}
	}
	j.built = slices.DeleteFunc(j.built, func(b builtRecord) bool { return b.Run == run })
}

// Built is what a run built, or began to; nil where it did not, or it was undone.
func (j *journal) Built(run string) *builtRecord {
	return j.find(func(b builtRecord) bool { return b.Run == run })
}

// Superseding is the rebuild that put another cluster in the place of this one;
// nil where none did that was not undone.
func (j *journal) Superseding(cluster snapshot.ID) *builtRecord {
	return j.find(func(b builtRecord) bool { return b.Done && b.Old == cluster })
}

func (j *journal) find(match func(builtRecord) bool) *builtRecord {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.IndexFunc(j.built, match); i >= 0 {
		b := j.built[i]
		return &b
	}
	return nil
}

// TakenBack are the clusters that were built in the place of this one, and whose
// rebuild was undone here.
func (j *journal) TakenBack(cluster snapshot.ID) (by []snapshot.ID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range j.taken {
		if b.Old == cluster {
			by = append(by, b.New)
		}
	}
	return by
}

// clientRecord is what a recovery did with a client of the host.
type clientRecord struct {
	Name string `json:"name"`
	// Ran is whether it ran, or was to, before the recovery touched any.
	Ran   bool        `json:"ran"`
	Phase ClientPhase `json:"phase,omitempty"`
}

// quiesceRecord is a quiesce that has not been resumed.
type quiesceRecord struct{ Clients []clientRecord }

// Client is what is known of one; nil where nothing is.
func (q *quiesceRecord) Client(name string) *clientRecord {
	for i := range q.Clients {
		if q.Clients[i].Name == name {
			return &q.Clients[i]
		}
	}
	return nil
}

// Quiesce is the one that is not resumed; nil where there is none.
func (j *journal) Quiesce() *quiesceRecord {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.quiesce == nil {
		return nil
	}
	return &quiesceRecord{slices.Clone(j.quiesce.Clients)}
}

// applyClients takes up an entry about clients.
func (j *journal) applyClients(e record) {
	switch e.Step {
	case stepQuiesce:
		if j.quiesce == nil {
			j.quiesce = &quiesceRecord{}
		}
		j.quiesce.Clients = append(j.quiesce.Clients, e.Clients...)
	case stepClient:
		if j.quiesce == nil {
			return
		}
		for _, c := range e.Clients {
			if known := j.quiesce.Client(c.Name); known != nil {
				known.Phase = c.Phase
			}
		}
	case stepResumed:
		j.quiesce = nil
	default: // it is about the member
	}
}
