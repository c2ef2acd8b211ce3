package control

import (
	"context"
	"fmt"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control/journal"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// stop stops the member, and gives it to the run.
func (s *server) stop(ctx context.Context, a *protocol.Action) (*protocol.Done, error) {
	if err := s.hold(a.Run); err != nil {
		return nil, err
	}
	ctx, cancel := withTimeout(ctx, "stop", time.Duration(s.Config.Member.StopTimeout))
	defer cancel()
	proof, err := s.Controller.Stop(ctx)
	if err != nil {
		return nil, err
	}
	return &protocol.Done{Stopped: proof}, nil
}

// start starts the member, after which the run no longer has it.
func (s *server) start(ctx context.Context, a *protocol.Action) (*protocol.Done, error) {
	m := s.Config.Member
	if err := restore.CheckStartable(m.DataDir, m.WALDir); err != nil {
		return nil, err
	}
	warnings, err := s.mayStart(ctx)
	if err != nil {
		return nil, refused(protocol.Unstartable, err)
	}
	ctx, cancel := withTimeout(ctx, "start", time.Duration(m.StartTimeout))
	defer cancel()
	if err := s.Controller.Start(ctx); err != nil {
		return nil, err
	}
	if holder := s.Journal.Run(); holder != "" {
		if err := s.Journal.Add(journal.Entry{Run: holder, Step: journal.Released}); err != nil {
			return nil, err
		}
	}
	return &protocol.Done{Warnings: warnings}, nil
}

func withTimeout(ctx context.Context, what string, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("after %v (%s-timeout)", d, what))
}
