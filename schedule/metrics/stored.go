package metrics

import (
	"github.com/requorum/requorum/schedule/status"
)

// stored are what is in the repository, as it was last listed.
func stored() []metric {
	newest := func(value func(status.Backup) float64) func(*status.Status, emit) {
		return func(s *status.Status, emit emit) {
			if b, ok := newestBackup(s); ok {
				emit(value(b))
			}
		}
	}
	count := func(is func(status.Backup) bool) func(*status.Status, emit) {
		return one(func(s *status.Status) float64 {
			n := 0
			for _, b := range s.Repository.Backups {
				if is(b) {
					n++
				}
			}
			return float64(n)
		})
	}
	return []metric{
		gauge("repository_up", "1 where the repository could be listed when that was last tried.",
			one(func(s *status.Status) float64 { return yes(s.Repository.Error == "" && !s.Repository.Listed.IsZero()) })),
		gauge("repository_listed_timestamp_seconds", "When the repository was last listed. 0: never.",
			one(func(s *status.Status) float64 { return timestamp(s.Repository.Listed) })),
		gauge("repository_bytes", "Bytes that full snapshots (full) and the log (log) take, as stored.",
			func(s *status.Status, emit emit) {
				emit(float64(s.Repository.FullBytes), "full")
				emit(float64(s.Repository.LogBytes), "log")
			}, "content"),
		gauge("repository_backups", "Full snapshots in the repository, by where they come from: member or synthetic.",
			func(s *status.Status, emit emit) {
				synthetic := 0
				for _, b := range s.Repository.Backups {
					if b.Synthetic {
						synthetic++
					}
				}
				emit(float64(len(s.Repository.Backups)-synthetic), "member")
				emit(float64(synthetic), "synthetic")
			}, "source"),
		gauge("repository_damaged_backups", "Full snapshots that a listing or a verdict found damaged.", count(damaged)),
		gauge("repository_pinned_backups", "Full snapshots that retention leaves alone because somebody pinned them.",
			count(func(b status.Backup) bool { return b.Pinned })),
		gauge("repository_gaps", "Stretches of all timelines in which no point can be restored. They stay as long as the log around them does.",
			one(func(s *status.Status) float64 {
				n := 0
				for _, r := range s.Repository.Ranges {
					if r.Gap {
						n++
					}
				}
				return float64(n)
			})),
		gauge("newest_backup_timestamp_seconds", "When the newest full snapshot of the current timeline was begun. 0: there is none.",
			one(func(s *status.Status) float64 { b, _ := newestBackup(s); return timestamp(b.Time) })),
		gauge("newest_backup_duration_seconds", "How long it took.",
			newest(func(b status.Backup) float64 { return max(0, b.Finished.Sub(b.Time).Seconds()) })),
		gauge("newest_backup_stored_bytes", "Its size as stored.",
			newest(func(b status.Backup) float64 { return float64(b.Stored) })),
		gauge("newest_backup_raw_bytes", "Its size as a database.",
			newest(func(b status.Backup) float64 { return float64(b.Raw) })),
		gauge("newest_backup_revision", "Its revision.",
			newest(func(b status.Backup) float64 { return float64(b.Revision) })),
	}
}

func newestBackup(s *status.Status) (newest status.Backup, ok bool) {
	for _, b := range current(s) {
		if !ok || b.Time.After(newest.Time) {
			newest, ok = b, true
		}
	}
	return newest, ok
}
