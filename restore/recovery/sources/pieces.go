package sources

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/walfile"
)

// pieces finds what a source names, and opens each log once.
type pieces struct {
	request *RebuildRequest
	logs    map[string]*walreplay.History // by owner
}

func newPieces(r *RebuildRequest) *pieces {
	return &pieces{request: r, logs: map[string]*walreplay.History{}}
}

func (p *pieces) close() error {
	var all error
	for owner, h := range p.logs {
		if err := h.Close(); err != nil {
			all = errors.Join(all, fmt.Errorf("close the log of %s: %w", owner, err))
		}
	}
	p.logs = nil
	return all
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
		h, err := p.log(ctx, piece.Owner)
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

// log is the history that has an owner's log: an archive's, or a survivor's with the databases
// that lie beside it.
func (p *pieces) log(ctx context.Context, owner string) (h *walreplay.History, err error) {
	if h := p.logs[owner]; h != nil {
		return h, nil
	}
	if t, archived := TimelineOf(owner); archived {
		h, err = p.archive(ctx, owner, t)
	} else {
		h, err = p.member(ctx, owner)
	}
	if err == nil {
		p.logs[owner] = h
	}
	return h, err
}

func (p *pieces) member(ctx context.Context, owner string) (*walreplay.History, error) {
	place, err := p.place(owner)
	if err != nil {
		return nil, err
	}
	h, err := walreplay.OpenMemberLog(ctx, place.DataDir, place.WALDir)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", owner, err)
	}
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
	case want.Path != "":
		base, err = p.database(ctx)
	case want.Backup != "":
		base, err = p.beside(ctx, want.Backup, "that it has full snapshot "+want.Backup)
	default: // the database before the first entry
		base, err = p.beside(ctx, "", "that it begins with the cluster's first entry")
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
	if h := p.logs[want.Owner]; h != nil {
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

// beside is a database that comes with its owner's log.
func (p *pieces) beside(ctx context.Context, id, what string) (*walreplay.Base, error) {
	owner := p.request.Source.Base.Owner
	h, err := p.log(ctx, owner)
	if err != nil {
		return nil, err
	}
	if b := baseOf(h, id); b != nil {
		return b, nil
	}
	return nil, &OtherError{Object: "the log of " + owner, What: what, Got: false, Want: true}
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

// archive is a timeline of the first repository that has all that the source reads of it: of the one
// that the source names before the others, which may be copies of it.
func (p *pieces) archive(ctx context.Context, owner string, t repository.TimelineID) (*walreplay.History, error) {
	order, name := slices.Clone(p.request.Repositories), ""
	if b := p.request.Source.Base; b.Owner == owner {
		name = b.Repository
	}
	slices.SortStableFunc(order, func(a, b *repository.Repository) int { return First(a.String() == name, b.String() == name) })
	reasons := []error{errors.New("no repository is given")}
	for i, repo := range order {
		h, err := p.stored(ctx, repo, owner, t)
		if err == nil {
			return h, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		reasons = append(reasons[:i], err)
	}
	return nil, fmt.Errorf("the source needs timeline %s: %w", t, errors.Join(reasons...))
}

// stored is a timeline of a repository, if it has all that the source reads of it.
func (p *pieces) stored(ctx context.Context, repo *repository.Repository, owner string, t repository.TimelineID) (*walreplay.History, error) {
	all, err := walreplay.ReadInventory(ctx, repo, p.request.Identities...)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", repo, err)
	}
	if !slices.ContainsFunc(all.Timelines, func(o repository.Timeline) bool { return o.ID == t }) {
		return nil, fmt.Errorf("%s has no such timeline", repo)
	}
	h, err := all.History(ctx, t)
	if err != nil {
		return nil, err
	}
	s := p.request.Source
	if s.Base.Owner == owner && baseOf(h, s.Base.Backup) == nil {
		return nil, fmt.Errorf("%s has no full snapshot %s", h.Name, s.Base.Backup)
	}
	for _, piece := range s.Log {
		if piece.Owner == owner && !h.Holds(piece.First, piece.Last) {
			return nil, fmt.Errorf("%s does not hold all of the entries %d to %d", h.Name, piece.First, piece.Last)
		}
	}
	return h, nil
}
