package metrics

import (
	"slices"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// recovery are what would be lost, how long it would take to be back, and what
// is proved of that.
func recovery() []metric {
	return []metric{
		gauge("recoverable_until_timestamp_seconds",
			"Time up to which every acknowledged write can be restored from the repository alone. It also advances while nothing is written, once the cluster has confirmed that. 0: nothing can be restored.",
			one(func(s *status.Status) float64 {
				if !s.RPO.Known {
					return 0
				}
				return timestamp(s.RPO.Until)
			})),
		gauge("recovery_point_objective_seconds",
			"How far the time above may lie behind, as configured.",
			one(func(s *status.Status) float64 { return s.Objectives.RecoveryPoint })),
		gauge("recovery_time_seconds",
			"About how long it would take to have a serving cluster again; absent where nobody knows.",
			func(s *status.Status, emit emit) {
				if s.RTO.Known {
					emit(s.RTO.Seconds)
				}
			}),
		gauge("recovery_time_measured_timestamp_seconds",
			"When a drill measured the recovery time. 0: it is an estimate.",
			one(func(s *status.Status) float64 { return timestamp(s.RTO.Measured) })),
		gauge("gap_open",
			"1 where what is archived now cannot be restored, because entries before it are missing and no full snapshot is behind them.",
			one(func(s *status.Status) float64 { return yes(gapOpen(s)) })),
		gauge("verified_timestamp_seconds",
			"When a backup of the current timeline was last proved on this rung or a higher one. 0: never.",
			func(s *status.Status, emit emit) {
				newestProof(s, emit, func(b status.Backup) time.Time { return b.ProvedAt })
			}, "rung"),
		gauge("verified_backup_timestamp_seconds",
			"When the newest backup of the current timeline was begun that has been proved on this rung or a higher one and is not known to be damaged. 0: there is none.",
			func(s *status.Status, emit emit) {
				newestProof(s, emit, func(b status.Backup) time.Time { return b.Time })
			}, "rung"),
		gauge("verified_within_objective_seconds",
			"How old the newest backup that passed the rung structure may be, as configured.",
			one(func(s *status.Status) float64 { return s.Objectives.VerifiedWithin })),
	}
}

// gapOpen tells whether the archive goes on behind entries that are missing,
// with no full snapshot behind them: as the archiver here knows it, or as the
// listing shows.
func gapOpen(s *status.Status) bool {
	if a := s.Archive; a != nil {
		if a.SnapshotDue != "" {
			return true
		}
		for _, h := range a.Holes {
			if h.Due {
				return true
			}
		}
	}
	for _, r := range slices.Backward(s.Repository.Ranges) {
		if r.Timeline == s.Repository.Timeline {
			return r.Gap
		}
	}
	return false
}

// newestProof emits, for each rung, the newest of the moments of the backups
// that were proved there.
func newestProof(s *status.Status, emit emit, moment func(status.Backup) time.Time) {
	for _, rung := range report.Rungs() {
		var newest time.Time
		for _, b := range current(s) {
			if b.Proved != "" && b.Proved.Includes(rung) && !damaged(b) && moment(b).After(newest) {
				newest = moment(b)
			}
		}
		emit(timestamp(newest), string(rung))
	}
}

// current are the backups of the timeline that the cluster goes on in; all of
// them where that is not known. Those of a timeline that ended hold nothing of
// what is written now.
func current(s *status.Status) []status.Backup {
	var own []status.Backup
	for _, b := range s.Repository.Backups {
		if s.Repository.Timeline == (repository.TimelineID{}) || b.Timeline == s.Repository.Timeline {
			own = append(own, b)
		}
	}
	return own
}

func damaged(b status.Backup) bool { return b.Damaged != "" || b.Failed != "" }
