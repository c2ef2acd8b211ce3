package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control/journal"
	"github.com/requorum/requorum/schedule/control/member"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// writable proves that the member is stopped, and that its directories may be
// written to. The run has the member from then on.
func (s *server) writable(ctx context.Context, run string) error {
	if manual := member.Manual(s.Controller); manual != nil {
		return manual
	}
	if _, err := s.Controller.Stopped(ctx); err != nil {
		return fmt.Errorf("%w: stop it first", err)
	}
	return s.hold(run)
}

// setAside sets the member's data aside: once for a run.
func (s *server) setAside(ctx context.Context, a *protocol.Action) (*protocol.Done, error) {
	if err := s.writable(ctx, a.Run); err != nil {
		return nil, err
	}
	known := s.Journal.Aside(a.Run)
	switch {
	case known == nil:
		plan, err := restore.PlanAside(restore.SetAsideRequest{
			Member: s.Config.Member.Name, DataDir: s.Config.Member.DataDir, WALDir: s.Config.Member.WALDir, Run: a.Run, Now: time.Now(),
		})
		if err != nil {
			return nil, err
		}
		if err := s.Journal.Add(journal.Entry{Run: a.Run, Step: journal.Asiding, Aside: plan}); err != nil {
			return nil, err
		}
		known = &journal.Aside{Aside: *plan}
	case known.Undoing:
		return nil, refused(protocol.BadRequest, errors.New("what this run set aside is being put back: finish the undo first"))
	case known.Done:
		return &protocol.Done{Aside: &known.Aside}, nil
	}
	if err := s.sameDirectories(known); err != nil {
		return nil, err
	}
	if err := known.Do(ctx); err != nil {
		return nil, err
	}
	if err := s.Journal.Add(journal.Entry{Run: a.Run, Step: journal.Asided}); err != nil {
		return nil, err
	}
	return &protocol.Done{Aside: &known.Aside}, nil
}

// undo puts back what the run set aside.
func (s *server) undo(ctx context.Context, a *protocol.Action) (*protocol.Done, error) {
	known := s.Journal.Aside(a.Run)
	if known == nil {
		return nil, refused(protocol.NotFound, fmt.Errorf("nothing is set aside by run %s: it was put back already, or never was", a.Run))
	}
	if newer := s.Journal.Asides(); newer[len(newer)-1].Run != a.Run {
		return nil, refused(protocol.BadRequest, fmt.Errorf("run %s set aside after this one: undo that first", newer[len(newer)-1].Run))
	}
	if err := s.sameDirectories(known); err != nil {
		return nil, err
	}
	if err := s.writable(ctx, a.Run); err != nil {
		return nil, err
	}
	if err := s.Journal.Add(journal.Entry{Run: a.Run, Step: journal.Undoing}); err != nil {
		return nil, err
	}
	kept, err := known.Undo(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	flags, warnings, err := s.flagsBack(a.Run)
	if err != nil {
		return nil, err
	}
	if err := s.Journal.Add(journal.Entry{Run: a.Run, Step: journal.Undone}); err != nil {
		return nil, err
	}
	return &protocol.Done{Aside: &known.Aside, Kept: kept, Flags: flags, Warnings: warnings}, nil
}

// sameDirectories refuses to work outside the configured directories on the word
// of a journal from before they were changed.
func (s *server) sameDirectories(a *journal.Aside) error {
	m := s.Config.Member
	if a.DataDir != m.DataDir || a.WALDir != m.WALDir {
		return refused(protocol.BadRequest, fmt.Errorf("run %s set aside what lay in %s, and the configured directory is %s by now: configure the old one to go on", a.Run, a.DataDir, m.DataDir))
	}
	return nil
}
