package engine

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// Apply applies the next entry.
func (r *replay) Apply(e raftlog.Entry) error {
	d := decode(e)
	return r.apply(&d)
}

func (r *replay) apply(d *decoded) error {
	if r.failed != nil {
		return r.failed
	}
	if d.entry.Index != r.applied+1 {
		return &OrderError{Applied: r.applied, Index: d.entry.Index}
	}
	// Not after the entry: it must be one that Rollback can take back.
	if r.direct != nil && r.direct.pending > pendingLimit(d) {
		if err := r.orFail(r.beginCommit()); err != nil {
			return err
		}
	}
	err := d.err
	if err == nil {
		err = r.execute(d)
		r.stuck = err != nil
	}
	if err != nil && r.direct != nil && r.direct.lost != nil {
		return r.fail(r.direct.lost) // which is not the entry's fault
	}
	if err != nil {
		return r.fail(&EntryError{Index: d.entry.Index, Kind: d.kind, Err: err})
	}
	r.applied, r.term = d.entry.Index, d.entry.Term
	return nil
}

// pendingLimit is how much may be pending before an entry. A compaction deletes
// rows one by one, and rows that were never committed are all in one page, out
// of which each deletion moves all that are behind it.
func pendingLimit(d *decoded) int {
	if d.request != nil && d.request.Compaction != nil {
		return maxPendingCompaction
	}
	return maxPending
}

// execute does what the entry asks for. That the request was refused, as it was
// on the member, is no error.
func (r *replay) execute(d *decoded) (err error) {
	defer func() {
		if r.direct != nil && r.direct.err != nil {
			err = errors.Join(r.direct.err, err)
		}
	}()
	defer rescue(&err)
	r.index.SetConsistentApplyingIndex(d.entry.Index, d.entry.Term)
	switch {
	case d.change != nil:
		err = r.changeMembers(d.change)
	case d.plain || d.request != nil:
		err = r.request(d)
	}
	if err != nil {
		return err
	}
	r.index.SetConsistentIndex(d.entry.Index, d.entry.Term)
	return r.follow(d)
}

// follow learns the revision that the entry led to.
func (r *replay) follow(d *decoded) error {
	before := r.revision
	switch {
	case r.direct == nil:
		r.lookAtRevisions()
	case r.direct.moves > 1:
		return fmt.Errorf("it wrote %d revisions, up to %d: more than one", r.direct.moves, r.direct.newest)
	case r.direct.moves == 1:
		r.revision = r.direct.newest
		r.direct.moves = 0
	}
	if moved := r.revision - before; moved != 0 && (moved != 1 || !d.moves()) {
		return fmt.Errorf("it led from revision %d to %d", before, r.revision)
	}
	return nil
}

// lookAtRevisions asks etcd's store.
func (r *replay) lookAtRevisions() {
	tx := r.kv.Read(mvcc.SharedBufReadTxMode, traceutil.TODO())
	defer tx.End()
	r.revision, r.compacted = tx.Rev(), max(0, tx.FirstRev())
	if r.direct != nil {
		r.direct.newest, r.direct.moves = r.revision, 0
	}
}

// advanceIndex is called by etcd's backend when an entry begins to write, which
// may commit before the entry ends.
func (r *replay) advanceIndex() {
	index, term := r.index.ConsistentApplyingIndex()
	if index > r.index.UnsafeConsistentIndex() {
		r.index.SetConsistentIndex(index, term)
	}
}

// status is what etcd's applier asks a member for, to fill in answers that
// nobody reads here.
type status struct{ r *replay }

// MemberID is nobody's.
func (s status) MemberID() types.ID { return 0 }

// Leader is nobody.
func (s status) Leader() types.ID { return 0 }

// CommittedIndex is that of the entry applied last.
func (s status) CommittedIndex() uint64 { return s.r.applied }

// AppliedIndex is the same.
func (s status) AppliedIndex() uint64 { return s.r.applied }

// Term is that of the same entry.
func (s status) Term() uint64 { return s.r.term }

// ForceSnapshot is asked for by a downgrade; there is no raft log to shorten.
func (s status) ForceSnapshot() {}
