package engine

import (
	"context"
	"errors"
	"iter"
	"runtime"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// RunOptions say where a run ends. With neither Last nor MaxRevision it goes to
// the end of the entries.
type RunOptions struct {
	// Last is the index of the entry to end with.
	Last uint64
	// MaxRevision is the revision to end with: the run ends before the entry that
	// goes past it, so that the database is at the last index of that revision.
	MaxRevision int64
	// Watch looks out for changes of keys.
	Watch *Watch
	// Progress is called now and then with the index applied last.
	Progress func(index uint64)
}

// Stopped is where a run ended: what the engine holds then.
type Stopped struct {
	Index, Term uint64
	Revision    int64
	Reason      Reason
	// Change is the last change that Watch saw, nil if it saw none.
	Change *Change
}

// Reason is why a run ended.
type Reason string

// The reasons. At ReasonEnd the revision may be MaxRevision or below: there may
// be more entries of that revision which this run was not given.
const (
	ReasonEnd      Reason = "the entries ended"
	ReasonIndex    Reason = "the index was reached"
	ReasonRevision Reason = "the next entry goes past the revision"
)

// gcSlack is memory that nobody touches. The collector starts when the heap has
// doubled; a replay leaves much garbage beside a small heap, and would be
// collected a hundred times a second. GOGC would be for the whole process.
const gcSlack = 32 << 20

// progressEvery is after how many entries Progress is called.
const progressEvery = 100

// Run applies entries, which begin after the one applied last, until where the
// options say. Entries are decoded ahead in other goroutines, so their data must
// stay as it is; a bounded number of them is in memory.
//
// What it applied may not be committed when it returns; Close does that. When
// MaxRevision ended it, the engine was rolled back to there, and can only be
// closed. A database that is past Last or MaxRevision already is a *PastError.
//
// When an entry cannot be had or applied, Stopped is where the file is, or would
// be after Close.
func Run(ctx context.Context, eng Engine, entries iter.Seq2[raftlog.Entry, error], o RunOptions) (Stopped, error) {
	run := &run{engine: eng, o: o}
	run.own, _ = eng.(*replay)
	if run.own == nil && o.Watch != nil {
		return run.stopped(""), errors.New("keys can only be watched in an engine that Open gave")
	}
	applied, _ := eng.Applied()
	if o.Last != 0 && applied > o.Last {
		return run.stopped(""), &PastError{What: "index", Have: applied, Want: o.Last}
	}
	if o.MaxRevision != 0 && eng.Revision() > o.MaxRevision {
		return run.stopped(""), &PastError{What: "revision", Have: uint64(eng.Revision()), Want: uint64(o.MaxRevision)}
	}
	if o.Last != 0 && applied == o.Last {
		return run.stopped(ReasonIndex), nil
	}
	reason, err := run.all(ctx, entries)
	return run.stopped(reason), err
}

type run struct {
	engine  Engine
	own     *replay // the same, or nil when Open did not make it
	o       RunOptions
	change  *Change
	dirty   bool // something was applied since the last commit
	counted int
}

func (r *run) stopped(reason Reason) Stopped {
	s := Stopped{Revision: r.engine.Revision(), Reason: reason, Change: r.change}
	s.Index, s.Term = r.engine.Applied()
	return s
}

func (r *run) all(ctx context.Context, entries iter.Seq2[raftlog.Entry, error]) (Reason, error) {
	slack := make([]byte, gcSlack)
	defer runtime.KeepAlive(slack)
	for d, err := range decodeAhead(ctx, entries) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return "", err
		}
		reason, err := r.next(d)
		if err != nil || reason != "" {
			return reason, err
		}
	}
	return ReasonEnd, nil
}

// next applies one entry. A reason says that the run ends with it or before it.
func (r *run) next(d *decoded) (Reason, error) {
	before := r.engine.Revision()
	// The entry may be the one that goes too far, which is only known once it
	// was applied: so it has to be one that can be taken back.
	risky := r.o.MaxRevision != 0 && before == r.o.MaxRevision && d.moves()
	if risky && r.dirty {
		if err := r.engine.Commit(); err != nil {
			return "", err
		}
		r.dirty = false
	}
	if err := r.apply(d); err != nil {
		return "", err
	}
	if after := r.engine.Revision(); after != before {
		if risky {
			return ReasonRevision, r.engine.Rollback()
		}
		if err := r.look(d); err != nil {
			return "", err
		}
	}
	r.dirty = true
	if r.counted++; r.o.Progress != nil && r.counted%progressEvery == 0 {
		r.o.Progress(d.entry.Index)
	}
	if d.entry.Index == r.o.Last {
		return ReasonIndex, nil
	}
	return "", nil
}

func (r *run) apply(d *decoded) error {
	if r.own != nil {
		return r.own.apply(d)
	}
	return r.engine.Apply(d.entry)
}

// look sees whether what the entry wrote is watched.
func (r *run) look(d *decoded) error {
	if r.o.Watch == nil {
		return nil
	}
	changed, err := r.own.changed(*r.o.Watch)
	if changed {
		r.change = &Change{Index: d.entry.Index, Revision: r.own.revision}
	}
	return err
}
