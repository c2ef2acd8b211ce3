package walfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// record takes one record. When it gives an error, the record was not taken and
// is read again.
func (t *Tail) record(s *segment, rec record) error {
	if err := t.checkResume(rec.at); err != nil {
		return err
	}
	if rec.kind != wal.SnapshotType {
		if err := t.log.settle(); err != nil {
			return err
		}
	}
	err := t.content(s, rec)
	if err == nil || isHole(err) || errors.Is(err, ErrNewer) || errors.Is(err, ErrReplaced) {
		return err
	}
	return &CorruptError{Dir: t.dir, Segment: s.name.String(), Offset: rec.at, Err: err}
}

func (t *Tail) content(s *segment, rec record) error {
	switch rec.kind {
	case wal.CrcType:
	case wal.MetadataType:
		id, err := parseIdentity(rec.data)
		if err != nil {
			return err
		}
		if id != t.id {
			return fmt.Errorf("%s is the log of %s, not of %s: %w", filepath.Join(t.dir, s.name.String()), id, t.id, ErrReplaced)
		}
	case wal.SnapshotType:
		m, err := parseMark(rec.data)
		if err != nil {
			return fmt.Errorf("a snapshot record: %w", err)
		}
		t.log.snapshot(m)
	case wal.StateType:
		state, err := parseState(rec.data)
		if err != nil {
			return fmt.Errorf("a hard state: %w", err)
		}
		t.log.hardState(state)
	case wal.EntryType:
		return t.entry(rec)
	default:
		return unknownKind(rec.kind)
	}
	return nil
}

func (t *Tail) entry(rec record) error {
	e, err := parseEntry(rec.data)
	if err != nil {
		return err
	}
	if err := refuseNewer(e); err != nil {
		return err
	}
	if err := t.begin(e.Index); err != nil {
		return err
	}
	if err := t.log.hole(e.Index); err != nil {
		return err
	}
	t.noteOverwrite(e.Index, e.Term)
	t.log.add(e.Index, e.Term)
	t.cutPending(e.Index)
	if e.Index > t.floor {
		e.Data = bytes.Clone(e.Data)
		t.pending = append(t.pending, pendingEntry{Entry: e, at: t.at})
		t.bytes += cost(e)
	}
	return nil
}

// begin tells, once, that the log begins behind the first index that is wanted.
func (t *Tail) begin(index uint64) error {
	from := t.options.From
	t.options.From = 0
	if from == 0 || index <= from {
		return nil
	}
	t.floor = index - 1
	if base := t.log.base; base.Term > 0 && base.Index == index-1 {
		return &GapError{After: from - 1, Next: index}
	}
	return &PurgedError{Want: from, First: index}
}

// noteOverwrite notices that a released entry is overwritten.
func (t *Tail) noteOverwrite(index, term uint64) {
	last := min(t.log.last(), t.floor)
	if !t.watching || !t.log.started || index > last || len(t.overwritten) >= 100 {
		return
	}
	old, _ := t.log.termAt(index)
	t.overwritten = append(t.overwritten, Overwrite{Index: index, Last: last, OldTerm: old, NewTerm: term})
}

// cutPending drops the pending entries from an index on.
func (t *Tail) cutPending(index uint64) {
	n := len(t.pending)
	for n > 0 && t.pending[n-1].Index >= index {
		n--
		t.bytes -= cost(t.pending[n].Entry)
	}
	clear(t.pending[n:])
	t.pending = t.pending[:n]
}

// checkResume compares the log with the position to resume from, when reading
// comes there: the next record begins at offset at.
func (t *Tail) checkResume(at int64) error {
	r := t.options.Resume
	switch {
	case r == nil || t.at.segment < r.Segment || t.at.segment == r.Segment && at < r.Offset:
		return nil
	case t.at.segment > r.Segment || at > r.Offset || t.at.chain.known && t.at.chain.sum != r.CRC:
		return fmt.Errorf("%s does not have what was read of segment %016x up to byte %d: %w", t.dir, r.Segment, r.Offset, ErrReplaced)
	}
	if t.options.From == 0 {
		t.floor = t.log.last()
	}
	t.options.Resume, t.watching = nil, true
	return nil
}

func isHole(err error) bool {
	var gap *GapError
	var purged *PurgedError
	return errors.As(err, &gap) || errors.As(err, &purged)
}

// isPathError tells errors of the file system from those of what is in a file.
func isPathError(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e)
}
