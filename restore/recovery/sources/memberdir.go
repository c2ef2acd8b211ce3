package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
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
}

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
			}
		}
		if !isDatabase(e.Name()) {
			continue
		}
		db := Database{Path: filepath.Join(d.snapDir(), e.Name())}
		if err := db.read(ctx, o.CheckBase); err != nil {
			if ctx.Err() != nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, snapshot.ErrTooOld) {
				return fmt.Errorf("%s: %w", db.Path, err)
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
	if err := image.CheckHash(ctx); err != nil {
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
	}
	if d.missing == nil {
		end, err := walreplay.JudgeEnd(ctx, d.DataDir, log, s)
		switch {
		case err != nil:
			return err
		case end.Cut != "":
			m.find(KindCutLog, "it does not count as a witness of what was acknowledged; bring over the whole log once more, or use another member's log or the archive", "%s", end.Cut)
		case end.Torn != "":
			m.find(KindTorn, "", "%s", end.Torn)
		}
		if end.Unshown != "" {
			m.find(KindUnshown, nextUnshown, "%s", end.Unshown)
		}
	}
	return errors.Join(d.lookAtFiles(ctx, s), d.relate(ctx, s))
}

const nextUnshown = "the log does not count as a witness of what was acknowledged"

// relate compares the databases with the log. The log of another history shows nothing of
// the cluster that a database is of.
func (d *memberDir) relate(ctx context.Context, s walfile.Summary) error {
	for i := range d.remains.Databases {
		db := &d.remains.Databases[i]
		if db.Damage != "" {
			continue
		}
		r, err := walreplay.RelateFile(ctx, db.Path, d.log, s)
		var corrupt *walfile.CorruptError
		switch {
		case errors.As(err, &corrupt):
			// A finding of its own, and the log is no witness.
		case err != nil:
			return err
		case r.Kind == walreplay.Unrelated:
			db.Damage = "the log is of another history"
			d.remains.find(KindMixed, walreplay.AdviceUnrelated, "the database %s and the log are not of one history: %s", db.Path, r.Reason)
		case r.Kind == walreplay.NotShown && !d.remains.has(KindCutLog):
			d.remains.find(KindUnshown, nextUnshown, "nothing shows that the database %s and the log are of one history: %s", db.Path, r.Reason)
		}
	}
	return nil
}

// lookAtFiles finds when the log was written last, and whether it begins with a restore.
func (d *memberDir) lookAtFiles(ctx context.Context, s walfile.Summary) error {
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
	at, err := walreplay.RestoredAt(ctx, d.log, s)
	if err != nil && !errors.As(err, new(*walfile.CorruptError)) {
		return err
	}
	if m.Log.Restored = at > 0; m.Log.Restored {
		m.find(KindRestored, "", "this cluster was itself restored once: its log does not begin with all that there was")
	}
	return nil
}

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

// checkIdle fails with a restore.ErrInUse while a member runs on the directory.
func checkIdle(s Survivor) error {
	if err := restore.CheckMemberIdle(s.DataDir, s.WALDir); err != nil {
		return fmt.Errorf("member %s: %w", s.Name, err)
	}
	return nil
}
