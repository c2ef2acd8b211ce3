package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/supervisor"
)

// stop stops the member.
func (h *host) stop(ctx context.Context, _ Header, _ *none) (*Done, error) {
	ctx, cancel := withTimeout(ctx, "stop", time.Duration(h.Config.Member.StopTimeout))
	defer cancel()
	return &Done{}, h.Controller.Stop(ctx)
}

// start starts the member.
func (h *host) start(ctx context.Context, _ Header, a *startArguments) (*Done, error) {
	m := h.Config.Member
	if err := restore.CheckStartable(m.DataDir, m.WALDir); err != nil {
		return nil, err
	}
	if err := h.mayStart(a.Ended); err != nil {
		return nil, refused(Unstartable, err)
	}
	ctx, cancel := withTimeout(ctx, "start", time.Duration(m.StartTimeout))
	defer cancel()
	return &Done{}, h.Controller.Start(ctx)
}

func withTimeout(ctx context.Context, what string, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("after %v (%s-timeout)", d, what))
}

// writable proves that the member is stopped, and that its directories may be
// written to.
func (h *host) writable(ctx context.Context) error {
	if err := h.Controller.Stopped(ctx); err != nil {
		return fmt.Errorf("%w: stop it first", err)
	}
	return nil
}

// setAside sets the member's data aside: once for a run.
func (h *host) setAside(ctx context.Context, a Header, _ *none) (*Done, error) {
	if err := h.writable(ctx); err != nil {
		return nil, err
	}
	known := h.State.Aside(a.Run)
	switch {
	case known == nil:
		m := h.Config.Member
		plan, err := restore.PlanAside(restore.Aside{Member: m.Name, Run: a.Run, Time: time.Now(), DataDir: m.DataDir, WALDir: m.WALDir})
		if err != nil {
			return nil, err
		}
		h.State.Asides = append(h.State.Asides, SetAside{Aside: *plan})
		if err := h.State.save(); err != nil {
			return nil, err
		}
		known = h.State.Aside(a.Run)
	case known.Undoing:
		return nil, refused(BadRequest, errors.New("what this run set aside is being put back: finish the undo first"))
	case known.Done:
		return &Done{Aside: &known.Aside}, nil
	}
	if err := h.sameDirectories(known); err != nil {
		return nil, err
	}
	if err := known.Do(ctx); err != nil {
		return nil, err
	}
	known.Done = true
	return &Done{Aside: &known.Aside}, h.State.save()
}

// undo puts back what the run set aside: once for a run.
func (h *host) undo(ctx context.Context, a Header, _ *none) (*Done, error) {
	known := h.State.Aside(a.Run)
	if known == nil {
		if u := find(h.State.Undone, func(u Undone) bool { return u.Run == a.Run }); u != nil {
			return &Done{Undone: u}, nil
		}
		return nil, refused(NotFound, fmt.Errorf("nothing was set aside by run %s", a.Run))
	}
	if newest := h.State.Asides[len(h.State.Asides)-1]; newest.Run != a.Run {
		return nil, refused(BadRequest, fmt.Errorf("run %s set aside after this one: undo that first", newest.Run))
	}
	if err := h.sameDirectories(known); err != nil {
		return nil, err
	}
	if err := h.writable(ctx); err != nil {
		return nil, err
	}
	known.Undoing = true
	if err := h.State.save(); err != nil {
		return nil, err
	}
	u := Undone{Run: a.Run}
	var err error
	if u.Kept, err = known.Undo(ctx, time.Now()); err != nil {
		return nil, err
	}
	if known.Folder != "" {
		u.PutBack = known.DataDir
	}
	done, err := h.State.undone(u)
	return &Done{Undone: done}, err
}

// asideOf is what a run set aside whole, in the member's directories.
func (h *host) asideOf(run string) (*restore.Aside, error) {
	a := h.State.Aside(run)
	if a == nil || !a.Done || a.Undoing || len(a.Paths()) == 0 {
		return nil, refused(NotFound, fmt.Errorf("nothing is set aside by run %s", run))
	}
	return &a.Aside, h.sameDirectories(a)
}

// sameDirectories refuses to work outside the configured directories on the word
// of a state file from before they were changed.
func (h *host) sameDirectories(a *SetAside) error {
	m := h.Config.Member
	if a.DataDir != m.DataDir || a.WALDir != m.WALDir {
		return refused(BadRequest, fmt.Errorf("run %s set aside what lay in %s, and the cluster file says %s by now: write the old one there to go on", a.Run, a.DataDir, m.DataDir))
	}
	return nil
}

// observe says how the member is.
func (h *host) observe(ctx context.Context, _ *none, _ io.Writer) (any, error) {
	answer := &Member{Decisions: h.State.Decisions, Aside: h.State.Asides, Clients: h.clientStates(ctx)}
	if err := h.Controller.Stopped(ctx); err != nil {
		answer.NotStopped, answer.Runs = err.Error(), errors.Is(err, supervisor.ErrRuns)
	} else {
		answer.Stopped = true
	}
	for _, u := range h.State.Undone {
		answer.Undone = append(answer.Undone, u.Run)
	}
	if d := h.State.Decided(); d != nil {
		if b := h.State.BuiltBy(d.Run); b != nil && b.Done {
			answer.Built = b.Plan
		}
	}
	answer.Faults = h.faults(ctx)
	return answer, nil
}

// faults tries what a recovery needs of the host, without changing anything.
func (h *host) faults(ctx context.Context) (all []string) {
	m := h.Config.Member
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if err := h.Controller.Check(ctx); err != nil {
		add("the member (kind %s) cannot be stopped and started: %v", m.Kind, err)
	}
	for _, c := range h.Clients {
		if err := c.Check(ctx); err != nil {
			add("client %s (%s) cannot be stopped and started: %v", c.Config.Name, c.Config.Kind, err)
		}
	}
	if _, err := h.owner(); err != nil {
		add("%v", err)
	}
	return all
}
