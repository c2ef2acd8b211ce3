package walreplay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/walfile"
)

// Relation is whether a member's database and a log are of one history. If they are not,
// a replay of the log onto the database gives a state that no cluster ever had, and raft
// indexes and terms alone do not show it: clusters that were made in the same way have the
// same ones.
//
// Four facts are compared, and each can only contradict:
//
//  1. the member whose log it is with the members that the database knows;
//  2. the term that the log has at the database's raft index;
//  3. the database's revision with the entries up to its index, each of which raises it by
//     one at most, if the log begins with the cluster's first entry;
//  4. the database's newest rows with what the entries up to its index wrote. This is also
//     what shows that the two belong together.
type Relation struct {
	Kind   RelationKind
	Reason string // empty if Kind is Related
}

// RelationKind is the result of the comparison.
type RelationKind string

// The results. Only Related allows a replay to be called proven.
const (
	Related   RelationKind = "related"
	NotShown  RelationKind = "not shown" // nothing contradicts, and nothing shows it
	Unrelated RelationKind = "unrelated"
)

func unrelated(format string, args ...any) Relation {
	return Relation{Unrelated, fmt.Sprintf(format, args...)}
}

func notShown(format string, args ...any) Relation {
	return Relation{NotShown, fmt.Sprintf(format, args...)}
}

// relationEntries bounds the fourth comparison: the entries before the database's index, and
// its newest revisions. Each entry makes one revision at most.
const relationEntries = 20_000

// Relate compares a database with a log, whose summary is s. It reads the log from some
// thousand entries before the database's index up to that index, and the newest rows of
// the database.
func Relate(ctx context.Context, db io.ReaderAt, size int64, log *walfile.Log, s walfile.Summary) (Relation, error) {
	facts, err := snapshot.ReadFacts(ctx, db, size)
	if err != nil {
		return Relation{}, err
	}
	r := &relating{ctx: ctx, facts: facts, log: log, summary: s}
	if r.file, err = boltfile.Open(ctx, db, size); err != nil {
		return Relation{}, err
	}
	for _, compare := range []func() (Relation, error){r.owner, r.terms, r.revisions, r.rows} {
		if relation, err := compare(); err != nil || relation.Kind != "" {
			return relation, err
		}
	}
	return Relation{Kind: Related}, nil
}

