package walreplay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

// member is a stopped member's data directory.
type member struct {
	dir, walDir string // walDir is empty where the log is inside of dir
	log         *walfile.Log
	memberID    snapshot.ID
	commit      uint64 // the last index that the member recorded as committed
	parts       []segment.Coverage
	bytes       int64 // of all files of the log
	damage      error // that ends the log; nil where it ends by itself
	notes       []string
}

// OpenDataDir is the history of a stopped member: its database, those that a
// leader sent it (*.snap.db), and its log to the very end, with what it had not
// recorded as committed. walDir is empty where the log is in dir. It goes
// through the log once. Files are only read, and the caller makes sure that no
// member runs on them; it closes the history.
func OpenDataDir(ctx context.Context, dir, walDir string) (*History, error) {
	h, err := OpenMemberLog(ctx, dir, walDir)
	if errors.Is(err, walfile.ErrNoLog) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: if the log is elsewhere, name its folder with --wal-dir-source; the database alone can be restored with --file", err)
	}
	if err == nil && len(h.bases) == 0 {
		m := h.log.(*member)
		return nil, fmt.Errorf("%s has no database to begin from, and its log does not begin with the cluster's first entry; %s: %w",
			m.dir, strings.Join(append(m.notes, "a backup is needed"), "; "), snapshot.ErrNoBackup)
	}
	return h, err
}

// LocalMember is the member of a data directory, which may be running: its log says
// which one it is. walDir is empty where the log is in dir.
func LocalMember(dir, walDir string) (*snapshot.LocalMember, error) {
	log, err := walfile.Open(cmp.Or(walDir, filepath.Join(dir, "member", "wal")))
	if err != nil {
		return nil, err
	}
	of := log.Identity()
	return &snapshot.LocalMember{ClusterID: of.ClusterID, MemberID: of.MemberID, Database: filepath.Join(dir, "member", "snap", "db")}, nil
}

// OpenMemberLog is OpenDataDir for a log that is joined with what others have: a
// directory without a sound database has no bases then.
func OpenMemberLog(ctx context.Context, dir, walDir string) (*History, error) {
	m := &member{walDir: walDir}
	var err error
	if m.dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	logDir := filepath.Join(m.dir, "member", "wal")
	if walDir != "" {
		if m.walDir, err = filepath.Abs(walDir); err != nil {
			return nil, err
		}
		logDir = m.walDir
	}
	if err := m.open(ctx, logDir); err != nil {
		return nil, err
	}
	bases, err := m.images(ctx)
	if err != nil {
		return nil, err
	}
	return &History{Name: "data directory " + m.dir, bases: bases, log: m}, nil
}

// Close gives up what a search of an archive has kept.
func (h *History) Close() error {
	if h.kept == nil {
		return nil
	}
	return h.kept.Close()
}

// images are the databases beside the log, by index.
func (m *member) images(ctx context.Context) (bases []*Base, err error) {
	folder := filepath.Join(m.dir, "member", "snap")
	list, err := safedir.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	began := uint64(0) // the index that the log was made to begin from
	for _, e := range list {
		if name, ok := strings.CutSuffix(e.Name(), ".snap"); ok {
			if index, ok := snapIndex(name); ok && (began == 0 || index < began) {
				began = index
			}
		}
		if e.Name() != "db" && !strings.HasSuffix(e.Name(), ".snap.db") {
			continue
		}
		b, err := OpenBase(ctx, filepath.Join(folder, e.Name()))
		if err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			m.notes = append(m.notes, fmt.Sprintf("%s is not used: %v", filepath.Join(folder, e.Name()), err))
			continue
		}
		bases = append(bases, b)
	}
	empty, err := m.beginsEmpty(began)
	if err != nil {
		return nil, err
	}
	if empty {
		bases = append(bases, &Base{Name: "the empty database before the first entry", Facts: snapshot.Facts{Revision: 1}})
	}
	for _, b := range bases {
		if len(b.Facts.Members) > 0 && !slices.ContainsFunc(b.Facts.Members, func(o snapshot.Member) bool { return o.ID == m.memberID }) {
			m.notes = append(m.notes, fmt.Sprintf("the log is of member %s, whom %s does not know: it was removed from the cluster, or the log is another member's", m.memberID, b.Name))
		}
	}
	slices.SortStableFunc(bases, func(a, b *Base) int { return cmp.Compare(a.Index(), b.Index()) })
	return bases, nil
}

// most is how many members a cluster is restored with, and more: a log that was
// made by a restore begins with one entry for each, and with a snapshot behind
// them.
const most = 32

// beginsEmpty reports a log that begins with a cluster's first entry, and so can be
// replayed onto nothing. The log of a restored cluster begins with the same entries, but
// what was restored is not in it.
func (m *member) beginsEmpty(began uint64) (bool, error) {
	if len(m.parts) == 0 || m.parts[0].FirstIndex != 1 {
		return false, nil
	}
	names, err := safedir.Names(filepath.Join(m.dir, "member"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	restored := slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "requorum-") && strings.HasSuffix(name, ".json")
	})
	if began > 0 && began <= most || restored {
		m.notes = append(m.notes, "the log begins with its first entry, but of a cluster that was itself restored: what it was restored from is not in the log")
		return false, nil
	}
	return true, nil
}

