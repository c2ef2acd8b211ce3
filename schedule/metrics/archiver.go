package metrics

import (
	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/walreplay/archive"
)

// archiver are the raft log's way into the repository; none of them is there
// where the agent archives no log.
func archiver() []metric {
	// of is a metric of the archiver's state.
	of := func(value func(*archive.State) float64) func(*status.Status, emit) {
		return func(s *status.Status, emit emit) {
			if s.Archive != nil {
				emit(value(s.Archive))
			}
		}
	}
	return []metric{
		gauge("archive_writer", "1 where this agent writes the archive; the others stand by.",
			func(s *status.Status, emit emit) {
				if s.Archive != nil {
					emit(yes(s.Writer))
				}
			}),
		gauge("archive_role", "1 for what this agent's archiver does now: starting, comparing, writer, follower, spooling or stopped.",
			func(s *status.Status, emit emit) {
				if s.Archive == nil {
					return
				}
				for _, r := range []archive.Role{archive.Starting, archive.Comparing, archive.Writer, archive.Follower, archive.Spooling, archive.Stopped} {
					emit(yes(s.Archive.Role == r), string(r))
				}
			}, "role"),
		gauge("archive_applied_index", "Raft index of the last entry that the member applied, as it last answered.",
			of(func(a *archive.State) float64 { return float64(a.Applied) })),
		gauge("archive_read_index", "Raft index of the last entry that was read from the member's log.",
			of(func(a *archive.State) float64 { return float64(a.Read) })),
		gauge("archive_committed_index", "Raft index of the last entry that was read and is known to be committed.",
			of(func(a *archive.State) float64 { return float64(a.Released) })),
		gauge("archive_archived_index", "Raft index of the last entry that is durable in the repository.",
			of(func(a *archive.State) float64 { return float64(a.Archived) })),
		gauge("archive_recoverable_index", "Raft index of the last entry that a restore gets to. 0: there is no full snapshot.",
			of(func(a *archive.State) float64 { return float64(a.Recoverable) })),
		gauge("archive_archived_revision", "Highest revision that the archive is known to reach.",
			of(func(a *archive.State) float64 { return float64(a.ArchivedRevision) })),
		gauge("archive_archived_timestamp_seconds", "When this agent learned of the last entry that became durable; it stands still while nothing is written.",
			of(func(a *archive.State) float64 { return timestamp(a.ArchivedTime) })),
		gauge("archive_pending_entries", "Entries that the member has applied beyond what a restore gets to.",
			of(func(a *archive.State) float64 { return float64(a.BehindEntries) })),
		gauge("archive_queued_bytes", "Log in memory that is not stored yet.",
			of(func(a *archive.State) float64 { return float64(a.Queued) })),
		gauge("archive_spooled_bytes", "Segments that wait in the spool while the repository is away.",
			of(func(a *archive.State) float64 { return float64(a.Spooled) })),
		gauge("archive_pinned_bytes", "Log files that the member purged and that are kept until they are read.",
			of(func(a *archive.State) float64 { return float64(a.Pinned) })),
		gauge("archive_spool_limit_bytes", "Bound for spooled and pinned bytes together.",
			of(func(a *archive.State) float64 { return float64(a.SpoolLimit) })),
		gauge("archive_holes", "Runs of entries that the archive lacks although it goes on behind them, and that a member may still fill.",
			of(func(a *archive.State) float64 { return float64(len(a.Holes)) })),
		gauge("archive_checked_timestamp_seconds", "When this agent last looked through the archive for holes.",
			of(func(a *archive.State) float64 { return timestamp(a.Checked) })),
		gauge("archive_alarm", "1 for each of the archiver's alarms that is raised.",
			func(s *status.Status, emit emit) {
				if s.Archive == nil {
					return
				}
				for _, raised := range s.Archive.Alarms {
					emit(1, string(raised.Alarm))
				}
				for _, a := range alarms() {
					emit(0, string(a)) // unless it is raised: the first counts
				}
			}, "alarm"),
		counter("archive_segments_total", "Segments that this agent stored since it started.",
			of(func(a *archive.State) float64 { return float64(a.Segments) })),
		counter("archive_segment_bytes_total", "Bytes in them.",
			of(func(a *archive.State) float64 { return float64(a.Bytes) })),
		counter("archive_requests_total", "Requests of the archiver to the repository since the agent started: put, get or list.",
			func(s *status.Status, emit emit) {
				if s.Archive == nil {
					return
				}
				emit(float64(s.Archive.Requests.Puts), "put")
				emit(float64(s.Archive.Requests.Gets), "get")
				emit(float64(s.Archive.Requests.Lists), "list")
			}, "operation"),
		counter("archive_gaps_total", "Gaps that this agent found and recorded since it started.",
			of(func(a *archive.State) float64 { return float64(len(a.Gaps)) })),
		counter("archive_dropped_observations_total", "Answers of the member that did not agree with its log, and were dropped.",
			of(func(a *archive.State) float64 { return float64(a.Dropped) })),
	}
}
