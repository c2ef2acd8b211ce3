package walreplay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/coreos/go-semver/semver"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// StampCheck says which stamps of the archive, the hashes that live members
// served, are held against what was rebuilt.
type StampCheck string

const (
	// NoStamps compares none.
	NoStamps StampCheck = ""
	// StampsAtEnd compares those of the very state that was rebuilt: the same
	// revision, and the same compaction. Nothing more is read of the database for
	// it, and of the archive the last few alive marks before the point.
	StampsAtEnd StampCheck = "end"
	// EveryStamp compares each one between the base and the point that the
	// point's own compaction has left comparable. All alive marks between them are
	// read, a damaged one is an error, and each revision takes a pass over the
	// database.
	EveryStamp StampCheck = "every"
)

// Stamps counts the stamps that were met.
type Stamps struct {
	Equal int // compared, and equal
	// Passed are those that could not be compared: of another compaction, or by
	// an etcd that hashes a compacted history in its own way.
	Passed int
}

// StampError says that a rebuilt database is not what a live member served.
type StampError struct {
	Member snapshot.ID // whose hash it was
	Time   time.Time   // when it was asked, by its archiver's clock
	Index  uint64      // that the member had applied shortly before
	Stamp  segment.Stamp
	Got    uint32 // what the rebuilt database has instead
}

func (e *StampError) Error() string {
	return fmt.Sprintf("member %s served HashKV %d for revision %d (compacted revision %d) at %s, at raft index %d or shortly after; what was rebuilt has %d there: it is not what the cluster held",
		e.Member, e.Stamp.Hash, e.Stamp.HashRevision, e.Stamp.CompactedRevision, instant(e.Time), e.Index, e.Got)
}

// lastMarks is how many alive marks before a point StampsAtEnd reads: those of a
// few members, and more than the members of a cluster that is quiet for ten
// minutes write.
const lastMarks = 64

// marked is a log that has alive marks: from first to last, or the newest so many
// of them (0: all).
type marked interface {
	marks(ctx context.Context, first, last uint64, newest int) iter.Seq2[segment.Alive, error]
}

// Stamps yields the alive marks with a stamp whose index is from first to last,
// ordered by index, then time. A damaged mark comes with its
// *snapshot.DamagedError, and the next ones after it; any other error is the
// last. A history without an archive has none.
func (h *History) Stamps(ctx context.Context, first, last uint64) iter.Seq2[segment.Alive, error] {
	return func(yield func(segment.Alive, error) bool) {
		l, ok := h.log.(marked)
		if !ok {
			return
		}
		for m, err := range l.marks(ctx, first, last, 0) {
			if err == nil && m.Stamp == nil {
				continue
			}
			if !yield(m, err) {
				return
			}
		}
	}
}

// compareStamps holds the archive's stamps against the database at path, whose
// own hash is known.
func (h *History) compareStamps(ctx context.Context, p *Point, path string, index uint64, hash snapshot.HashKV, o Options) (met Stamps, err error) {
	l, ok := h.log.(marked)
	if !ok || o.Stamps == NoStamps {
		return met, nil
	}
	newest := 0 // all
	if o.Stamps == StampsAtEnd {
		newest = lastMarks
	}
	exact := hashesAlike(o.sourceVersion(p.Base))
	hashes := map[int64]uint32{hash.Revision: hash.Hash}
	for m, err := range l.marks(ctx, p.Base.Index(), index, newest) {
		var damaged *snapshot.DamagedError
		switch {
		case errors.As(err, &damaged) && o.Stamps == StampsAtEnd:
			continue // a mark is no part of what is restored
		case err != nil:
			return met, fmt.Errorf("compare what was rebuilt with the archive's stamps: %w", err)
		case m.Stamp == nil:
			continue
		}
		s := *m.Stamp
		compacted := max(s.CompactedRevision, 0)
		if compacted != max(hash.CompactedRevision, 0) || compacted > 0 && !exact || s.HashRevision < max(compacted, 1) || s.HashRevision > hash.Revision ||
			o.Stamps == StampsAtEnd && s.HashRevision != hash.Revision {
			met.Passed++
			continue
		}
		got, known := hashes[s.HashRevision]
		if !known {
			if got, err = hashAt(ctx, path, s.HashRevision); err != nil {
				return met, err
			}
			hashes[s.HashRevision] = got
		}
		if got != s.Hash {
			return met, &StampError{Member: snapshot.ID(m.Member), Time: m.Time, Index: m.Index, Stamp: s, Got: got}
		}
		met.Equal++
	}
	return met, nil
}

func hashAt(ctx context.Context, path string, revision int64) (_ uint32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	hash, err := snapshot.ReadHashKVAt(ctx, f, info.Size(), revision)
	return hash.Hash, err
}

// hashesAlike tells whether an etcd hashes a compacted history as
// snapshot.ReadHashKV does; empty is the newest.
func hashesAlike(version string) bool {
	if version == "" {
		return true
	}
	v, err := semver.NewVersion(version)
	if err != nil {
		return false // the engine has refused it already
	}
	since := map[int64]int64{4: 34, 5: 16}
	return v.Major == 3 && (v.Minor > 5 || v.Minor >= 4 && v.Patch >= since[v.Minor])
}
