package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// logsReport is what the archived logs add to the JSON form of `requorum list`.
type logsReport struct {
	// Ranges are the parts of each timeline in which every point can be
	// restored, and the gaps between them.
	Ranges []walreplay.Range `json:"ranges"`
	Logs   []logReport       `json:"logs"`
}

// logReport is the archived log of one timeline, as its listing tells.
type logReport struct {
	Timeline repository.TimelineID `json:"timeline"`
	Segments int                   `json:"segments"` // objects, superseded ones included
	Small    int                   `json:"small"`    // of these, not merged
	Marks    int                   `json:"marks"`    // objects that tell that a quiet cluster was watched
	Bytes    int64                 `json:"bytes"`
}

// readLogs lists the archived logs and reads their headers. What it returns is
// of use also with an error.
func readLogs(ctx context.Context, r *repository.Repository, c *snapshot.Catalog) (logsReport, error) {
	report := logsReport{Ranges: []walreplay.Range{}, Logs: []logReport{}}
	for _, t := range c.Timelines {
		segments, err := r.Segments(ctx, t.ID)
		if err != nil {
			return report, err
		}
		if len(segments) == 0 {
			continue
		}
		one := logReport{Timeline: t.ID, Segments: len(segments)}
		for _, s := range segments {
			one.Bytes += s.Object.Size
			if s.Level == 0 {
				one.Small++
			}
		}
		marks, err := r.Marks(ctx, t.ID)
		if err != nil {
			return report, err
		}
		one.Marks = len(marks)
		report.Logs = append(report.Logs, one)
	}
	ranges, err := walreplay.Ranges(ctx, r, c)
	report.Ranges = emptyNotNull(ranges)
	return report, err
}

// tableLog prints the ranges of one timeline and the size of its log.
func (g *globals) tableLog(r logsReport, t repository.TimelineID) error {
	for _, l := range r.Logs {
		if l.Timeline == t {
			g.printf("Archived log: %s in %s, %d of them not merged yet\n", size(l.Bytes), counted(l.Segments, "segment", "segments"), l.Small)
		}
	}
	out := newTable(g.stdout)
	for _, one := range r.Ranges {
		if one.Timeline != t || !one.Gap && one.FirstIndex == one.LastIndex {
			continue // a snapshot alone is in the table above
		}
		if one.Gap && !r.hasSnapshot(t) {
			g.printf("Nothing of it can be restored: %s. Take one with 'requorum backup'.\n", one.Reason)
			continue
		}
		if one.Gap {
			out.row("  not recoverable", fmt.Sprintf("raft index %d to %d", one.FirstIndex, one.LastIndex), one.Reason)
			continue
		}
		out.row("  recoverable", "revision "+revisions(one), fmt.Sprintf("raft index %d to %d", one.FirstIndex, one.LastIndex), times(one))
	}
	return out.flush()
}

// hasSnapshot tells whether a timeline has a full snapshot: each is in a range.
func (r logsReport) hasSnapshot(t repository.TimelineID) bool {
	return slices.ContainsFunc(r.Ranges, func(one walreplay.Range) bool { return one.Timeline == t && !one.Gap })
}

func revisions(r walreplay.Range) string {
	switch {
	case r.LastRevision == 0:
		return fmt.Sprintf("%d on", r.FirstRevision)
	case r.LastRevisionExact:
		return fmt.Sprintf("%d to %d", r.FirstRevision, r.LastRevision)
	}
	return fmt.Sprintf("%d to %d at least", r.FirstRevision, r.LastRevision)
}

func times(r walreplay.Range) string { return whenKnown(r.From) + " to " + whenKnown(r.To) }

func whenKnown(t time.Time) string {
	if t.IsZero() {
		return "a time not known"
	}
	return when(t)
}
