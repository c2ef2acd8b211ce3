package snapshot

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/coreos/go-semver/semver"

	"github.com/requorum/requorum/snapshot/boltfile"
)

// ReadHashKV computes the HashKV that etcd would answer with, at the newest
// revision, if it served the database in r, of size bytes. Nothing is written,
// and no index is built. CompactedRevision is -1 when nothing was ever
// compacted, as etcd has it.
//
// What was compacted has to be distinguished from what is still the newest value of its
// key: so about 50 bytes are kept in memory for each key that changed after the
// last compaction that was finished; with none scheduled, nothing is. Keys are
// distinguished by 128 bits of a hash with random seeds.
//
// The hash is that of etcd from 3.5.16 on. Older ones leave out, or
// have deleted, other tombstones at the compacted revision, so that theirs can
// differ. Errors are those of ReadFacts.
func ReadHashKV(ctx context.Context, r io.ReaderAt, size int64) (HashKV, error) {
	return ReadHashKVAt(ctx, r, size, 0)
}

// ReadHashKVAt is ReadHashKV at an older revision, as etcd answers when it is
// asked for one; 0 is the newest. Between the same two revisions, compacted and
// hashed, every state of one history has one hash, whatever came later. A
// revision that is compacted, or not reached, is ErrNoRevision.
func ReadHashKVAt(ctx context.Context, r io.ReaderAt, size, revision int64) (HashKV, error) {
	db, err := boltfile.Open(ctx, r, size)
	if err != nil {
		return HashKV{}, damage(err)
	}
	hash, err := hashKV(db, revision)
	return hash, damage(err)
}

// HashesOtherwise reports whether an etcd of a version leaves other deletions at the
// compacted revision out of its HashKV than ReadHashKV: those up to 3.5.15
// do. Of a version that cannot be read it is not known.
func HashesOtherwise(version string) bool {
	v, err := semver.NewVersion(version)
	return err == nil && v.LessThan(semver.Version{Major: 3, Minor: 5, Patch: 16})
}

// ErrNoRevision says that a database has no state at a revision any more, or
// not yet.
var ErrNoRevision = errors.New("the database has no state at that revision")

func hashKV(db *boltfile.File, revision int64) (HashKV, error) {
	var facts Facts
	if err := readRevision(db, &facts); err != nil {
		return HashKV{}, err
	}
	keys, err := db.Bucket([]byte("key"))
	if err != nil {
		return HashKV{}, err
	}
	if revision == 0 {
		revision = facts.Revision
	}
	if revision < facts.CompactedRevision || revision > facts.Revision {
		return HashKV{}, fmt.Errorf("%w: %d; it has %d to %d", ErrNoRevision, revision, facts.CompactedRevision, facts.Revision)
	}
	newest := &boltfile.Newest{} // of keys that changed after the last finished compaction: up to there none has two rows
	if facts.CompactedRevision > 0 {
		finished, err := compaction(db, "finishedCompactRev")
		if err != nil {
			return HashKV{}, err
		}
		if newest, err = boltfile.ReadNewest(keys, finished+1, revision); err != nil {
			return HashKV{}, err
		}
		if newest.Undecoded != nil {
			return HashKV{}, malformed("bucket key: %w", newest.Undecoded)
		}
	}
	sum, err := hashRows(keys, facts.CompactedRevision, revision, newest)
	if err != nil {
		return HashKV{}, err
	}
	hash := HashKV{Obtained: "computed from the database", Hash: sum, Revision: revision, CompactedRevision: facts.CompactedRevision}
	if hash.CompactedRevision == 0 {
		hash.CompactedRevision = -1
	}
	return hash, nil
}

// hashRows hashes the key bucket as etcd's mvcc does: all revisions after the
// compacted one, and of those up to it the ones that are the newest of their
// key, whether or not the others are deleted already. If no key is left at all,
// etcd's hash leaves nothing out. Rows after the last revision are not there.
func hashRows(keys *boltfile.Bucket, compacted, last int64, newest *boltfile.Newest) (uint32, error) {
	rows := NewRowHasher(compacted)
	err := keys.ForEach(func(k, v []byte) error {
		r, err := boltfile.ParseRow(k)
		if err != nil {
			return malformed("bucket key: %w", err)
		}
		if r.Main > last {
			return nil
		}
		keep := false
		if r.Main <= compacted {
			if keep, err = newest.Has(r, v); err != nil {
				return malformed("bucket key: %w", err)
			}
		}
		rows.Add(r, k, v, keep)
		return nil
	})
	return rows.Sum(newest.AnyValue()), err
}

// RowHasher is etcd's hash of the rows of the key bucket, which come in their order.
type RowHasher struct {
	compacted int64
	kept      uint32
	all       uint32 // in case that there is no key
	anyKey    bool   // that has a value, among those up to the compacted revision
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NewRowHasher begins with none. Without a compaction, compacted is 0 or less.
func NewRowHasher(compacted int64) *RowHasher {
	begin := crc32.Checksum([]byte("key"), castagnoli)
	return &RowHasher{compacted: compacted, kept: begin, all: begin}
}

// Add adds a row. Up to the compacted revision it is to be said whether the row is the
// newest of its key; behind that newest counts for nothing.
func (h *RowHasher) Add(r boltfile.Row, name, value []byte, newest bool) {
	keep, always := true, h.compacted > 0
	if r.Main <= h.compacted {
		at := r.Main == h.compacted
		keep, always = Hashed(r.Deleted, newest, at, true), Hashed(r.Deleted, newest, at, false)
		h.anyKey = h.anyKey || keep
	}
	if keep {
		h.kept = crc32.Update(crc32.Update(h.kept, castagnoli, name), castagnoli, value)
	}
	if always {
		h.all = crc32.Update(crc32.Update(h.all, castagnoli, name), castagnoli, value)
	}
}

// Hashed reports whether etcd's hash has a row up to the compacted revision: the newest of
// its key, unless that is a deletion. If no key has a value, nothing is left out but the
// deletions at the compacted revision itself, which older versions have deleted.
func Hashed(deleted, newest, atCompacted, anyKey bool) bool {
	if deleted && atCompacted {
		return false
	}
	return !anyKey || newest && !deleted
}

// Sum is the hash. anyKey says whether a key has a value; that of keys which were not changed
// since the compacted revision is known already. Without one, etcd's hash leaves nothing out.
func (h *RowHasher) Sum(anyKey bool) uint32 {
	if h.compacted > 0 && !h.anyKey && !anyKey {
		return h.all
	}
	return h.kept
}
