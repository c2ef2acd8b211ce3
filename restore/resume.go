package restore

import "path/filepath"

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
