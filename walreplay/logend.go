// The judgement of a stopped member's log's end: did the member end it there, or is its end
// missing? verify, restore and recover all take it from here, so that the same files get the
// same answer from each.

package walreplay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/walfile"
)

// LogEnd describes the end of a log. All texts are empty if the member ended the log where
// it ends.
type LogEnd struct {
	File string // the newest file of the log
	// Cut is why the end is missing. What the member acknowledged last may have been there.
	Cut string
	// Unshown is why nothing shows whether the end is missing: a log that was rolled back,
	// with zeros behind it, looks as a crash leaves it, but for the database's raft index.
	Unshown string
	// Torn is an incomplete last record, as a crash leaves it. It is empty if Cut is not.
	Torn string
}

// JudgeEnd compares the end of the log of a data directory, whose summary is s, with what
// etcd writes after the log: it writes to its log first, and allocates the newest file of it
// ahead. Of a damaged database it needs the raft index alone.
func JudgeEnd(ctx context.Context, dataDir string, log *walfile.Log, s walfile.Summary) (LogEnd, error) {
	e := LogEnd{File: log.Newest()}
	if s.Commit > s.LastIndex {
		e.Cut = fmt.Sprintf("the log ends with raft index %d and records that the entries up to %d are committed: its end was cut off", s.LastIndex, s.Commit)
		return e, nil
	}
	dir := filepath.Join(dataDir, "member", "snap")
	path, applied, known, err := applied(ctx, dir)
	if err != nil {
		return e, err
	}
	if !known {
		e.Unshown = fmt.Sprintf("the raft index of the database cannot be read from %s, so nothing shows that the log still has its end", filepath.Join(dir, "db"))
	}
	if applied > s.LastIndex {
		e.Cut = fmt.Sprintf("the log ends with raft index %d, and %s is at %d: the log was rolled back or cut off, or its disk did not keep what was written", s.LastIndex, path, applied)
		return e, nil
	}
	if e.Cut, err = cutFile(e.File); err != nil || e.Cut != "" || s.Torn == nil {
		return e, err
	}
	e.Torn = fmt.Sprintf("%s ends at byte %d with an incomplete record, as a crash during a write leaves it: etcd acknowledges a write only after its record is complete, and removes this record when it starts", e.File, s.Torn.Offset)
	return e, nil
}

// StartIndex returns the raft index of the snapshot that etcd up to 3.7 starts at: the newest one
// with a record in the log and a sound *.snap file. It is 0 if there is none.
func StartIndex(dataDir string, s walfile.Summary) (uint64, error) {
	for _, m := range slices.Backward(s.Snapshots) {
		_, fault, err := CheckSnapFile(filepath.Join(dataDir, "member", "snap", fmt.Sprintf("%016x-%016x.snap", m.Term, m.Index)))
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return 0, err
		case err == nil && fault == "":
			return m.Index, nil
		}
	}
	return 0, nil
}

// JudgeStart compares the start of the log of a data directory, whose summary is s, with the
// snapshot of raft that etcd starts at. It returns why the log's start is missing, or a note if
// that depends on etcd's version; both are empty for a log that etcd can open.
func JudgeStart(dataDir string, log *walfile.Log, s walfile.Summary) (missing, note string, err error) {
	begins := log.Begins()
	if begins <= 1 {
		return "", "", nil
	}
	start, err := StartIndex(dataDir, s)
	switch {
	case err != nil || start >= begins:
		return "", "", err
	case s.Snapshot.Index >= begins:
		return "", fmt.Sprintf("no *.snap file reaches the oldest file of the log, which begins with raft index %d: etcd 3.8 needs none, and up to 3.7 it fails with \"wal: file not found\"", begins), nil
	}
	return fmt.Sprintf("the oldest file of the log begins with raft index %d, and etcd has to start at %d: older files were deleted, not by etcd. Up to etcd 3.7 it fails with \"wal: file not found\"", begins, start), "", nil
}

// applied returns the file of a member's snap directory that reaches furthest, its raft
// index, and whether that of the database is known. A snapshot of a leader (NAME.snap.db)
// arrives before the log has a record of it.
func applied(ctx context.Context, dir string) (path string, index uint64, known bool, err error) {
	names, err := safedir.Names(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", 0, false, err
	}
	arrived := map[uint64]bool{}
	for _, name := range names {
		var at uint64
		if hex, ok := strings.CutSuffix(name, ".snap.db"); ok {
			if n, err := fmt.Sscanf(hex, "%016x", &at); n == 1 && err == nil {
				arrived[at] = true
			}
		}
	}
	for _, name := range names {
		at, ok := uint64(0), false
		if name == "db" {
			at, ok = raftIndex(ctx, filepath.Join(dir, name))
			known = ok
		} else if stem, found := strings.CutSuffix(name, ".snap"); found {
			at, ok = snapIndex(stem)
			ok = ok && !arrived[at]
		}
		if !ok || at <= index {
			continue
		}
		if name != "db" {
			if _, fault, err := CheckSnapFile(filepath.Join(dir, name)); err != nil {
				return "", 0, false, err
			} else if fault != "" {
				continue // a crash left it while it was written, or its own check reports it
			}
		}
		path, index = filepath.Join(dir, name), at
	}
	return path, index, known, ctx.Err()
}

// raftIndex reads the raft index of a database, of which other pages may be damaged: their
// own check reports that.
func raftIndex(ctx context.Context, path string) (index uint64, ok bool) {
	f, err := safedir.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close() //nolint:errcheck // reading
	info, err := f.Stat()
	if err != nil {
		return 0, false
	}
	db, err := boltfile.Open(ctx, f, info.Size())
	if err != nil || db.OtherMeta() != nil { // the database may have been one commit further
		return 0, false
	}
	b, err := db.Get("meta", "consistent_index")
	if err == nil && b == nil {
		rows, err := db.Bucket([]byte("key"))
		if err != nil || rows == nil {
			return 0, err == nil
		}
		first, _, err := rows.Cursor().First()
		return 0, err == nil && first == nil // etcd 3.5 stores none before the first commit
	}
	if err != nil || len(b) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}

// cutFile reports why the newest file of a log lacks its end, if its size shows it. etcd
// allocates the file ahead and begins another one when it is full, so a crash leaves zeros
// after the last record. etcd itself cuts the file if it removes a torn record, and keeps what
// it cut as NAME.broken.
func cutFile(path string) (_ string, err error) {
	f, err := safedir.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	size := info.Size()
	if size < wal.SegmentSizeBytes {
		if _, err := safedir.Stat(path + ".broken"); !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		return fmt.Sprintf("the newest file of the log, %s, has %d bytes, and etcd allocates %d at once: its end was cut off, for example by an interrupted copy", path, size, wal.SegmentSizeBytes), nil
	}
	var end [8]byte
	if _, err := f.ReadAt(end[:], size-int64(len(end))); err != nil {
		return "", err
	}
	if !bytes.Equal(end[:], make([]byte, len(end))) {
		return fmt.Sprintf("the newest file of the log, %s, is full, and the file that etcd begins next is missing", path), nil
	}
	return "", nil
}
