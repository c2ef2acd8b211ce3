package restore

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/store/safedir"
)

// publish puts all members in place, blocked: the separate WAL directories
// first, so that a member folder never stands without a WAL. A context that
// ends stops it between two members, and Execute rolls back.
func (r *run) publish(ctx context.Context) error {
	defer r.phase(PhasePublish)()
	for _, t := range r.targets {
		if t.wal == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.publishWAL(t); err != nil {
			return fmt.Errorf("publish the log of member %s: %w", t.Name, err)
		}
	}
	for _, t := range r.targets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.publishMember(t); err != nil {
			return fmt.Errorf("publish member %s: %w", t.Name, err)
		}
	}
	return nil
}

// publishWAL blocks a separate WAL directory and sets aside what is in it,
// entry by entry: it may be a mount's root, which has one name only. The new
// segment stays in its staging folder until finish.
func (r *run) publishWAL(t *target) error {
	before, err := readBlocker(t.wal.root)
	if err != nil {
		return err
	}
	r.opts.step("block the WAL directory of " + t.Name)
	if err := writeBlocker(t.wal.root, newBlocker(r.plan, t.Member)); err != nil {
		return err
	}
	if before == nil {
		r.onUndo(func() error { return removeBlocker(t.wal.root) })
	}
	if t.wal.fresh() {
		r.opts.step("publish the WAL directory of " + t.Name)
		return r.settle(t.wal)
	}
	names, err := foreign(t.WALDir)
	if err != nil || len(names) == 0 {
		return err
	}
	aside, err := freeName(filepath.Join(t.WALDir, setAsidePrefix+r.stamp))
	if err != nil {
		return err
	}
	if err := safedir.Mkdir(aside); err != nil {
		return err
	}
	r.onUndo(func() error { return safedir.Remove(aside) })
	for _, name := range names {
		from, to := filepath.Join(t.WALDir, name), filepath.Join(aside, name)
		r.opts.step("set aside " + name + " of the WAL directory of " + t.Name)
		if err := move(from, to); err != nil {
			return err
		}
		r.onUndo(func() error { return move(to, from) })
	}
	t.aside = append(t.aside, aside)
	return nil
}

// publishMember puts the member folder in place.
func (r *run) publishMember(t *target) error {
	if t.data.fresh() {
		if err := move(t.built(), filepath.Join(t.data.root, "member")); err != nil {
			return err
		}
		r.opts.step("publish the data directory of " + t.Name)
		return r.settle(t.data)
	}
	switch t.state {
	case stateAbsent:
		r.opts.step("publish the member folder of " + t.Name)
		if err := move(t.built(), t.live()); err != nil {
			return err
		}
		r.onUndo(func() error { return move(t.live(), t.built()) })
		return nil
	case stateUnfinished:
		return r.replaceUnfinished(t)
	default:
		return r.swapUsers(t)
	}
}

// settle gives a fresh directory its own name. An existing one that is not
// empty makes the rename fail: nothing is overwritten.
func (r *run) settle(s *site) error {
	beside := s.root
	if err := move(beside, s.final); err != nil {
		return fmt.Errorf("publish %s: %w: if something created that directory meanwhile, stop it and run again", s.final, err)
	}
	s.root = s.final
	r.onUndo(func() error {
		s.root = beside
		return move(s.final, beside)
	})
	return nil
}

// swapUsers swaps the user's member folder for the new one. The new one gets
// the set-aside name first, so that the swap itself gives the user's folder its
// final name, and staging never holds anything but our own.
func (r *run) swapUsers(t *target) error {
	aside, err := freeName(filepath.Join(t.DataDir, memberAsidePrefix+r.stamp))
	if err != nil {
		return err
	}
	r.opts.step("put the new member folder of " + t.Name + " beside the old one")
	if err := move(t.built(), aside); err != nil {
		return err
	}
	r.onUndo(func() error { return move(aside, t.built()) })
	r.opts.step("swap the member folders of " + t.Name)
	if err := r.swap(aside, t.live()); err != nil {
		if errors.Is(err, safedir.ErrNoExchange) {
			return fmt.Errorf("%s: %w: with etcd stopped, move %s to a name of your choice, and run again", t.DataDir, err, t.live())
		}
		return err
	}
	r.onUndo(func() error { return r.swap(aside, t.live()) })
	t.aside = append(t.aside, aside)
	return nil
}