// snapIndex is the index in the name of a .snap file: term and index in hex.
func snapIndex(name string) (uint64, bool) {
	var term, index uint64
	n, err := fmt.Sscanf(name, "%016x-%016x", &term, &index)
	return index, n == 2 && err == nil
}

// OpenBase is a member's database file, opened for reading only, as an image to
// begin from. Its facts are read, no more.
func OpenBase(ctx context.Context, path string) (*Base, error) {
	f, err := snapshot.OpenFile(path)
	if err != nil {
		return nil, err
	}
	facts, err := f.Facts(ctx)
	if err != nil {
		return nil, err
	}
	return &Base{Name: path, ID: filepath.Base(path), Image: f, Facts: facts}, nil
}

// complete adds to a recipe what is a data directory's own.
func (m *member) complete(c *Recipe, b *Base, f snapshot.Facts) {
	c.DataDir, c.WALDir, c.Image, c.Base = m.dir, m.walDir, b.ID, ""
	voters := 0
	for _, v := range f.Members {
		if !v.IsLearner {
			voters++
		}
	}
	if voters == 1 {
		return // what it has not written was never acknowledged
	}
	c.Unproven = fmt.Sprintf("of %d voters only this one's log was read: acknowledged writes that had not reached it are missing", voters)
	if known := max(m.commit, c.BaseIndex); c.Index > known {
		c.Unproven += fmt.Sprintf(", and the last %d entries, after raft index %d which it last recorded as committed, may hold writes that the cluster refused", c.Index-known, m.commit)
	}
}

// Coverage are the parts of the log.
func (m *member) Coverage() []segment.Coverage { return m.parts }

// Entries ends the log's own iteration, which goes to its end, at last.
func (m *member) Entries(ctx context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		if last < first {
			return
		}
		for e, err := range m.log.Entries(ctx, first) {
			if err != nil {
				yield(e, logDamage(err))
				return
			}
			if !yield(e, nil) || e.Index >= last {
				return
			}
		}
	}
}

// open goes through the log in a folder once.
func (m *member) open(ctx context.Context, dir string) error {
	log, err := walfile.Open(dir)
	if err != nil {
		return logDamage(err)
	}
	m.log = log
	s, err := log.Summary(ctx)
	var corrupt *walfile.CorruptError
	switch {
	case errors.As(err, &corrupt):
		m.damage = logDamage(corrupt)
	case err != nil:
		return logDamage(err)
	}
	m.commit, m.memberID = s.Commit, snapshot.ID(s.Identity.MemberID)
	if s.Torn != nil {
		m.notes = append(m.notes, "the log ends with a record that was not written to its end, as a crash leaves it: that one was not acknowledged")
	}
	m.cut(s)
	m.bytes, err = walfile.Size(dir)
	return err
}

// cut makes the parts of the log between its gaps.
func (m *member) cut(s walfile.Summary) {
	if s.FirstIndex == 0 {
		return
	}
	next := s.FirstIndex
	for _, g := range s.Gaps {
		if g.After >= next {
			m.parts = append(m.parts, segment.Coverage{FirstIndex: next, LastIndex: g.After})
		}
		next = g.Next
	}
	if next <= s.LastIndex {
		m.parts = append(m.parts, segment.Coverage{FirstIndex: next, LastIndex: s.LastIndex})
	}
}

// damageAt is the damage that ends the log; what lies behind it is not known.
func (m *member) damageAt(_, last uint64) error {
	if n := len(m.parts); m.damage == nil || n > 0 && last <= m.parts[n-1].LastIndex {
		return nil
	}
	return m.damage
}

// size is the range's part of all files: entries are taken to be alike.
func (m *member) size(first, last uint64) int64 {
	if len(m.parts) == 0 || last < first {
		return 0
	}
	all := m.parts[len(m.parts)-1].LastIndex - m.parts[0].FirstIndex + 1
	return int64(float64(m.bytes) * min(1, float64(last-first+1)/float64(all)))
}

// encrypted is no member's log.
func (m *member) encrypted(uint64, uint64) bool { return false }

// chain: only an archive has one.
func (m *member) chain(context.Context, uint64) (raftlog.Sum, error) {
	return raftlog.Sum{}, errNoChain
}

// Heartbeats are none: only an archive has any.
func (m *member) Heartbeats(context.Context, uint64, uint64, int) iter.Seq2[segment.Heartbeat, error] {
	return func(func(segment.Heartbeat, error) bool) {}
}

// logDamage makes what a member's log says of damage what all of requorum says.
func logDamage(err error) error {
	var corrupt *walfile.CorruptError
	if !errors.As(err, &corrupt) {
		return err
	}
	return &snapshot.DamagedError{Object: filepath.Join(corrupt.Dir, corrupt.Segment), Offset: corrupt.Offset, Err: corrupt.Err}
}
