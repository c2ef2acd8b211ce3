package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/merge"
)

// firstMerge is when merging is looked at first: soon, since an archiver may be
// restarted more often than once an hour, and not at once, when it has better
// things to do.
const firstMerge = time.Minute

// merging calls the merger now and then, beside the archiver.
type merging struct {
	*archiving
	merger     *merge.Merger
	timeline   repository.TimelineID
	toldDenied bool
}

func (a *archiving) newMerging() *merging { return &merging{archiving: a} }

// run merges until ctx ends, or nothing can be merged for want of an identity.
func (m *merging) run(ctx context.Context) {
	wait := firstMerge
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = merge.DefaultEvery
		var missing *merge.NoIdentityError
		switch err := m.step(ctx); {
		case errors.As(err, &missing):
			m.report.note(fmt.Sprintf("the log is archived and not merged: %v", err))
			return
		case err != nil && ctx.Err() == nil:
			m.report.note(fmt.Sprintf("merging failed, and is tried again in an hour: %v", err))
		}
	}
}

// step merges what is due now.
func (m *merging) step(ctx context.Context) error {
	state := m.archiver.State()
	if state.Timeline == (repository.TimelineID{}) {
		return nil // it has not found it yet
	}
	if m.merger == nil || m.timeline != state.Timeline {
		repo, err := repository.Open(ctx, m.config.Sink)
		if err != nil {
			return err
		}
		m.timeline = state.Timeline
		m.merger = merge.New(merge.Config{
			Repo: repo, Timeline: m.timeline, Holder: state.Member, Identities: m.keys,
			Codec: m.config.Codec, Tool: m.config.Tool, Logger: m.logger(),
		})
	}
	r, err := m.merger.Merge(ctx)
	if r.Worked {
		m.report.merge(r, err)
	}
	if r.Denied != nil && !m.toldDenied {
		m.toldDenied = true
		m.report.note(fmt.Sprintf("merged segments cannot replace the small ones, so the repository grows: %v; allow deleting below <timeline>/l0 and claims, see docs/s3.md", r.Denied))
	}
	return err
}
