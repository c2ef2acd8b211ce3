package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control/journal"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// rebuild hands over to the hook.
func (s *server) rebuild(ctx context.Context, a *protocol.Action) (*protocol.Done, error) {
	if s.Hooks.Rebuild == nil {
		return nil, refused(protocol.NotOffered, errors.New("this process cannot rebuild a member"))
	}
	if err := s.writable(ctx, a.Run); err != nil {
		return nil, err
	}
	known := s.Journal.Aside(a.Run)
	if known == nil || !known.Done || known.Undoing {
		return nil, refused(protocol.BadRequest, fmt.Errorf("run %s has not set the old data aside: do that first", a.Run))
	}
	if err := s.sameDirectories(known); err != nil {
		return nil, err
	}
	add := func(step journal.Step) func(journal.Built) error {
		return func(b journal.Built) error {
			return s.Journal.Add(journal.Entry{Run: a.Run, Step: step, Built: &b})
		}
	}
	m := s.Config.Member
	result, err := s.Hooks.Rebuild(ctx, Rebuild{
		Run: a.Run, Member: m.Name, DataDir: m.DataDir, WALDir: m.WALDir, Plan: a.Plan, Source: a.Source,
		Aside: s.asideOf, Built: s.Journal.Built(a.Run), Building: add(journal.Building), Superseded: add(journal.Superseded),
	})
	if err != nil {
		return nil, err
	}
	raw, err := asJSON(result)
	return &protocol.Done{Result: raw}, err
}

// asideOf is what a run set aside whole, in the directories that are configured.
func (s *server) asideOf(run string) *restore.Aside {
	a := s.Journal.Aside(run)
	if a == nil || !a.Done || a.Undoing || s.sameDirectories(a) != nil {
		return nil
	}
	return &a.Aside
}
