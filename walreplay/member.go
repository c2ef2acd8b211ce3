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
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

// member is a stopped member's data directory.
type member struct {
	dir, walDir string // walDir is empty where the log is inside of dir
	log         *walfile.Log
	summary     walfile.Summary
	parts       []segment.Coverage
	bytes       int64 // of all files of the log
	damage      error // why the log ends before the member ended it; nil if it does not
	notes       []string
	unshown     bool // see IsUnshown
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
	if err != nil {
		return h, err
	}
	m := h.log.(*member)
	if len(h.bases) == 0 {
		return nil, fmt.Errorf("%s has no database to begin from, and its log does not begin with the cluster's first entry; %s: %w",
			m.dir, strings.Join(append(m.notes, "a backup is needed"), "; "), snapshot.ErrNoBackup)
	}
	h.bases, err = m.relate(ctx, h.bases)
	return h, err
}

// relate compares the databases with the log, and returns those that could be read.
func (m *member) relate(ctx context.Context, bases []*Base) (read []*Base, damaged error) {
	for _, b := range bases {
		if b.Image == nil {
			read = append(read, b)
			continue
		}
		r, err := RelateFile(ctx, b.Name, m.log, m.summary)
		var page *boltfile.PageError
		switch {
		case errors.As(err, &page):
			damaged = &snapshot.DamagedError{Object: b.Name, Offset: page.Offset, Err: err}
			m.notes = append(m.notes, fmt.Sprintf("%s is not used: %v", b.Name, err))
			continue
		case m.damage != nil && err != nil && ctx.Err() == nil:
			// The log could not be read up to the database; a replay fails there too.
		case err != nil:
			return nil, err
		case r.Kind == Unrelated:
			return nil, &snapshot.DamagedError{Object: m.dir, Offset: -1, Err: fmt.Errorf("%s and the log are not of one history: %s; %s", b.Name, r.Reason, AdviceUnrelated)}
		case r.Kind == NotShown && m.damage == nil:
			m.doubt("nothing shows that %s and the log are of one history: %s", b.Name, r.Reason)
		}
		read = append(read, b)
	}
	if len(read) > 0 {
		damaged = nil
	}
	return read, damaged
}

func (m *member) doubt(format string, args ...any) {
	m.notes, m.unshown = append(m.notes, "unproven: "+fmt.Sprintf(format, args...)), true
}

// IsUnshown reports whether nothing shows that the log of a data directory is whole and of one
// history with the database. The notes of a point say why.
func (h *History) IsUnshown() bool {
	m, ok := h.log.(*member)
	return ok && m.unshown
}

// CheckDataDir refuses the folder member of a data directory, and names the data directory,
// which is meant. An empty dir is none.
func CheckDataDir(dir string) error {
	isFolder := func(name string) bool {
		info, err := safedir.Stat(filepath.Join(dir, name))
		return err == nil && info.IsDir()
	}
	if dir == "" || isFolder("member") || !isFolder("snap") {
		return nil
	}
	path, err := filepath.Abs(dir)
	if err == nil && filepath.Base(path) == "member" {
		err = fmt.Errorf("%s is inside of the data directory: name %s", path, filepath.Dir(path))
	}
	return err
}

// LocalMember is the member of a data directory, which may be running: its log says
// which one it is. walDir is empty where the log is in dir.
func LocalMember(dir, walDir string) (*snapshot.LocalMember, error) {
	if err := CheckDataDir(dir); err != nil {
		return nil, err
	}
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
	for _, e := range list {
		if e.Name() != "db" && !strings.HasSuffix(e.Name(), ".snap.db") {
			continue
		}
		b, err := OpenBase(ctx, filepath.Join(folder, e.Name()))
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, snapshot.ErrTooOld) {
				return nil, err
			}
			m.notes = append(m.notes, fmt.Sprintf("%s is not used: %v", filepath.Join(folder, e.Name()), err))
			continue
		}
		bases = append(bases, b)
	}
	empty, err := m.beginsEmpty(ctx)
	if err != nil {
		return nil, err
	}
	if empty {
		bases = append(bases, &Base{Name: "the empty database before the first entry", Facts: snapshot.Facts{Revision: 1}})
	}
	owner := snapshot.ID(m.summary.Identity.MemberID)
	for _, b := range bases {
		if len(b.Facts.Members) > 0 && !slices.ContainsFunc(b.Facts.Members, func(o snapshot.Member) bool { return o.ID == owner }) {
			m.notes = append(m.notes, fmt.Sprintf("the log is of member %s, which %s does not know: it was removed from the cluster, or the log is another member's", owner, b.Name))
		}
	}
	slices.SortStableFunc(bases, func(a, b *Base) int { return cmp.Compare(a.Index(), b.Index()) })
	return bases, nil
}

