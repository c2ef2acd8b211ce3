package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/flagfile"
	"github.com/requorum/requorum/schedule/control/journal"
	"github.com/requorum/requorum/schedule/control/protocol"
)

func (s *server) place() *flagfile.Place { return flagfile.New(s.Config.Member, s.Config.StateDir) }

// FlagWarnings says why etcd's flags could not be brought in line on this host, where
// its configuration lets one think that they could.
func FlagWarnings(ctx context.Context, cfg *config.Config) []string {
	m := cfg.Member
	if m.Kind != config.StaticPod && (m.Kind != config.Systemd || m.Systemd.EnvironmentFile == "") {
		return nil
	}
	found := flagfile.New(m, cfg.StateDir).Read(ctx)
	if found.ByHand == "" {
		return nil
	}
	return []string{fmt.Sprintf("after a recovery, etcd's flags in %s would have to be changed by hand: %s", found.In, found.ByHand)}
}

// flags brings etcd's flags in line, of a member that is stopped: to change them
// while it runs would restart it. What cannot be changed from here is an answer too:
// the member starts from its data, whatever they say.
func (s *server) flags(ctx context.Context, a *protocol.Action) (*protocol.Done, error) {
	if a.Flags == nil {
		return nil, refused(protocol.BadRequest, errors.New("flags needs the flags"))
	}
	if err := a.Flags.Check(); err != nil {
		return nil, refused(protocol.BadRequest, err)
	}
	if name := s.Config.Member.Name; a.Flags.Name != name {
		return nil, refused(protocol.BadRequest, fmt.Errorf("the flags are of member %q, and this host has %q", a.Flags.Name, name))
	}
	if err := s.writable(ctx, a.Run); err != nil {
		return nil, err
	}
	edit, err := s.place().Plan(ctx, *a.Flags, a.Run)
	var hand *flagfile.ByHandError
	if errors.As(err, &hand) {
		found := s.place().Read(ctx)
		return &protocol.Done{Flags: &protocol.FlagsDone{In: hand.In, Changes: found.Flags.Changes(*a.Flags), ByHand: hand.Why}}, nil
	}
	if err != nil {
		return nil, err
	}
	known := s.Journal.Flags(a.Run)
	done := &protocol.FlagsDone{In: edit.Path, Changes: edit.Changes}
	if known != nil { // an earlier request of the run
		done.Kept, done.Changes = known.Kept, flagfile.Merge(known.Changes, edit.Changes)
	}
	if len(edit.Changes) == 0 {
		return &protocol.Done{Flags: done}, nil
	}
	e := journal.Flags{Path: edit.Path, Kept: edit.Kept, Before: flagfile.Sum(edit.Before), After: flagfile.Sum(edit.After), Changes: done.Changes}
	if known != nil { // what counts is the text from before the run
		if e.Before == known.After {
			e.Before = known.Before
		} else if e.Before != known.Before {
			return nil, fmt.Errorf("%s was changed since this run changed it: look at it, and at %s, which it was before", edit.Path, known.Kept)
		}
	}
	if err := s.Journal.Add(journal.Entry{Run: a.Run, Step: journal.Flagging, Flags: &e}); err != nil {
		return nil, err
	}
	if err := edit.Apply(); err != nil {
		return nil, err
	}
	done.Kept = edit.Kept
	return &protocol.Done{Flags: done}, nil
}

// flagsBack gives the file of flags the text back that it had before a run. What
// somebody has changed since is left, with a warning.
func (s *server) flagsBack(run string) (done *protocol.FlagsDone, warnings []string, err error) {
	known := s.Journal.Flags(run)
	if known == nil {
		return nil, nil, nil
	}
	back := false
	if known.Path == s.place().Path() {
		if back, err = flagfile.PutBack(known.Path, known.Kept, known.Before, known.After); err != nil {
			return nil, nil, err
		}
	}
	if back {
		done = &protocol.FlagsDone{In: known.Path, Kept: known.Kept}
	} else {
		warnings = append(warnings, fmt.Sprintf("%s, or the old text of it, was changed or moved since the run changed etcd's flags there, and is left so: what it was before is in %s", known.Path, known.Kept))
	}
	return done, warnings, s.Journal.Add(journal.Entry{Run: run, Step: journal.Unflagged})
}