// replaceUnfinished puts the new folder where an unfinished restore lies, which
// no etcd ever started from. The old one goes with the staging folder.
func (r *run) replaceUnfinished(t *target) error {
	r.opts.step("replace the unfinished member folder of " + t.Name)
	err := r.swap(t.built(), t.live())
	if err == nil {
		// What is in staging now will be removed.
		if at, inodeErr := inodeOf(t.built()); inodeErr != nil || at != t.inode {
			return errors.Join(inodeErr, r.swap(t.built(), t.live()), t.changed())
		}
	}
	if !errors.Is(err, safedir.ErrNoExchange) {
		return err
	}
	// The moment without a member folder is no worse than what was there before
	// the unfinished run: on such a file system it had found none.
	old := filepath.Join(t.data.staging(), "unfinished")
	if err := move(t.live(), old); err != nil {
		return err
	}
	if at, err := inodeOf(old); err != nil || at != t.inode {
		return errors.Join(err, move(old, t.live()), t.changed())
	}
	r.opts.step("put the member folder of " + t.Name + " in the place of the unfinished one")
	return move(t.built(), t.live())
}

func (r *run) swap(a, b string) error {
	if err := r.opts.swap(a, b); err != nil {
		return err
	}
	return errors.Join(safedir.Sync(filepath.Dir(a)), safedir.Sync(filepath.Dir(b)))
}

// freeName adds a number where a name is taken.
func freeName(path string) (string, error) {
	for i := 1; ; i++ {
		name := path
		if i > 1 {
			name = fmt.Sprintf("%s-%d", path, i)
		}
		if there, err := exists(name); err != nil || !there {
			return name, err
		}
	}
}

func (r *run) onUndo(f func() error) { r.undo = append(r.undo, f) }

// blockerName makes a WAL folder unusable for every etcd while it is there. It
// has the form of a segment's name, so that etcd finds a WAL (and does not
// bootstrap an empty cluster from its flags), and sorts after every segment, so
// that etcd always reads it.
const blockerName = "ffffffffffffffff-ffffffffffffffff.wal"

// blocker is what the file says, to people and to the next run.
type blocker struct {
	What     string `json:"what"`
	Plan     string `json:"plan"`
	Member   string `json:"member"`
	DataDir  string `json:"data_dir"`
	WhatToDo string `json:"what_to_do"`
	WhatNot  string `json:"what_not_to_do"`
}

func newBlocker(p *Plan, m Member) blocker {
	return blocker{
		What:     "an unfinished restore: etcd refuses to start from this folder, so that no half-built cluster serves",
		Plan:     p.ID,
		Member:   m.Name,
		DataDir:  m.DataDir,
		WhatToDo: "run the same `requorum restore` or `requorum recover` again: it completes what was begun or starts it anew",
		WhatNot:  "don't delete this file to get etcd started, unless you moved back what lies under a set-aside name",
	}
}

// blockerRecordType is a record type that no etcd knows.
const blockerRecordType = 0x7271

// encode frames the text as a WAL record that cannot be read over: its type is
// unknown and its checksum wrong. (Plain text would look like a torn write,
// which etcd repairs by cutting it off. A gap in the sequence of names alone is
// not noticed after segment 0.)
func (b blocker) encode() ([]byte, error) {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, err
	}
	text = append(append([]byte{'\n'}, text...), '\n')
	for {
		record, err := proto.Marshal(&walpb.Record{Type: proto.Int64(blockerRecordType), Crc: proto.Uint32(0xbad0bad0), Data: text})
		if err != nil {
			return nil, err
		}
		// Frames are whole multiples of 8 bytes. Zeros as padding could fill the
		// rest of a sector, which is the other thing that etcd takes for a torn
		// write: so pad with text.
		if len(record)%8 == 0 {
			return append(binary.LittleEndian.AppendUint64(nil, uint64(len(record))), record...), nil
		}
		text = append(text, '\n')
	}
}

// writeBlocker puts a blocker into a folder, over an older one, whole or not
// at all, and syncs both.
func writeBlocker(walDir string, b blocker) error {
	data, err := b.encode()
	if err != nil {
		return fmt.Errorf("block %s: %w", walDir, err)
	}
	return safedir.Replace(filepath.Join(walDir, blockerName), data)
}

// readBlocker reads the blocker of a folder; nil when there is none.
func readBlocker(walDir string) (*blocker, error) {
	path := filepath.Join(walDir, blockerName)
	data, err := safedir.ReadFile(path, sinks.SmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	start, end := bytes.IndexByte(data, '{'), bytes.LastIndexByte(data, '}')
	var b blocker
	if start < 0 || end < start || json.Unmarshal(data[start:end+1], &b) != nil || b.Plan == "" {
		return nil, fmt.Errorf("%s has the name of a restore's blocker and is none: look at it and move it away", path)
	}
	return &b, nil
}

// removeBlocker makes a WAL folder usable, durably.
func removeBlocker(walDir string) error {
	if err := safedir.Remove(filepath.Join(walDir, blockerName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unblock %s: %w", walDir, err)
	}
	return safedir.Sync(walDir)
}
