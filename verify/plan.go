package verify

import (
	"context"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// Plan is what Repository would read. Its JSON form is stable.
type Plan struct {
	Repository string         `json:"repository"`
	Rung       report.Rung    `json:"rung"`
	Backups    []PlannedPart  `json:"backups"`
	Logs       []PlannedPart  `json:"logs"`
	Sample     *report.Sample `json:"sample,omitempty"`
	// Bytes is what is read from the repository for the checksum rung, but for
	// small documents; Scratch what is written, at most at one time, to unpack a
	// database. A replay and a drill take more, and say how much.
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

// PlanRepository says what Repository would read for the same request. It lists,
// and reads manifests.
func PlanRepository(ctx context.Context, repo *repository.Repository, req Request) (*Plan, error) {
	req, err := req.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &examination{run: run{Request: req, report: req.newReport(repo.String())}, repo: repo}
	if err := e.open(ctx); err != nil {
		return nil, err
	}
	p := &Plan{Repository: repo.String(), Rung: req.Rung, Backups: []PlannedPart{}, Logs: []PlannedPart{}, Sample: e.sample.told()}
	for _, m := range e.backups {
		if e.sample.leaves(m.Object.Name) {
			continue
		}
		p.Backups = append(p.Backups, PlannedPart{Timeline: m.Timeline, ID: m.ID, Bytes: m.Object.StoredSize})
		p.Bytes += m.Object.StoredSize
		if req.Rung.Includes(report.Structure) {
			p.Scratch = max(p.Scratch, m.Object.RawSize)
		}
	}
	for _, part := range e.logs {
		one, err := e.planLog(ctx, part)
		if err != nil {
			return nil, err
		}
		if one.Segments > 0 {
			p.Logs = append(p.Logs, one)
			p.Bytes += one.Bytes
		}
	}
	return p, nil
}

// planLog counts the segments of a log that would be read.
func (e *examination) planLog(ctx context.Context, part logPart) (PlannedPart, error) {
	one := PlannedPart{Timeline: part.timeline}
	segments, err := e.segmentsOf(ctx, part)
	if err != nil {
		return one, err
	}
	for _, s := range segments {
		if e.sample.leaves(s.String()) {
			continue
		}
		one.Segments++
		one.Bytes += s.Object.Size
	}
	return one, nil
}

// segmentsOf are those of a part of a log, by their names: of level 0 these do
// not tell where a segment ends, but the next one begins behind it.
func (e *examination) segmentsOf(ctx context.Context, part logPart) ([]repository.Segment, error) {
	all, err := e.repo.Segments(ctx, part.timeline)
	if err != nil {
		return nil, err
	}
	var in []repository.Segment
	for i, s := range all {
		last := s.Last
		if s.Level == 0 && i+1 < len(all) && all[i+1].Level == 0 {
			last = all[i+1].First
		} else if s.Level == 0 {
			last = part.from // nobody knows
		}
		if last >= part.from {
			in = append(in, s)
		}
	}
	return in, nil
}