// beginsEmpty reports a log that begins with a cluster's first entry, and so can be
// replayed onto nothing.
func (m *member) beginsEmpty(ctx context.Context) (bool, error) {
	if len(m.parts) == 0 || m.parts[0].FirstIndex != 1 {
		return false, nil
	}
	at, err := RestoredAt(ctx, m.log, m.summary)
	if at > 0 {
		m.notes = append(m.notes, "the log begins with its first entry, but of a cluster that was itself restored: the restored snapshot is not in the log")
	}
	return at == 0, logDamage(err)
}

// snapIndex is the index in the name of a .snap file: term and index in hex.
func snapIndex(name string) (uint64, bool) {
	var term, index uint64
	n, err := fmt.Sscanf(name, "%016x-%016x", &term, &index)
	return index, n == 2 && err == nil
}

// OpenBase is a member's database file, opened for reading only, as an image to
// begin from. Its facts are read, and its SHA-256 compared: it has none, unless somebody put a
// snapshot in its place, or it was cut to a length that looks like one.
func OpenBase(ctx context.Context, path string) (*Base, error) {
	f, err := snapshot.OpenFile(path)
	if err != nil {
		return nil, err
	}
	if err := f.CheckHash(ctx); err != nil {
		return nil, err
	}
	facts, err := f.Facts(ctx)
	if err != nil {
		return nil, err
	}
	return &Base{Name: path, ID: filepath.Base(path), Image: f, Facts: facts}, nil
}

// complete adds to a recipe what is a data directory's own.
func (m *member) complete(c *Recipe, f snapshot.Facts) {
	c.DataDir, c.WALDir = m.dir, m.walDir
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
	if known := max(m.summary.Commit, c.BaseIndex); c.Index > known {
		c.Unproven += fmt.Sprintf(", and the last %d entries, after raft index %d which it last recorded as committed, may hold writes that the cluster refused", c.Index-known, m.summary.Commit)
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
	m.summary = s
	m.cut()
	if m.damage == nil {
		end, err := JudgeEnd(ctx, m.dir, log, s)
		switch {
		case err != nil:
			return err
		case end.Cut != "":
			m.damage = &snapshot.DamagedError{Object: end.File, Offset: -1, Err: errors.New(end.Cut)}
		case end.Torn != "":
			m.notes = append(m.notes, end.Torn)
		}
		if end.Unshown != "" {
			m.doubt("%s", end.Unshown)
		}
		missing, _, err := JudgeStart(m.dir, log, s)
		if err != nil {
			return err
		}
		if missing != "" {
			m.notes = append(m.notes, missing)
		}
	}
	m.bytes, err = walfile.Size(dir)
	return err
}

// cut makes the parts of the log between its gaps.
func (m *member) cut() {
	s := m.summary
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

// chain: only an archive has one.
func (m *member) chain(context.Context, uint64) (raftlog.Sum, error) {
	return raftlog.Sum{}, errNoChain
}

// logDamage makes what a member's log says of damage what all of requorum says.
func logDamage(err error) error {
	var corrupt *walfile.CorruptError
	if !errors.As(err, &corrupt) {
		return err
	}
	return &snapshot.DamagedError{Object: filepath.Join(corrupt.Dir, corrupt.Segment), Offset: corrupt.Offset, Err: corrupt.Err}
}
