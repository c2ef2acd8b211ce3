package schedule

import (
	"fmt"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/verify/drill"
	"github.com/requorum/requorum/verify/report"
)

// Without a drill, how long a restore takes is reckoned with what a small machine
// does; a drill measures it.
const (
	fetchRate  = 100 << 20 // bytes of the database a second: fetch, decrypt, unpack, build
	replayRate = 50_000    // entries a second
	bootTime   = 5 * time.Second
	// drillCounts is for how long a drill's time is told before the reckoning is
	// more to the point.
	drillCounts = 60 * 24 * time.Hour
)

// ofDrill are the phases of a drill that are no part of a recovery.
var ofDrill = map[string]bool{drill.PhaseExpect: true, drill.PhaseServe: true, drill.PhaseRemove: true}

// rto is about how long a restore of the newest point takes, with so many entries
// of log behind the newest full snapshot.
func (s *stock) rto(entries uint64, now time.Time) status.RTO {
	m := s.newest()
	if m == nil {
		return status.RTO{Text: "It is not known how long restoring would take: there is nothing to restore."}
	}
	if took, at := s.measured(); took > 0 && now.Sub(at) < drillCounts {
		return status.RTO{Known: true, Seconds: took.Seconds(), Measured: at, Text: fmt.Sprintf("A drill restored the newest point in %s, %s ago.", inWords(took), inWords(now.Sub(at)))}
	}
	took := bootTime + time.Duration(float64(m.Object.RawSize)/fetchRate*float64(time.Second)) + time.Duration(float64(entries)/replayRate*float64(time.Second))
	return status.RTO{Known: true, Seconds: took.Seconds(), Text: fmt.Sprintf("About %s, reckoned from the size; a drill would measure it.", inWords(took))}
}

// measured is the newest drill that measured how long a restore takes.
func (s *stock) measured() (took time.Duration, at time.Time) {
	for i := len(s.chain.Entries) - 1; i >= 0; i-- {
		e := s.chain.Entries[i]
		if !e.Counts || e.Verdict.Rung != report.Drill {
			continue
		}
		for _, sub := range e.Verdict.Subjects {
			if sub.Reached != report.Drill {
				continue
			}
			for _, p := range sub.Phases {
				if !ofDrill[p.Name] {
					took += p.Took
				}
			}
			if took > 0 {
				return took, e.Verdict.Finished
			}
		}
	}
	return 0, time.Time{}
}