// RelateFile is Relate for a database file.
func RelateFile(ctx context.Context, path string, log *walfile.Log, s walfile.Summary) (_ Relation, err error) {
	f, err := safedir.Open(path)
	if err != nil {
		return Relation{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return Relation{}, err
	}
	r, err := Relate(ctx, f, info.Size(), log, s)
	if err != nil {
		return r, fmt.Errorf("compare %s with the log: %w", path, err)
	}
	return r, nil
}

// AdviceUnrelated says what to do about a database and a log that are not of one history.
const AdviceUnrelated = "put back the database that this log belongs to, or the log that belongs to this database; or restore the database without a log: requorum restore --file"

// relating is one comparison.
type relating struct {
	ctx     context.Context
	facts   snapshot.Facts
	file    *boltfile.File
	log     *walfile.Log
	summary walfile.Summary
}

// terms compares the term at the database's index. A result other than the zero value ends
// the comparison.
func (r *relating) terms() (Relation, error) {
	index, term := r.facts.RaftIndex, r.facts.RaftTerm
	if index == 0 && r.summary.FirstIndex == 1 {
		return Relation{}, nil // nothing is in the database yet
	}
	for _, m := range r.summary.Snapshots {
		if m.Index == index && m.Term != term {
			return unrelated("the log recorded a snapshot of raft index %d and term %d, and the database is at this index in term %d", index, m.Term, term), nil
		}
	}
	for e, err := range r.log.Entries(r.ctx, index) {
		switch {
		case walfile.IsHole(err):
			return r.atBeginning(), nil
		case err != nil:
			return Relation{}, err
		case e.Index == index && e.Term != term:
			return unrelated("the database is at raft index %d of term %d, and this entry of the log is of term %d", index, term, e.Term), nil
		case e.Index == index:
			return Relation{}, nil
		}
		break
	}
	return notShown("the log ends with raft index %d, before the database, which is at %d", r.summary.LastIndex, index), nil
}

// atBeginning is for a database that the log has no entry of: the log has to record a
// snapshot there.
func (r *relating) atBeginning() Relation {
	index := r.facts.RaftIndex
	if slices.ContainsFunc(r.summary.Snapshots, func(m walfile.Mark) bool { return m.Index == index }) {
		return Relation{Kind: Related}
	}
	return notShown("the log has neither the entry at the database's raft index %d nor a record of a snapshot there", index)
}

// owner compares the member whose log it is with those that the database knows. A new
// member catches up through states from before it was added, so the database has to be
// behind the last entry about the member.
func (r *relating) owner() (Relation, error) {
	owner := snapshot.ID(r.summary.Identity.MemberID)
	known := slices.ContainsFunc(r.facts.Members, func(m snapshot.Member) bool { return m.ID == owner })
	if known || owner == 0 || len(r.facts.Members) == 0 {
		return Relation{}, nil
	}
	removed, err := r.file.Get("members_removed", owner.String())
	if err != nil || removed != nil {
		return Relation{}, err
	}
	// A change of members is in raft's configuration before it is in the bucket.
	conf, err := snapshot.ReadConfState(r.file)
	if err != nil || slices.Contains(slices.Concat(conf.GetVoters(), conf.GetLearners()), uint64(owner)) {
		return Relation{}, err
	}
	changed := uint64(0)
	for first := r.summary.FirstIndex; first != 0 && first <= r.summary.LastIndex; {
		var gap *walfile.GapError
		for e, err := range r.log.Entries(r.ctx, first) {
			if errors.As(err, &gap) {
				break
			}
			if err != nil {
				return Relation{}, err
			}
			if changesMember(e, uint64(owner)) {
				changed = e.Index
			}
		}
		if gap == nil {
			break
		}
		first = gap.Next
	}
	if r.facts.RaftIndex < changed {
		return Relation{}, nil
	}
	return unrelated("the log is of %s, which the database does not know as a member, not even as a removed one", r.summary.Identity), nil
}

// changesMember reports whether an entry may add or remove a member.
func changesMember(e raftlog.Entry, id uint64) bool {
	switch e.Type {
	case raftpb.EntryConfChange:
		var change raftpb.ConfChange
		return proto.Unmarshal(e.Data, &change) != nil || change.GetNodeId() == id
	case raftpb.EntryConfChangeV2:
		return true
	default:
		return false
	}
}

// revisions compares the database's revision with the number of entries that can have made
// it. A restored cluster begins with the revision of its snapshot.
func (r *relating) revisions() (Relation, error) {
	if r.summary.FirstIndex != 1 {
		return Relation{}, nil
	}
	if at, err := RestoredAt(r.ctx, r.log, r.summary); err != nil || at > 0 {
		return r.restored(at), err
	}
	writes := int64(0)
	for e, err := range r.log.Entries(r.ctx, 1) {
		if err != nil {
			return Relation{}, err
		}
		if e.Index > r.facts.RaftIndex {
			break
		}
		if e.Type == raftpb.EntryNormal && mayWrite(e.Data) {
			writes++
		}
	}
	if most := writes + 1; r.facts.Revision > most {
		return unrelated("the database was restored, is of another cluster, or has entries applied twice, as etcd 3.5.0 to 3.5.5 did after a kill during a defragmentation: it has revision %d at raft index %d, and the log's entries up to there can have made revision %d at most", r.facts.Revision, r.facts.RaftIndex, most), nil
	}
	return Relation{}, nil
}

// mayWrite reports whether the request of an entry may have made a revision.
func mayWrite(data []byte) bool {
	var request etcdserverpb.InternalRaftRequest
	if proto.Unmarshal(data, &request) != nil {
		return false // a request of etcd 2's API, in which members of 3.5 publish their URLs
	}
	return request.Put != nil || request.DeleteRange != nil || request.Txn != nil || request.LeaseRevoke != nil
}

// restored is for a log that begins with a restore at an index. A database that is still
// at this index could be of any restore, unless the log adds nothing to it.
func (r *relating) restored(index uint64) Relation {
	switch {
	case r.facts.RaftIndex > index:
		return Relation{}
	case r.summary.LastIndex == index:
		return Relation{Kind: Related} // a replay gives the database itself
	}
	return notShown("the database is as a restore left it, at raft index %d, and nothing shows that it is the restore that this log begins with", index)
}

// RestoredAt returns the raft index at which a log begins with a restore, and 0 if a new
// cluster began it. A restore, etcd's or requorum's, writes an entry for each member and a
// record of a snapshot behind them; the snapshot's contents are not in the log.
func RestoredAt(ctx context.Context, log *walfile.Log, s walfile.Summary) (uint64, error) {
	if s.FirstIndex != 1 || len(s.Snapshots) == 0 {
		return 0, nil
	}
	for e, err := range log.Entries(ctx, 1) {
		if err != nil || e.Type == raftpb.EntryNormal {
			return 0, err
		}
		if slices.ContainsFunc(s.Snapshots, func(m walfile.Mark) bool { return m.Index == e.Index }) {
			return e.Index, nil
		}
	}
	return 0, nil
}
