package rebuild

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/walreplay"
)

// pieces finds what a source names, and opens each thing once.
type pieces struct {
	request *Request
	members map[string]*walreplay.History // logs of survivors, by owner
	repos   []*stored
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
	for _, piece := range withWitness(s) {
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
	return walreplay.Join(ctx, nameOf(s), base, parts)
}

// withWitness are the pieces, and before them the entry that the database ends
// with where the database does not tell its term, as etcd 3.4 writes none, and
// its owner's log is not what goes on from it: that log shows that the other one
// does.
func withWitness(s *recovery.Source) []recovery.Piece {
	if len(s.Log) == 0 || s.Base.Index == 0 || s.Base.Term != 0 || s.Log[0].Owner == s.Base.Owner {
		return s.Log
	}
	return slices.Insert(slices.Clone(s.Log), 0, recovery.Piece{Owner: s.Base.Owner, First: s.Base.Index, Last: s.Base.Index})
}

// nameOf is how messages call what was put together.
func nameOf(s *recovery.Source) string {
	text := "the state of " + s.Base.Owner
	var owners []string
	for _, piece := range s.Log {
		if piece.Owner != s.Base.Owner && !slices.Contains(owners, piece.Owner) {
			owners = append(owners, piece.Owner)
			text += " + " + piece.Owner
		}
	}
	return text
}

// log is the history that has a piece.
func (p *pieces) log(ctx context.Context, piece recovery.Piece) (*walreplay.History, error) {
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

func (p *pieces) place(owner string) (Place, error) {
	place, ok := p.request.Places[owner]
	if !ok || place.DataDir == "" {
		return Place{}, fmt.Errorf("the source needs data of %s, and nothing says where that lies here", owner)
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
