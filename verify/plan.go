package verify

import (
	"context"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// Plan is what Repository would read. Its JSON form is stable.
type Plan struct {
	Repository string        `json:"repository"`
	Level      report.Level  `json:"level"`
	Backups    []PlannedPart `json:"backups"`
	Logs       []PlannedPart `json:"logs"`
	// Bytes is what is read from the repository for the checksum level, but for
	// small documents; Scratch about what the unpacked databases take, at most at
	// one time: of a replay with the one that it begins from, and of a drill with
	// one for each member.
	Bytes   int64 `json:"bytes"`
	Scratch int64 `json:"scratch_bytes"`
}

// PlannedPart is a backup, or the log of a timeline.
type PlannedPart struct {
	Timeline repository.TimelineID `json:"timeline"`
	ID       string                `json:"id,omitempty"`
	Segments int                   `json:"segments,omitempty"`
	Bytes    int64                 `json:"bytes"`
}

// PlanRepository says what Repository would read for the same request. It lists, and
// reads manifests, and the headers that segment.OpenNames does.
func PlanRepository(ctx context.Context, repo *repository.Repository, req Request) (*Plan, error) {
	req, err := req.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &examination{run: run{Request: req, report: req.newReport(repo.String())}, repo: repo}
	if err := e.open(ctx); err != nil {
		return nil, err
	}
	p := &Plan{Repository: repo.String(), Level: req.Level, Backups: []PlannedPart{}, Logs: []PlannedPart{}}
	for _, m := range e.backups {
		p.Backups = append(p.Backups, PlannedPart{Timeline: m.Timeline, ID: m.ID, Bytes: m.Object.StoredSize})
		p.Bytes += m.Object.StoredSize
		p.Scratch = max(p.Scratch, e.scratchOf(m))
	}
	for _, part := range e.logs {
		log, err := e.openLog(ctx, part.timeline)
		if err != nil {
			return nil, err
		}
		segments := part.of(log)
		one := PlannedPart{Timeline: part.timeline, Segments: len(segments)}
		for _, h := range segments {
			one.Bytes += h.Size()
		}
		if one.Segments > 0 {
			p.Logs = append(p.Logs, one)
			p.Bytes += one.Bytes
		}
	}
	return p, nil
}

// scratchOf is what the unpacked databases take while a backup is looked at.
func (e *examination) scratchOf(m *snapshot.Manifest) int64 {
	own := m.Object.RawSize
	if !e.Level.Includes(report.Structure) {
		return 0
	}
	sum := own
	if e.Level.Includes(report.Replay) {
		sum = max(sum, own+e.baseOf(m))
	}
	if _, withLog := e.logOf(m.Timeline); withLog && e.Level.Includes(report.Replay) {
		sum = max(sum, 2*own) // the log behind it is applied to a copy
	}
	if e.Level.Includes(report.Drill) {
		sum = max(sum, own+own*int64(max(1, len(m.Facts.Members))))
	}
	return sum
}

// baseOf is what a replay to a backup has of the one before it: what it is applied
// to, and its copy where it was looked at itself.
func (e *examination) baseOf(m *snapshot.Manifest) int64 {
	var base *snapshot.Manifest
	for _, o := range e.catalog.Manifests {
		if o.Timeline != m.Timeline || o.Facts.RaftIndex >= m.Facts.RaftIndex {
			continue
		}
		// One that was read from a member goes before those that were not.
		if base == nil || base.Synthetic() && !o.Synthetic() || base.Synthetic() == o.Synthetic() && o.Facts.RaftIndex > base.Facts.RaftIndex {
			base = o
		}
	}
	switch {
	case base == nil:
		return 0
	case slices.Contains(e.backups, base):
		return 2 * base.Object.RawSize
	}
	return base.Object.RawSize
}
