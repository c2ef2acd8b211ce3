package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/restore/recovery/supervisor"
)

func (h *host) place() *supervisor.FlagFile {
	return supervisor.NewFlagFile(h.Config.Member, h.Config.StateDir)
}

// flags brings etcd's flags in line, of a member that is stopped: to change them
// while it runs would restart it. What cannot be changed from here is an answer too:
// the member starts from its data, whatever they say.
func (h *host) flags(ctx context.Context, a Header, wanted *supervisor.Flags) (*Done, error) {
	if err := wanted.Check(); err != nil {
		return nil, refused(BadRequest, err)
	}
	if name := h.Config.Member.Name; wanted.Name != name {
		return nil, refused(BadRequest, fmt.Errorf("the flags are of member %q, and this host has %q", wanted.Name, name))
	}
	if err := h.writable(ctx, a.Run); err != nil {
		return nil, err
	}
	edit, err := h.place().Plan(ctx, *wanted, a.Run)
	var hand *supervisor.ByHandError
	if errors.As(err, &hand) {
		found := h.place().Read(ctx)
		return &Done{Flags: &FlagsDone{In: hand.In, Changes: found.Flags.Changes(*wanted), ByHand: hand.Why}}, nil
	}
	if err != nil {
		return nil, err
	}
	known := h.Journal.Flags(a.Run)
	done := &FlagsDone{In: edit.Path, Changes: edit.Changes}
	if known != nil { // an earlier request of the run
		done.Kept, done.Changes = known.Kept, supervisor.MergeFlags(known.Changes, edit.Changes)
	}
	if len(edit.Changes) == 0 {
		return &Done{Flags: done}, nil
	}
	e := flagsRecord{Path: edit.Path, Kept: edit.Kept, Before: supervisor.Sum(edit.Before), After: supervisor.Sum(edit.After), Changes: done.Changes}
	if known != nil { // what counts is the text from before the run
		if e.Before == known.After {
			e.Before = known.Before
		} else if e.Before != known.Before {
			return nil, fmt.Errorf("%s was changed since this run changed it: look at it, and at %s, which it was before", edit.Path, known.Kept)
		}
	}
	if err := h.Journal.Add(record{Run: a.Run, Step: stepFlags, Flags: &e}); err != nil {
		return nil, err
	}
	if err := edit.Apply(); err != nil {
		return nil, err
	}
	done.Kept = edit.Kept
	return &Done{Flags: done}, nil
}

// flagsBack gives the file of flags the text back that it had before a run. What
// somebody has changed since is left, with a warning.
func (h *host) flagsBack(run string) (done *FlagsDone, warnings []string, err error) {
	known := h.Journal.Flags(run)
	if known == nil {
		return nil, nil, nil
	}
	back := false
	if known.Path == h.place().Path() {
		if back, err = supervisor.PutBack(known.Path, known.Kept, known.Before, known.After); err != nil {
			return nil, nil, err
		}
	}
	if back {
		done = &FlagsDone{In: known.Path, Kept: known.Kept}
	} else {
		warnings = append(warnings, fmt.Sprintf("%s, or the old text of it, was changed or moved since the run changed etcd's flags there, and is left so: what it was before is in %s", known.Path, known.Kept))
	}
	return done, warnings, h.Journal.Add(record{Run: run, Step: stepFlagsUndone})
}
