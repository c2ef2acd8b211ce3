package restore

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"time"
)

// firstSegment is the name of a new log's only segment.
const firstSegment = "0000000000000000-0000000000000000.wal"

// completable returns the plan of an earlier run that asked for the same, put
// all members of this host in place, and was ended before it had removed all
// blockers. Starting anew would mean to replace members that may serve already.
func completable(p *Plan, only string, found []*finding) *Plan {
	var earlier *Plan
	blocked := false
	for _, s := range found {
		switch s.state {
		case stateUnfinished, stateSealed:
			blocked = true
		case stateDone:
		default:
			return nil
		}
		if s.record.Only != only || !s.logReady || earlier != nil && earlier.ID != s.record.Plan.ID {
			return nil
		}
		earlier = s.record.Plan
	}
	if !blocked || !p.matches(earlier) {
		return nil
	}
	return earlier
}

// matches tells whether q, an earlier plan, gives what p asks for, whatever
// token and IDs either drew. What is known of the lineage may have grown
// since, but not beyond q's bump. What may be set aside does not count: q has
// done that already.
func (p *Plan) matches(q *Plan) bool {
	if p.ID == q.ID {
		return p.Owner == q.Owner || p.Owner != nil && q.Owner != nil && *p.Owner == *q.Owner
	}
	if p.Bump != nil && q.Bump != nil && q.Bump.NewRevision <= p.Bump.HighestKnown {
		return false
	}
	plain := func(p *Plan) Plan {
		c := *p
		c.ID, c.CreatedAt, c.ClusterToken, c.ClusterID, c.Notes = "", time.Time{}, "", 0, nil
		c.SetAside, c.Members = false, nil
		if c.Source.Recipe != nil { // whose pages may differ
			c.Source.Size, c.BytesDB = 0, 0
		}
		if c.Bump != nil && c.Bump.Mode == BumpAuto {
			c.Bump = &Bump{From: c.Bump.From}
		}
		for _, m := range p.Members {
			m.ID = 0
			c.Members = append(c.Members, m)
		}
		return c
	}
	a, errA := json.Marshal(plain(p))
	b, errB := json.Marshal(plain(q))
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// logIsReady tells whether a separate WAL directory is free already, or holds
// all that is needed to free it.
func logIsReady(walDir string) (bool, error) {
	b, err := readBlocker(walDir)
	if err != nil || b == nil {
		return err == nil, err
	}
	at, err := segmentAt(&site{final: walDir, root: walDir})
	return at != "", err
}

// segmentAt is where the new segment of a separate WAL directory is: still in
// staging, or in place; empty when it is nowhere.
func segmentAt(wal *site) (string, error) {
	for _, path := range []string{filepath.Join(wal.staging(), "wal", firstSegment), filepath.Join(wal.final, firstSegment)} {
		there, err := exists(path)
		if err != nil || there {
			return path, err
		}
	}
	return "", nil
}
