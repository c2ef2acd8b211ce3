package sources

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/walfile"
)

// pieces finds what a source names, and opens each thing once.
type pieces struct {
	request *RebuildRequest
	members map[string]*walreplay.History // logs of survivors, by owner
	repos   []*storedLogs
}

func (p *pieces) close() error {
	var all error
	for owner, h := range p.members {
		if err := h.Close(); err != nil {
			all = errors.Join(all, fmt.Errorf("close the log of %s: %w", owner, err))
		}
	}
	p.members = nil
	return all
}

func newPieces(r *RebuildRequest) *pieces {
	p := &pieces{request: r, members: map[string]*walreplay.History{}}
	for _, repo := range r.Repositories {
		p.repos = append(p.repos, &storedLogs{repo: repo, archives: map[repository.TimelineID]*walreplay.History{}})
	}
	return p
}

// join puts the source together.
func (p *pieces) join(ctx context.Context) (*walreplay.History, error) {
	s := &p.request.Source
	end := s.Base.Index
	if n := len(s.Log); n > 0 {
		end = s.Log[n-1].Last
	}
	if s.Index != end {
		return nil, fmt.Errorf("the source's last entry is said to be %d, and its pieces end with %d: it is no source that requorum made", s.Index, end)
	}
	var parts []walreplay.Part
	for _, piece := range s.Log {
		h, err := p.log(ctx, piece)
		if err != nil {
			return nil, err
		}
		parts = append(parts, walreplay.Part{Owner: piece.Owner, History: h, First: piece.First, Last: piece.Last})
	}
	base, err := p.base(ctx)
	if err != nil {
		return nil, err
	}
	return walreplay.Join(ctx, "the state of "+strings.Join(s.Owners(), " + "), base, parts)
}

// log is the history that has a piece.
func (p *pieces) log(ctx context.Context, piece Piece) (*walreplay.History, error) {
	if t, ok := TimelineOf(piece.Owner); ok {
		return p.archive(ctx, t, p.repositoryOf(piece.Owner), func(h *walreplay.History) error {
			if !h.Holds(piece.First, piece.Last) {
				return fmt.Errorf("%s does not hold all of the entries %d to %d", h.Name, piece.First, piece.Last)
			}
			return nil
		})
	}
	return p.member(ctx, piece.Owner)
}

// member is a survivor's log, with the databases that lie beside it.
func (p *pieces) member(ctx context.Context, owner string) (*walreplay.History, error) {
	if h := p.members[owner]; h != nil {
		return h, nil
	}
	place, err := p.place(owner)
	if err != nil {
		return nil, err
	}
	h, err := walreplay.OpenMemberLog(ctx, place.DataDir, place.WALDir)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", owner, err)
	}
	p.members[owner] = h
	return h, nil
}

func (p *pieces) place(owner string) (Directories, error) {
	place, ok := p.request.Places[owner]
	if !ok || place.DataDir == "" {
		return Directories{}, fmt.Errorf("the source needs data of %s, and nothing says where that lies here", owner)
	}
	return place, nil
}

