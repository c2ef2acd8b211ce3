package walfile

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// plan is what one pass over a log found: which of the entry records make up the
// log in the end.
type plan struct {
	start    int     // the segment that it began with
	runs     []run   // by index, with the gaps between them
	ordinals []int64 // by segment, from start on: the first entry record in it
	summary  Summary
	err      error // why it ends where it does, when that is not the log's end
}

// Summary is what a log holds.
type Summary struct {
	Identity Identity
	// FirstIndex and LastIndex are of the entries there are, overwrites resolved;
	// 0 when there are none. Where the log ends with a leader's snapshot,
	// LastIndex and LastTerm are the snapshot's, and LastIndex is no entry's.
	FirstIndex, LastIndex, LastTerm uint64
	// Commit is the highest commit index that the member recorded. What it
	// acknowledged may be a little beyond.
	Commit uint64
	Term   uint64 // of the last hard state: nothing to rank members by
	// Snapshot is the newest one that the log records at or before Commit, and
	// Snapshots are all of these.
	Snapshot  Mark
	Snapshots []Mark
	Gaps      []GapError // by index
	Torn      *TornTail  // nil when the log ends cleanly
	Segments  int        // files
}

// Summary reads the whole log once; a second call costs nothing. When the log is
// damaged it tells of the part before the damage, and the error comes with it.
// When files are missing it tells of what is behind them.
func (l *Log) Summary(ctx context.Context) (Summary, error) {
	p, err := l.planned(ctx, 0)
	if err != nil {
		return Summary{Identity: l.identity, Segments: len(l.names)}, err
	}
	return p.summary, errors.Join(l.missing, p.err)
}

// planned makes the plan of the segments from start on, once.
func (l *Log) planned(ctx context.Context, start int) (*plan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.plans[start]; p != nil {
		return p, nil
	}
	p := &planner{plan: plan{start: start, summary: Summary{Identity: l.identity, Segments: len(l.names)}}}
	p.log.base.Index = max(1, l.names[start].index) - 1
	torn, err := l.walk(ctx, start, false, p.visit)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l.plans[start] = p.finish(torn, err)
	return l.plans[start], nil
}

// plannedFor makes a plan that holds an index. Damage in segments before those
// that matter for it is no hindrance: etcd doesn't read them either.
func (l *Log) plannedFor(ctx context.Context, first uint64) (*plan, error) {
	p, err := l.planned(ctx, 0)
	var damage *CorruptError
	if err != nil || !errors.As(p.err, &damage) || len(p.runs) > 0 && first <= p.runs[len(p.runs)-1].last() {
		return p, err
	}
	if start := holding(l.names, first); l.names[start].String() > damage.Segment {
		return l.planned(ctx, start)
	}
	return p, nil
}

type planner struct {
	plan
	log       resolver
	snapshots []Mark // beyond the commit index, or the newest one that is not
	commit    uint64
}

func (p *planner) visit(segment int, rec record) error {
	for len(p.ordinals) <= segment-p.start {
		p.ordinals = append(p.ordinals, p.log.entries)
	}
	if rec.kind == wal.SnapshotType {
		m, err := parseMark(rec.data)
		if err != nil {
			return fmt.Errorf("a snapshot record: %w", err)
		}
		p.snapshots = append(p.snapshots, m)
		p.log.snapshot(m)
		return p.pass(p.log.settle())
	}
	if err := p.pass(p.log.settle()); err != nil {
		return err
	}
	if rec.kind == wal.StateType {
		s, err := parseState(rec.data)
		if err != nil {
			return fmt.Errorf("a hard state: %w", err)
		}
		p.commit = max(p.commit, s.commit)
		p.log.hardState(s)
		return nil
	}
	e, err := parseEntry(rec.data)
	if err == nil {
		err = refuseNewer(e)
	}
	if err != nil {
		return err
	}
	if err := p.pass(p.log.hole(e.Index)); err != nil {
		return err
	}
	if n := len(p.runs); n > 0 && e.Index <= p.runs[n-1].last() {
		return fmt.Errorf("entry %d is behind a snapshot at a higher index", e.Index)
	}
	p.log.add(e.Index, e.Term)
	return nil
}

// pass takes a gap into the plan. All other errors stay errors.
func (p *planner) pass(err error) error {
	var gap *GapError
	if !errors.As(err, &gap) {
		return err
	}
	p.runs = append(p.runs, p.log.runs...)
	n := len(p.summary.Gaps)
	switch {
	case len(p.runs) == 0: // nothing is missing: the log begins there
	case n > 0 && gap.After < p.summary.Gaps[n-1].Next: // no entries between the two
		p.summary.Gaps[n-1].Next = gap.Next
	default:
		p.summary.Gaps = append(p.summary.Gaps, *gap)
	}
	p.log.restart()
	return nil
}

func (p *planner) finish(torn *TornTail, err error) *plan {
	if settled := p.pass(p.log.settle()); err == nil {
		err = settled
	}
	p.runs = append(p.runs, p.log.runs...)
	p.err = err
	s := &p.summary
	s.Torn, s.Commit, s.Term = torn, p.commit, p.log.term
	if len(p.runs) > 0 {
		s.FirstIndex = p.runs[0].first
	}
	if p.log.started || p.log.base.Term > 0 {
		s.LastIndex = p.log.last()
		s.LastTerm, _ = p.log.termAt(s.LastIndex)
	}
	for _, m := range p.snapshots {
		if m.Index <= p.commit {
			s.Snapshot = m
			s.Snapshots = append(s.Snapshots, m)
		}
	}
	return &p.plan
}
