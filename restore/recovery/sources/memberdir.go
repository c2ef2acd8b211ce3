package sources

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/walfile"
)

// memberDir is one member's directory while its summary is written.
type memberDir struct {
	Survivor
	remains *Remains
	log     *walfile.Log // nil where none can be read
	// missing is why older files of the log are not there, or damage that ends it:
	// which of them, the reading of its entries shows.
	missing error
	marked  uint64 // the highest index in the name of a *.snap file
	began   uint64 // the lowest
}

// ErrTooOld says that etcd 3.4 wrote a member's database: it keeps no term.
var ErrTooOld = errors.New("etcd 3.4 wrote it, and members are recovered from etcd 3.5 on: restore a backup, or start the member and save a snapshot")

// openMember looks at the databases and goes through the log once. What is wrong
// with the data becomes a finding; an error is that nothing could be looked at.
func openMember(ctx context.Context, s Survivor, o SummaryOptions) (*memberDir, error) {
	d := &memberDir{Survivor: s, remains: &Remains{Name: s.Name, DataDir: s.DataDir, WALDir: s.WALDir, Databases: []Database{}, Steps: []Membership{}}}
	if info, err := safedir.Stat(s.DataDir); err != nil {
		return nil, fmt.Errorf("its data directory: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("its data directory: %s is no directory", s.DataDir)
	}
	o.Progress("databases of "+s.Name, 0, 0)
	if err := d.readDatabases(ctx, o); err != nil {
		return nil, fmt.Errorf("its databases: %w", err)
	}
	if db := d.remains.newest(); db != nil && db.Index > 0 && db.Term == 0 {
		return nil, fmt.Errorf("%s: %w", db.Path, ErrTooOld)
	}
	o.Progress("log of "+s.Name, 0, 0)
	if err := d.openLog(ctx); err != nil {
		return nil, fmt.Errorf("its log: %w", err)
	}
	if d.log == nil && len(d.remains.Databases) == 0 {
		d.remains.find(KindNoDatabase, "check the path; a data directory has the folders member/snap and member/wal", "%s holds neither a database nor a log", s.DataDir)
	}
	d.compareWithin()
	return d, nil
}

// readDatabases looks at db, and at those that a leader sent and the member had
// not put in place yet.
func (d *memberDir) readDatabases(ctx context.Context, o SummaryOptions) error {
	list, err := safedir.ReadDir(d.snapDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range list {
		if name, ok := strings.CutSuffix(e.Name(), ".snap"); ok {
			var term, index uint64
			if n, err := fmt.Sscanf(name, "%016x-%016x", &term, &index); n == 2 && err == nil {
				d.marked = max(d.marked, index)
				if d.began == 0 || index < d.began {
					d.began = index
				}
			}
		}
		if !isDatabase(e.Name()) {
			continue
		}
		db := Database{Path: filepath.Join(d.snapDir(), e.Name())}
		if err := db.read(ctx, o.CheckBase); err != nil {
			if ctx.Err() != nil || errors.Is(err, fs.ErrPermission) {
				return err
			}
			db.Damage = err.Error()
			d.remains.find(KindDatabase, "it is not used; the log can be replayed onto another member's database, or onto a backup, where they join", "the database %s is damaged: %v", db.Path, err)
		}
		d.remains.Databases = append(d.remains.Databases, db)
	}
	slices.SortStableFunc(d.remains.Databases, func(a, b Database) int { return cmp.Compare(a.Index, b.Index) })
	return nil
}

// isDatabase goes by a file's name: that of the database, or of one that a leader
// sent.
func isDatabase(name string) bool { return name == "db" || strings.HasSuffix(name, ".snap.db") }

func (db *Database) read(ctx context.Context, check func(ctx context.Context, name string, r io.ReaderAt, size int64) error) (err error) {
	image, err := snapshot.OpenFile(db.Path)
	if err != nil {
		return err
	}
	db.Size = image.Size()
	if db.facts, err = image.Facts(ctx); err != nil {
		return err
	}
	f, err := safedir.Open(db.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := check(ctx, db.Path, f, db.Size); err != nil {
		return err
	}
	db.Index, db.Term, db.Revision, db.CompactedRevision = db.facts.RaftIndex, db.facts.RaftTerm, db.facts.Revision, db.facts.CompactedRevision
	db.ClusterVersion, db.StorageVersion, db.AuthEnabled = db.facts.ClusterVersion, db.facts.StorageVersion, db.facts.AuthEnabled
	return nil
}

// openLog goes through the log once, for its order.
func (d *memberDir) openLog(ctx context.Context) error {
	m := d.remains
	log, err := walfile.Open(d.logDir())
	var corrupt *walfile.CorruptError
	switch {
	case errors.Is(err, walfile.ErrNoLog), errors.Is(err, fs.ErrNotExist):
		m.find(KindNoLog, "if the member kept its log elsewhere (etcd's --wal-dir), name that folder as well, with --local as member=dir:wal-dir; without it what the member had not written into its database yet is missing, and nothing can be proven of it", "there is no log in %s", d.logDir())
		return nil
	case errors.As(err, &corrupt):
		m.find(KindBrokenLog, "the database alone can be restored, with what is missing from its log lost", "the log cannot be read at all: %v", corrupt)
		return nil
	case err != nil:
		return err
	}
	s, err := log.Summary(ctx)
	switch {
	case errors.Is(err, walfile.ErrNewer):
		m.find(KindNewer, "use a newer requorum", "the log in %s cannot be read: %v", d.logDir(), err)
		return nil
	case errors.As(err, &corrupt):
		d.missing = err
	case err != nil:
		return err
	}
	d.log = log
	m.ClusterID, m.MemberID = snapshot.ID(s.Identity.ClusterID), snapshot.ID(s.Identity.MemberID)
	m.Log = &Log{FirstIndex: s.FirstIndex, LastIndex: s.LastIndex, LastTerm: s.LastTerm, Commit: s.Commit, Ranges: rangesOf(s)}
	if s.Torn != nil {
		m.Log.Torn = &Place{File: filepath.Join(d.logDir(), s.Torn.Segment), Offset: s.Torn.Offset}
		m.find(KindTorn, "", "the log ends with a record that was not written to its end (%s, byte %d), as a crash leaves it: that one was never acknowledged", m.Log.Torn.File, m.Log.Torn.Offset)
	}
	return errors.Join(d.lookAtFiles(), d.lookAtEnd(filepath.Join(d.logDir(), log.Newest())))
}

// lookAtFiles says what the folder shows beside the log's records.
func (d *memberDir) lookAtFiles() error {
	m := d.remains
	list, err := safedir.ReadDir(d.logDir())
	if err != nil {
		return err
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".wal") && info.ModTime().After(m.Written) {
			m.Written = info.ModTime().UTC()
		}
	}
	list, err = safedir.ReadDir(filepath.Join(d.DataDir, "member"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m.Log.Restored = d.began > 0 && d.began <= mostMembers
	for _, e := range list {
		m.Log.Restored = m.Log.Restored || strings.HasPrefix(e.Name(), "requorum-") && strings.HasSuffix(e.Name(), ".json")
	}
	if m.Log.Restored {
		m.find(KindRestored, "", "this cluster was itself restored once: its log does not begin with all that there was")
	}
	return nil
}

// mostMembers is more than a cluster is restored with: the log of a restored one
// begins with a snapshot behind one entry for each member.
const mostMembers = 32

// rangesOf are the parts of a log between its gaps.
func rangesOf(s walfile.Summary) []Range {
	all := []Range{}
	if s.FirstIndex == 0 {
		return all
	}
	next := s.FirstIndex
	for _, g := range s.Gaps {
		if g.After >= next {
			all = append(all, Range{next, g.After})
		}
		next = g.Next
	}
	if next <= s.LastIndex {
		all = append(all, Range{next, s.LastIndex})
	}
	return all
}

// compareWithin holds what lies in one directory against each other: etcd writes
// to its log before anything else.
func (d *memberDir) compareWithin() {
	m := d.remains
	newest := m.newest()
	if m.Log != nil && d.missing == nil {
		const next = "it does not count as a witness of what was acknowledged; another member's log or the archive may have the rest"
		switch {
		case m.Log.Commit > m.Log.LastIndex:
			m.find(KindCutLog, next, "the log ends with raft index %d and says that the entries up to %d are committed: its end was cut off", m.Log.LastIndex, m.Log.Commit)
		case newest != nil && newest.Index > m.Log.LastIndex:
			m.find(KindCutLog, next, "the log ends with raft index %d, and the database %s holds the entries up to %d: the log was rolled back or cut off, or its disk did not keep what was written", m.Log.LastIndex, newest.Path, newest.Index)
		case d.marked > m.Log.LastIndex:
			m.find(KindCutLog, next, "the log ends with raft index %d, and a *.snap file is of index %d: the log was rolled back or cut off", m.Log.LastIndex, d.marked)
		}
	}
	switch {
	case newest == nil:
		if m.Log != nil && (m.Log.FirstIndex != 1 || m.Log.Restored) {
			m.find(KindNoDatabase, "", "there is no sound database: the log alone cannot be replayed, only onto another member's database or a backup")
		}
	case d.marked > newest.Index:
		m.find(KindOldDatabase, "the log is replayed onto it where it reaches back so far", "the newest database is at raft index %d, and a *.snap file says that it had reached %d: it is an older one than the rest of the directory", newest.Index, d.marked)
	}
	if newest != nil && m.Log != nil && !joins(m.Log.Ranges, newest.Index) && newest.Index < m.Log.LastIndex {
		m.find(KindBase, "another member's log or the archive may fill the gap", "the log does not go on from the database at raft index %d: entries between are gone", newest.Index)
	}
}

// joins reports whether a log goes on from an index.
func joins(all []Range, index uint64) bool {
	return slices.ContainsFunc(all, func(s Range) bool { return s.First <= index+1 && index <= s.Last })
}

// lookAtEnd finds a log that was cut short where nothing in it shows it. etcd allocates
// the newest file ahead, and begins another one when it is full: so a crash leaves
// room behind the last record. Without it a copy was interrupted, or the newest
// file was left out, and nobody knows what was behind.
func (d *memberDir) lookAtEnd(newest string) error {
	const next = "bring the whole log over once more, with all its files; until then it does not count as a witness of what was acknowledged"
	info, err := safedir.Stat(newest)
	if err != nil {
		return err
	}
	if size := info.Size(); size < wal.SegmentSizeBytes {
		// Where etcd itself cut a torn record off, what it was cut from is beside it.
		if _, err := safedir.Stat(newest + ".broken"); errors.Is(err, fs.ErrNotExist) {
			d.remains.Findings = slices.DeleteFunc(d.remains.Findings, func(f Finding) bool { return f.Kind == KindTorn }) // no crash left it
			d.remains.find(KindCutLog, next, "the newest file of the log, %s, has %d bytes, and etcd allocates %d at once: its end was cut off, as by a copy that was interrupted", newest, size, wal.SegmentSizeBytes)
		}
		return nil
	}
	full, err := endsWithData(newest, info.Size())
	if full {
		d.remains.find(KindCutLog, next, "the newest file of the log, %s, is full, and etcd begins another one then, which is not here", newest)
	}
	return err
}

// endsWithData reports whether a file has no room behind its last record.
func endsWithData(path string, size int64) (_ bool, err error) {
	f, err := safedir.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var end [8]byte
	if size < int64(len(end)) {
		return true, nil
	}
	_, err = f.ReadAt(end[:], size-int64(len(end)))
	return !bytes.Equal(end[:], make([]byte, len(end))), err
}

// RunningError says that a member runs on a directory. It is a restore.ErrInUse.
type RunningError struct {
	Survivor string
	DataDir  string
	Process  string // such as "process 1234 (etcd) writes to FILE"; empty where it is not known
	Err      error
}

func (e *RunningError) Error() string {
	who := e.Process
	if who == "" {
		who = "a process that cannot be seen from here (another user's, or another container's)"
	}
	return fmt.Sprintf("%s still runs on %s: %s: %v: a recovery looks at stopped members only; if the cluster still has its quorum, replace single members instead", e.Survivor, e.DataDir, who, e.Err)
}

func (e *RunningError) Unwrap() error { return e.Err }

// checkIdle fails with a *RunningError while a member runs on the directory.
func checkIdle(s Survivor) error {
	err := restore.CheckMemberIdle(s.DataDir, s.WALDir)
	if errors.Is(err, restore.ErrInUse) {
		running := &RunningError{Survivor: s.Name, DataDir: s.DataDir, Err: err}
		if table, err := supervisor.ProcessesUsing(s.DataDir, s.WALDir); err == nil && len(table.Using) > 0 {
			running.Process = table.Using[0].String()
		}
		return running
	}
	if err != nil {
		return fmt.Errorf("look whether %s still runs: %w", s.Name, err)
	}
	return nil
}
