package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// bodyReaders is how many segments are read at once; a merged segment's worth
// of them is in memory anyway.
const bodyReaders = 8

// mergeLevel makes the segments of one level that are due.
func (m *Merger) mergeLevel(ctx context.Context, all *listing, rule rule, r *Report) error {
	items, err := m.read(ctx, all.sources(rule), r)
	if err != nil {
		return err
	}
	runs := m.plan(all, rule, items)
	for len(runs) > 0 {
		run := runs[0]
		runs = runs[1:]
		unread, err := m.mergeRun(ctx, rule.level, run, r)
		switch {
		case unread >= 0: // what is around it is merged without it
			runs = append(parts(run, unread, rule.least), runs...)
		case err != nil && unusable(err):
			r.Damaged = append(r.Damaged, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// parts are what is left of a run without one of its segments.
func parts(run []item, without, least int) [][]item {
	var left [][]item
	for _, part := range [][]item{run[:without], run[without+1:]} {
		if len(part) >= least {
			left = append(left, part)
		}
	}
	return left
}

// mergeRun stores one merged segment and reads it back. What it was made of
// stays. unread is the position of a segment that cannot be used, -1 where that
// isn't it.
func (m *Merger) mergeRun(ctx context.Context, level int, run []item, r *Report) (unread int, err error) {
	if slices.ContainsFunc(run, func(i item) bool { return i.encrypted }) && len(m.Codec.Recipients) == 0 {
		return -1, fmt.Errorf("log segments from index %d on are encrypted; to merge them, give the recipients as well: nothing encrypted is stored in plain text again", run[0].First)
	}
	batch, meta, unread, err := m.readRun(ctx, run, r)
	if unread >= 0 || err != nil {
		return unread, err
	}
	o := segment.Options{Codec: m.Codec, Tool: m.Tool, Level: level}
	h, object, err := segment.Encode(ctx, m.Timeline, run[0].before, run[0].anchor, batch, meta, o)
	if err != nil {
		return -1, err
	}
	// A host that was killed, or is at it as well, has stored the same.
	if err := segment.Put(ctx, m.Repo.Sink(), h, object); err != nil && !errors.Is(err, sinks.ErrExists) {
		return -1, fmt.Errorf("store merged segment %s: %w", h.Name(), err)
	}
	if err := m.readBack(ctx, h); err != nil {
		return -1, err
	}
	m.Logger.Info("log segments merged", "object", h.Name(), "sources", len(run), "entries", h.Entries, "bytes", len(object))
	r.Merged = append(r.Merged, h)
	r.Sources += len(run)
	return -1, nil
}

// readRun reads the run's entries and marks, each segment with all its checks.
func (m *Merger) readRun(ctx context.Context, run []item, r *Report) (batch segment.Batch, meta segment.Meta, unread int, err error) {
	headers := make([]segment.Header, len(run))
	batches := make([]segment.Batch, len(run))
	failed := make([]error, len(run))
	var group errgroup.Group
	group.SetLimit(bodyReaders)
	for i, source := range run {
		group.Go(func() error {
			headers[i], batches[i], failed[i] = segment.Read(ctx, m.Repo.Sink(), source.Object.Name, m.Identities...)
			return nil
		})
	}
	_ = group.Wait() // the errors are in failed
	for i, h := range headers {
		switch err := failed[i]; {
		case err == nil && factsOf(h) == run[i].facts:
		case err == nil:
			return batch, meta, -1, fmt.Errorf("%s in %s changed while it was to be merged", h.Name(), m.Repo)
		case errors.Is(err, sinks.ErrNotFound):
			m.Logger.Info("a segment went while it was to be merged: another host is at it", "err", err)
			return batch, meta, i, nil
		case unusable(err):
			r.Damaged = append(r.Damaged, err)
			return batch, meta, i, nil
		default:
			return batch, meta, -1, cannotRead(run[i].Object.Name, err)
		}
		batch.Entries = append(batch.Entries, batches[i].Entries...)
		batch.Marks = append(batch.Marks, batches[i].Marks...)
		meta.Revision = max(meta.Revision, h.Revision)
		meta.Member, meta.Cut = h.Member, h.Cut
	}
	return batch, meta, -1, nil
}

// readBack proves that a merged segment is in the repository as it was made.
// Where it isn't it is removed again, so that it keeps nobody from another try.
func (m *Merger) readBack(ctx context.Context, h segment.Header) error {
	stored, _, err := segment.Read(ctx, m.Repo.Sink(), h.Name(), m.Identities...)
	if err == nil && (stored.Before != h.Before || stored.After != h.After || stored.Marks < h.Marks) {
		// Not removed: whoever stored it had another history under this name.
		return &segment.ForkError{Timeline: m.Timeline, Index: h.FirstIndex, Objects: [2]string{h.Name(), "the segments that it covers"}, Err: errors.New("their chains differ")}
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("read back merged segment %s: %w", h.Name(), cannotRead(h.Name(), err))
	if unusable(err) {
		err = errors.Join(err, m.Repo.Sink().Delete(ctx, h.Name()))
	}
	return err
}

// sums are the chain's values before the first entry and after each.
func sums(h segment.Header, entries []raftlog.Entry) []raftlog.Sum {
	all := make([]raftlog.Sum, 0, len(entries)+1)
	sum := h.Before
	all = append(all, sum)
	for _, e := range entries {
		sum = sum.Next(e)
		all = append(all, sum)
	}
	return all
}
