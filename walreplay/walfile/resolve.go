package walfile

import (
	"fmt"
	"slices"
)

// run is a part of the log: count entries of one term from index first on,
// which stand one after the other in the files. ordinal counts the entry records
// of the whole reading, overwritten ones too.
type run struct {
	first, count, term uint64
	ordinal            int64
}

func (r run) last() uint64 { return r.first + r.count - 1 }

// resolver turns the records of a log, in their order, into the log that they
// amount to: a later record wins over an earlier one at the same index and cuts
// off all that followed it; and a leader's snapshot replaces what the log had.
//
// It keeps indexes and terms only: as many runs as there are terms and
// overwrites.
type resolver struct {
	runs    []run
	base    Mark // the log goes on from here when there are no runs
	started bool // an entry was seen, or a hole passed
	entries int64

	commit  uint64 // the highest recorded one of entries in the log
	kept    uint64 // the highest index that forget was called with
	term    uint64 // of the last hard state
	state   *hardState
	ahead   uint64 // the highest recorded commit beyond the log's end
	jump    Mark   // a snapshot that may have replaced a part of the log
	stale   bool   // jump did: the log has another term at its index
	skipped bool   // files between the last entry and the next one were not read
}

// last is the index of the log's last entry, or where it begins.
func (r *resolver) last() uint64 {
	if n := len(r.runs); n > 0 {
		return r.runs[n-1].last()
	}
	return r.base.Index
}

// termAt is the term at an index of the log.
func (r *resolver) termAt(index uint64) (uint64, bool) {
	for i := len(r.runs) - 1; i >= 0; i-- {
		if u := r.runs[i]; index >= u.first {
			return u.term, index <= u.last()
		}
	}
	return r.base.Term, r.base.Term != 0 && index == r.base.Index
}

// hole reports whether an entry at index would leave a hole: a *GapError or a
// *PurgedError, after which restart goes on behind it, or another error, when
// nothing accounts for the hole. What may be stale before a hole is gone then.
func (r *resolver) hole(index uint64) error {
	last := r.last()
	switch {
	case !r.started:
		return nil
	case len(r.runs) == 0 && r.base.Term > 0 && index <= r.base.Index:
		return fmt.Errorf("entry %d follows the leader's snapshot at %d", index, r.base.Index)
	case index <= last+1:
		return nil
	case r.skipped:
		r.truncate(r.final())
		return &PurgedError{Want: r.last() + 1, First: index}
	case r.jump.Index > 0 && index == r.jump.Index+1:
		r.truncate(r.final())
		return &GapError{After: r.last(), Next: index}
	}
	return fmt.Errorf("entry %d follows entry %d, and no snapshot record explains it", index, last)
}

// add puts an entry for which hole gave nil to the end, where index says.
func (r *resolver) add(index, term uint64) {
	if index <= r.last() {
		r.truncate(index - 1)
	}
	if n := len(r.runs); n > 0 {
		u := &r.runs[n-1]
		if u.term == term && u.ordinal+int64(u.count) == r.entries {
			u.count++
			r.added(index)
			return
		}
	}
	r.runs = append(r.runs, run{first: index, count: 1, term: term, ordinal: r.entries})
	r.added(index)
}

func (r *resolver) added(index uint64) {
	r.entries++
	r.started, r.skipped = true, false
	if index >= r.jump.Index {
		r.jump = Mark{} // it was the member's own, written before the entries were
	}
}

// truncate cuts off what is behind index.
func (r *resolver) truncate(index uint64) {
	for n := len(r.runs); n > 0 && r.runs[n-1].last() > index; n-- {
		u := &r.runs[n-1]
		if u.first <= index {
			u.count = index - u.first + 1
			return
		}
		if n == 1 {
			r.base = Mark{Index: u.first - 1}
		}
		r.runs = r.runs[:n-1]
	}
}

// final is the index up to which nothing that comes can change the log.
func (r *resolver) final() uint64 { return max(r.commit, r.kept) }

// remembered is how many terms and overwrites before the last are known: for
// finding what was overwritten that should not have been.
const remembered = 16

// forget drops what is well before index. All up to it is final.
func (r *resolver) forget(index uint64) {
	r.kept = index
	n := 0
	for n < len(r.runs)-1 && r.runs[n].last() < index {
		n++
	}
	if n > remembered {
		r.runs = slices.Clone(r.runs[n-remembered:])
	}
}

// hardState takes a record of it. It counts from the next settle on: early
// releases of etcd 3.4 wrote the snapshot that a commit index comes from after it.
func (r *resolver) hardState(s hardState) { r.state, r.term = &s, s.term }

// snapshot takes a record of one. It is the member's own, of entries that are in
// the log, or a leader's, in place of entries that are not, or not the right
// ones.
func (r *resolver) snapshot(m Mark) {
	switch {
	case m.Index == 0:
	case !r.started:
		if m.Index > r.base.Index {
			r.base = m
		}
	case m.Index > r.last():
		r.jump, r.stale = m, false
	default:
		if term, ok := r.termAt(m.Index); ok && term != m.Term {
			r.jump, r.stale = m, true
		}
	}
}

// settle is called before each record but a snapshot's, after that, and when
// there is none for now. A *GapError reports a leader's snapshot as soon as it
// is sure to be one.
func (r *resolver) settle() error {
	if s := r.state; s != nil {
		r.state = nil
		if s.commit <= r.last() && !r.stale || !r.started {
			r.commit = max(r.commit, s.commit)
		} else { // it is the snapshot's
			r.ahead = max(r.ahead, s.commit)
		}
	}
	if r.jump.Index == 0 || !r.stale && r.ahead < r.jump.Index {
		return nil
	}
	r.truncate(min(r.final(), r.jump.Index-1))
	return &GapError{After: r.last(), Next: r.jump.Index + 1}
}

// restart goes on behind a hole that was reported.
func (r *resolver) restart() {
	r.runs, r.base = nil, r.jump
	r.commit = max(r.commit, r.ahead)
	r.jump, r.stale, r.ahead, r.skipped = Mark{}, false, 0, false
	r.started = r.base.Index > 0
}

// skip says that files were not read: what was not recorded as committed may
// have been overwritten in them.
func (r *resolver) skip() {
	r.truncate(r.final())
	r.jump, r.stale, r.ahead, r.state = Mark{}, false, 0, nil
	r.skipped = true
}