// base opens the image, and holds it against what the plan says of it.
func (p *pieces) base(ctx context.Context) (*walreplay.Base, error) {
	want := &p.request.Source.Base
	var base *walreplay.Base
	var err error
	switch {
	case want.Backup != "":
		base, err = p.backup(ctx)
	case want.Path != "":
		base, err = p.database(ctx)
	default:
		base, err = p.empty(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		what      string
		got, want any
		known     bool
	}{
		{"the raft index", base.Index(), want.Index, true},
		{"the raft term", base.Facts.RaftTerm, want.Term, want.Term != 0},
		{"the revision", base.Facts.Revision, want.Revision, want.Revision != 0},
	} {
		if c.known && c.got != c.want {
			return nil, &OtherError{Object: base.Name, What: c.what, Got: c.got, Want: c.want}
		}
	}
	return base, nil
}

// database is a survivor's file. Where its log is open too it is that history's
// own: one goes on from the other.
func (p *pieces) database(ctx context.Context) (*walreplay.Base, error) {
	want := &p.request.Source.Base
	file := filepath.Base(want.Path)
	if h := p.members[want.Owner]; h != nil {
		if b := baseOf(h, file); b != nil {
			return b, nil
		}
	}
	place, err := p.place(want.Owner)
	if err != nil {
		return nil, err
	}
	b, err := walreplay.OpenBase(ctx, filepath.Join(place.DataDir, "member", "snap", file))
	if err != nil {
		return nil, fmt.Errorf("open the database of %s: %w", want.Owner, err)
	}
	return b, nil
}

// empty is the database before the first entry, of a log that begins with it.
func (p *pieces) empty(ctx context.Context) (*walreplay.Base, error) {
	owner := p.request.Source.Base.Owner
	h, err := p.member(ctx, owner)
	if err != nil {
		return nil, err
	}
	if b := baseOf(h, ""); b != nil {
		return b, nil
	}
	return nil, &OtherError{Object: "the log of " + owner, What: "that it begins with the cluster's first entry", Got: false, Want: true}
}

func baseOf(h *walreplay.History, id string) *walreplay.Base {
	for _, b := range h.Bases() {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// In is where a member's database lies in its directories; empty for another base.
func (b *Base) In(place Directories) string {
	if b.Path == "" {
		return ""
	}
	return filepath.Join(place.DataDir, "member", "snap", filepath.Base(b.Path))
}

// Needed are the files of a member's data that a source reads, of those that are there: the
// database that it begins from, and the log from the entry on where that meets it. A log's files are
// needed to the last: later records overwrite earlier ones.
func (s *Source) Needed(owner string, names []string) (needed []string) {
	if s.Base.Owner == owner && s.Base.Path != "" {
		needed = append(needed, "member/snap/"+filepath.Base(s.Base.Path))
	}
	for _, piece := range s.Log {
		if piece.Owner != owner {
			continue
		}
		first := piece.First
		if first > 1 && first != s.Base.Index {
			first-- // where it meets what comes before
		}
		for _, folder := range []string{"wal/", "member/wal/"} {
			var logs []string
			for _, name := range names {
				if log, is := strings.CutPrefix(name, folder); is {
					logs = append(logs, log)
				}
			}
			for _, log := range walfile.From(logs, first) {
				needed = append(needed, folder+log)
			}
			if len(logs) > 0 {
				break
			}
		}
	}
	return needed
}

// storedLogs is a repository that was looked into.
type storedLogs struct {
	repo     *repository.Repository
	catalog  *snapshot.Catalog
	err      error // why it could not be
	archives map[repository.TimelineID]*walreplay.History
}

// TimelineOf reads the name that a survey gives to an archive: a timeline, and
// with several repositories a number behind it.
func TimelineOf(owner string) (t repository.TimelineID, ok bool) {
	name, ok := strings.CutPrefix(owner, ArchivePrefix)
	if !ok {
		return t, false
	}
	name, _, _ = strings.Cut(name, "@")
	t, err := repository.ParseTimelineID(name)
	return t, err == nil
}

// repositoryOf is the one that the source names for an archive; empty where it
// names none.
func (p *pieces) repositoryOf(owner string) string {
	if b := &p.request.Source.Base; b.Owner == owner {
		return b.Repository
	}
	return ""
}

// backup is a full snapshot of a repository.
func (p *pieces) backup(ctx context.Context) (*walreplay.Base, error) {
	want := &p.request.Source.Base
	h, err := p.archive(ctx, want.Timeline, want.Repository, func(h *walreplay.History) error {
		if baseOf(h, want.Backup) == nil {
			return fmt.Errorf("%s has no full snapshot %s", h.Name, want.Backup)
		}
		return p.leads(h)
	})
	if err != nil {
		return nil, fmt.Errorf("find backup %s: %w", want.Backup, err)
	}
	return baseOf(h, want.Backup), nil
}

// leads keeps a backup and the log of its own timeline together: in the same
// repository.
func (p *pieces) leads(h *walreplay.History) error {
	s := &p.request.Source
	if len(s.Log) == 0 || s.Log[0].Owner != s.Base.Owner || h.Holds(s.Log[0].First, s.Log[0].Last) {
		return nil
	}
	return fmt.Errorf("%s does not hold all of the entries %d to %d", h.Name, s.Log[0].First, s.Log[0].Last)
}

// archive is a timeline of the first repository that has what is wanted of it:
// the one of the name before the others, which may be copies of it.
func (p *pieces) archive(ctx context.Context, t repository.TimelineID, name string, check func(*walreplay.History) error) (*walreplay.History, error) {
	order := slices.Clone(p.repos)
	slices.SortStableFunc(order, func(a, b *storedLogs) int { return First(a.repo.String() == name, b.repo.String() == name) })
	var reasons []error
	for _, s := range order {
		h, err := s.archive(ctx, t, p.request)
		if err == nil {
			err = check(h)
		}
		if err == nil {
			return h, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		reasons = append(reasons, err)
	}
	where := ""
	if name != "" {
		where = " in " + name
	}
	if len(reasons) == 0 {
		reasons = append(reasons, errors.New("no repository is given"))
	}
	return nil, fmt.Errorf("the source needs timeline %s%s: %w", t, where, errors.Join(reasons...))
}

// archive opens a timeline once. What failed is not tried again.
func (s *storedLogs) archive(ctx context.Context, t repository.TimelineID, r *RebuildRequest) (*walreplay.History, error) {
	if s.catalog == nil && s.err == nil {
		s.catalog, s.err = snapshot.ReadCatalog(ctx, s.repo)
	}
	if s.err != nil {
		return nil, fmt.Errorf("read %s: %w", s.repo, s.err)
	}
	if h := s.archives[t]; h != nil {
		return h, nil
	}
	if !slices.ContainsFunc(s.catalog.Timelines, func(o repository.Timeline) bool { return o.ID == t }) {
		return nil, fmt.Errorf("%s has no such timeline", s.repo)
	}
	h, err := walreplay.NewInventory(s.repo, s.catalog, r.Identities...).History(ctx, t)
	if err == nil {
		s.archives[t] = h
	}
	return h, err
}
