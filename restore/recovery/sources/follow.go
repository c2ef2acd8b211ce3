package sources

import (
	"errors"
	"iter"
	"path/filepath"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/walfile"
)

// follower looks at each entry of a log as it goes by.
type follower struct {
	log       *Log       // what is reported of it
	state     Membership // unknown for an archive
	committed uint64
	steps     []Membership
	from      uint64 // the index of the database that the revision counts from
	moves     int64  // how many entries after it may have moved the revision
	last      Term   // the entry that went by last
	problem   error  // the first membership change that could not be understood
}

// follow begins with what a member's newest database says.
func (d *memberDir) follow() *follower {
	f := &follower{log: d.remains.Log, committed: d.remains.committed()}
	if newest := d.remains.newest(); newest != nil {
		f.state, f.from = membershipOf(newest.facts), newest.Index
	}
	return f
}

// visited are the entries of a log, which the follower looks at first.
func (f *follower) visited(log iter.Seq2[raftlog.Entry, error]) iter.Seq2[logEntry, error] {
	return func(yield func(logEntry, error) bool) {
		for e, err := range log {
			if err == nil {
				f.visit(e)
			}
			if !yield(entryOf(e), err) {
				return
			}
		}
	}
}

func (f *follower) visit(e raftlog.Entry) {
	f.log.Entries++
	f.last = Term{e.Index, e.Term}
	if !moves(e) {
		f.change(e)
	} else if e.Index > f.from {
		f.moves++
	}
}

// moves reports whether an entry may have moved the revision.
func moves(e raftlog.Entry) bool {
	if e.Type != raftpb.EntryNormal {
		return false
	}
	kind, err := engine.Kind(e)
	if err != nil {
		return false // who replays it says so
	}
	return kind == "put" || kind == "delete-range" || kind == "txn" || kind == "lease-revoke"
}

// change follows the members. Before what the database holds only changes that
// no cluster agreed on are looked for.
func (f *follower) change(e raftlog.Entry) {
	if e.Type == raftpb.EntryNormal && e.Index <= f.from {
		return
	}
	at := &f.state
	if e.Index <= f.from {
		at = &Membership{}
	}
	before := at.Clone()
	c, err := at.Apply(e)
	if err != nil && f.problem == nil {
		f.problem = err
	}
	if c.Forced {
		f.log.Forced = append(f.log.Forced, e.Index)
	}
	if c.Voters {
		f.log.Changed = e.Index
	}
	if c.Voters && e.Index > max(f.committed, f.from) {
		if len(f.steps) == 0 {
			f.steps = append(f.steps, before)
		}
		f.steps = append(f.steps, at.Clone())
	}
}

// finish fills in what was learnt on the way, and why the log ended.
func (f *follower) finish(d *memberDir, err error) {
	m := d.remains
	if m.Log == nil {
		d.bare()
		return
	}
	var corrupt *walfile.CorruptError
	if err == nil && m.Log.Entries == 0 {
		err = d.missing // there were none to learn it from
	}
	switch {
	case errors.As(err, &corrupt):
		m.Log.Damage = &Place{File: filepath.Join(corrupt.Dir, corrupt.Segment), Offset: corrupt.Offset, Text: corrupt.Err.Error()}
		m.find(KindBrokenLog, "what is before it can be used; another member's log or the archive may have the rest", "the log is damaged: %s at byte %d (%v). It can be replayed up to raft index %d; what was behind that is not known", m.Log.Damage.File, corrupt.Offset, corrupt.Err, m.Log.LastIndex)
	case err != nil:
		m.Log.Damage = &Place{File: d.logDir(), Text: err.Error()}
		m.find(KindBrokenLog, "", "the log could not be read to its end: %v", err)
	case errors.As(d.missing, &corrupt):
		m.find(KindMissing, "the log is used from there on", "older files of the log are gone: %v", d.missing)
	}
	if f.problem != nil {
		m.find(KindNewer, "the membership may be another than the one that is shown", "%v", f.problem)
	}
	if len(m.Log.Forced) > 0 {
		m.find(KindForced, "what it has from there on is a history of its own", "it was started with --force-new-cluster: at raft index %d it removed other members without asking them", m.Log.Forced[0])
	}
	if !m.begins() {
		f.state, f.steps = Membership{}, nil // of what changed, only a part is known
	} else if len(f.steps) == 0 && f.state.Known() {
		f.steps = []Membership{f.state}
	}
	m.Membership, m.Steps = f.state, f.steps
	if !d.unbroken() {
		m.Steps = nil
	}
	d.revise(f)
	d.name()
}

// unbroken reports whether every change of the members since then was seen.
func (d *memberDir) unbroken() bool {
	newest, last := d.remains.newest(), d.remains.Log.LastIndex
	if newest == nil {
		return len(d.remains.Log.Ranges) == 1
	}
	return newest.Index >= last || slices.ContainsFunc(d.remains.Log.Ranges, func(s Range) bool { return s.First <= newest.Index+1 && s.Last == last })
}

// revise bounds the revision at the end of the log.
func (d *memberDir) revise(f *follower) {
	m := d.remains
	switch newest := m.newest(); {
	case newest != nil && (m.Log == nil || !joins(m.Log.Ranges, newest.Index)):
		m.Revision = Bounds{newest.Revision, newest.Revision}
	case newest != nil:
		m.Revision = Bounds{newest.Revision, newest.Revision + f.moves}
	case m.Log != nil && m.Log.FirstIndex == 1 && !m.Log.Restored:
		m.Revision = Bounds{1, 1 + f.moves}
	}
}

// name finds out who the member is.
func (d *memberDir) name() {
	m := d.remains
	who := m.Membership.Find(m.MemberID)
	if who == nil {
		who = m.Membership.Left(m.MemberID)
	}
	if who == nil {
		return
	}
	m.MemberName, m.Learner = who.Name, who.IsLearner
	if who.Name != "" && who.Name != m.Name && slices.ContainsFunc(m.Membership.Members, func(o snapshot.Member) bool { return o.Name == m.Name }) {
		m.find(KindMisnamed, "check the paths", "the directory that was given for %s is that of member %s", m.Name, who.Name)
	}
}

// bare fills in what a database without a log shows.
func (d *memberDir) bare() {
	m := d.remains
	if newest := m.newest(); newest != nil {
		m.Membership = membershipOf(newest.facts)
		m.Steps = []Membership{m.Membership}
		m.Revision = Bounds{newest.Revision, newest.Revision}
	}
}
