package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// scriptLog archives the log of the script's member into $REQUORUM_REPO by hand,
// without the archiver, so that scripts are about one thing: everything after
// the index, in two segments that overlap nothing, with a mark at the end. It
// sets $LAST, $MARKED to the mark's time, and $SEGMENT to the last segment. Headers
// know the revision, as live observations would show it: log after-index revision
func scriptLog(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: log after-index revision")
	}
	after, err := strconv.ParseUint(args[0], 10, 64)
	ts.Check(err)
	revision, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	folders, err := filepath.Glob(filepath.Join(ts.MkAbs("etcd"), "*", "member", "wal"))
	ts.Check(err)
	if len(folders) == 0 {
		folders = []string{filepath.Join(ts.MkAbs("etcd"), "member", "wal")}
	}
	entries, err := readWAL(folders[0])
	ts.Check(err)
	last, marked, err := archiveByHand(context.Background(), ts.Getenv("REQUORUM_REPO"), entries, after, revision)
	ts.Check(err)
	ts.Setenv("LAST", strconv.FormatUint(last, 10))
	ts.Setenv("MARKED", marked.Format(time.RFC3339Nano))
	segments, err := filepath.Glob(filepath.Join(ts.Getenv("REQUORUM_REPO"), "*", "l0", "*"))
	ts.Check(err)
	ts.Setenv("SEGMENT", segments[len(segments)-1])
}

// scriptFacts sets variables to a backup's ID and raft index: facts manifest
// IDVARIABLE INDEXVARIABLE
func scriptFacts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: facts manifest IDVARIABLE INDEXVARIABLE")
	}
	var m snapshot.Manifest
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(repository.Unseal(data, &m))
	ts.Setenv(args[1], m.ID)
	ts.Setenv(args[2], strconv.FormatUint(m.Facts.RaftIndex, 10))
}

// scriptNone wants no file that a pattern matches: none pattern
func scriptNone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: none pattern")
	}
	found, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(found) > 0 {
		ts.Fatalf("%s is left", strings.Join(found, ", "))
	}
}

// readWAL reads a log, also one that is being written, with etcd's own reader.
func readWAL(dir string) ([]raftlog.Entry, error) {
	w, err := wal.OpenForRead(zap.NewNop(), dir, &walpb.Snapshot{})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	_, _, raw, err := w.ReadAll()
	if err != nil {
		return nil, err
	}
	var entries []raftlog.Entry
	for _, e := range raw {
		entries = append(entries, raftlog.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Type: e.GetType(), Data: slices.Clip(e.Data)})
	}
	return entries, nil
}

func archiveByHand(ctx context.Context, folder string, entries []raftlog.Entry, after uint64, revision int64) (last uint64, marked time.Time, err error) {
	sink, err := disk.New(strings.TrimPrefix(folder, "file://"))
	if err != nil {
		return 0, marked, err
	}
	repo, err := repository.Init(ctx, sink, time.Now())
	if err != nil {
		return 0, marked, err
	}
	timelines, err := repo.TimelineIDs(ctx)
	if err != nil {
		return 0, marked, err
	}
	entries = entries[after-entries[0].Index+1:]
	var before raftlog.Sum
	marked = time.Now().UTC()
	for i, part := range [][]raftlog.Entry{entries[:len(entries)/2], entries[len(entries)/2:]} {
		if len(part) == 0 {
			continue
		}
		b := segment.Batch{Entries: part}
		if i == 1 {
			e := part[len(part)-1]
			b.Marks, last = []raftlog.Mark{{Index: e.Index, Term: e.Term, Time: marked, Member: 1}}, e.Index
		}
		h, data, err := segment.Encode(ctx, timelines[0], before, before == raftlog.Sum{}, b, segment.Meta{Cut: marked, Revision: revision}, segment.Options{Tool: "by hand"})
		if err != nil {
			return 0, marked, err
		}
		if err := segment.Put(ctx, repo, h, data); err != nil {
			return 0, marked, err
		}
		before = h.After
	}
	return last, marked, nil
}
