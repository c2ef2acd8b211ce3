// The state file is what a recovery remembers on each host: what was decided, and what
// was done to its member. The coordinator remembers nothing. It promises:
//
//  1. A change is on the disk before save returns. A crash leaves the file as it was
//     before the change, or as it is after it.
//  2. A file that cannot be read, or is damaged, is an error, and stays as it is.
//  3. One process changes it at a time; reading takes no lock.

package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
)

// stateFile is open until Close. Whoever changes a field calls save, and where that fails
// goes on with nothing: the next request reads what is on the disk.
type stateFile struct {
	path string
	lock *os.File // nil where it is only read
	was  bool     // the file is there

	Changes   uint64         `json:"changes"` // how many there have been
	Epoch     uint64         `json:"epoch"`   // of the newest line on which anything was asked
	Decisions []Decision     `json:"decisions,omitempty"`
	Asides    []SetAside     `json:"set_aside,omitempty"` // not undone, oldest first
	Built     []builtRecord  `json:"built,omitempty"`     // not undone, oldest first
	Undone    []Undone       `json:"undone,omitempty"`
	Clients   []clientRecord `json:"quiesced,omitempty"`
	// Resumed is the run that has started all Clients, or began to: its undo leaves those
	// stopped that did not run before it. Another run forgets them.
	Resumed string `json:"resumed_by,omitempty"`
}

// builtRecord is a rebuild of the member.
type builtRecord struct {
	Run  string `json:"run"`
	Plan string `json:"plan"`
	// Old is the cluster that was lost, and New the one that goes on in its place: once
	// it is Done, the old one counts as superseded, until an undo of the same run.
	Old  snapshot.ID `json:"old_cluster_id"`
	New  snapshot.ID `json:"new_cluster_id"`
	Done bool        `json:"done,omitempty"`
	// Result is what the rebuild gave, or, while it is not Done, what is known of it
	// by then.
	Result json.RawMessage `json:"result,omitempty"`
}

// clientRecord is what a recovery did with a client of the host.
type clientRecord struct {
	Name string `json:"name"`
	// Ran is whether it ran, or was to, before the recovery touched any.
	Ran   bool        `json:"ran"`
	Phase ClientPhase `json:"phase,omitempty"`
}

func (c *clientRecord) resumed() bool { return c.Phase == ClientStarted || c.Phase == ClientRestarted }

// openState opens the state file of a folder, which it makes, for changes: one process
// changes a member at a time, and for another one the error is ErrBusy. The caller closes
// it.
func openState(folder string) (*stateFile, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	var s *stateFile
	if err = takeLock(lock); err == nil {
		s, err = readState(folder)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.lock = lock
	return s, nil
}

// readState gives the state as it is now, for reading only: without a lock. A folder that
// is not there, or has no file of it, has an empty one.
func readState(folder string) (*stateFile, error) {
	if folder == "" { // a host that changes nothing remembers nothing
		return &stateFile{}, nil
	}
	s := &stateFile{path: filepath.Join(folder, "state.json")}
	data, err := os.ReadFile(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("what this host remembers of recoveries: %w", err)
	}
	s.was = true
	if err = strict(data, s); err == nil && s.Changes == 0 {
		err = errors.New("it holds nothing")
	}
	if err != nil {
		return nil, fmt.Errorf("what this host remembers of recoveries: %s is damaged: %w: look at it, and move it away once nothing is set aside that is still wanted", s.path, err)
	}
	return s, nil
}

// strict reads a value that is all of the data, and has no field that is not known here.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows it")
	}
	return nil
}

// save makes what was changed durable.
func (s *stateFile) save() error {
	s.Changes++
	data, err := json.Marshal(s)
	if err == nil && s.was { // who moves it away wants the host to forget
		_, err = os.Lstat(s.path)
	}
	if err == nil {
		err = safedir.Replace(s.path, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("store what this host remembers of recoveries: %w", err)
	}
	s.was = true
	return nil
}

// action is a line of actions.log.
type action struct {
	Time time.Time `json:"time"`
	Verb verb      `json:"verb"`
	Header
}

// note writes down what is begun, for people: nothing reads actions.log.
func (s *stateFile) note(v verb, h Header) error {
	line, err := json.Marshal(action{time.Now().UTC(), v, h})
	if err != nil {
		return err
	}
	f, err := safedir.Append(filepath.Join(filepath.Dir(s.path), "actions.log"))
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("write down what is begun: %w", err)
	}
	return nil
}

// Close releases the lock.
func (s *stateFile) Close() error { return s.lock.Close() }

// Decided is the newest decision; nil where there is none.
func (s *stateFile) Decided() *Decision {
	if len(s.Decisions) == 0 {
		return nil
	}
	return &s.Decisions[len(s.Decisions)-1]
}

// decide stores a decision: the newest of its run, and of all.
func (s *stateFile) decide(d Decision) error {
	s.Decisions = append(slices.DeleteFunc(s.Decisions, func(o Decision) bool { return o.Run == d.Run }), d)
	return s.save()
}

// Aside is what a run has set aside, or began to; nil where it has not.
func (s *stateFile) Aside(run string) *SetAside {
	return find(s.Asides, func(a SetAside) bool { return a.Run == run })
}

// build stores a rebuild, one for each run: a later plan of the run takes the place of an
// earlier one.
func (s *stateFile) build(b builtRecord) error {
	s.Built = append(slices.DeleteFunc(s.Built, func(o builtRecord) bool { return o.Run == b.Run }), b)
	if b.Done {
		s.Undone = slices.DeleteFunc(s.Undone, func(u Undone) bool { return u.Old == b.Old && u.New == b.New })
	}
	return s.save()
}

// undone stores that what a run set aside is back, and what it built is not there.
func (s *stateFile) undone(u Undone) (*Undone, error) {
	if b := s.BuiltBy(u.Run); b != nil && b.Done {
		u.Old, u.New = b.Old, b.New
	}
	s.Undone = append(slices.DeleteFunc(s.Undone, func(o Undone) bool { return o.Run == u.Run }), u)
	s.Asides = slices.DeleteFunc(s.Asides, func(a SetAside) bool { return a.Run == u.Run })
	s.Built = slices.DeleteFunc(s.Built, func(b builtRecord) bool { return b.Run == u.Run })
	return &u, s.save()
}

// BuiltBy is what a run built, or began to; nil where it did not, or it was undone.
func (s *stateFile) BuiltBy(run string) *builtRecord {
	return find(s.Built, func(b builtRecord) bool { return b.Run == run })
}

// Superseding is the rebuild that put another cluster in the place of this one;
// nil where none did that was not undone.
func (s *stateFile) Superseding(cluster snapshot.ID) *builtRecord {
	return find(s.Built, func(b builtRecord) bool { return b.Done && b.Old == cluster })
}

// TakenBack are the clusters that were built in the place of this one, and whose
// rebuild was undone here.
func (s *stateFile) TakenBack(cluster snapshot.ID) (by []snapshot.ID) {
	for _, u := range s.Undone {
		if u.Old == cluster && u.New != 0 {
			by = append(by, u.New)
		}
	}
	return by
}

// Client is what is known of one that is quiesced; nil where nothing is.
func (s *stateFile) Client(name string) *clientRecord {
	return find(s.Clients, func(c clientRecord) bool { return c.Name == name })
}

func find[T any](all []T, match func(T) bool) *T {
	if i := slices.IndexFunc(all, match); i >= 0 {
		return &all[i]
	}
	return nil
}
