package web

// The metrics show a Status to Prometheus.
//
// It promises:
//
//  1. One scrape is one Status: the values fit together.
//  2. Names, labels and meanings are stable; docs/metrics.md lists them all, and
//     is made from the same descriptions.
//  3. A moment that never came is 0, so that an alert on its age fires. What has
//     no value (a recovery time that nobody measured or could estimate) is absent.
//  4. Whatever the Status holds, a scrape succeeds: monitoring that breaks when
//     things are odd is of no use. No label grows with the number of backups.
//  5. No secrets: the repository is named by its ID, not by its URL.
//
// The age of a moment is left to the query (time() - x): it goes on growing when
// the agent is gone.

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/archive"
)

// NewMetrics registers the metrics of the Status that get gives at each scrape. Get may
// be called by several goroutines at once. The Status is only read.
//
// Metrics of the Go runtime and of the process are the caller's to register.
func NewMetrics(reg prometheus.Registerer, get func() *Status) error {
	if err := reg.Register(&collector{get, all()}); err != nil {
		return fmt.Errorf("register the agent's metrics: %w", err)
	}
	return nil
}

// collector makes metrics of a Status at each scrape, and keeps nothing.
type collector struct {
	get     func() *Status
	metrics []metric
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.get()
	for _, m := range c.metrics {
		// Twice the same labels, or labels that are no text, would fail the whole
		// scrape.
		seen := map[string]bool{}
		m.collect(s, func(value float64, labels ...string) {
			for i := range labels {
				labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
			}
			key := strings.Join(labels, "\xff")
			if seen[key] {
				return
			}
			seen[key] = true
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
		})
	}
}

// metric is one metric: how it is described, and where its values come from.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	desc       *prometheus.Desc
	collect    func(*Status, emit)
}

// emit gives out one value. Of several with the same labels the first counts.
type emit func(value float64, labels ...string)

// all are the metrics, in the order in which they are documented.
func all() []metric {
	return slices.Concat(recovery(), agent(), archiver(), jobs(), stored(), cluster())
}

func gauge(name, help string, collect func(*Status, emit), labels ...string) metric {
	return newMetric(prometheus.GaugeValue, name, help, collect, labels)
}

func counter(name, help string, collect func(*Status, emit), labels ...string) metric {
	return newMetric(prometheus.CounterValue, name, help, collect, labels)
}

func newMetric(kind prometheus.ValueType, name, help string, collect func(*Status, emit), labels []string) metric {
	name = "requorum_" + name
	return metric{name, help, kind, labels, prometheus.NewDesc(name, help, labels, nil), collect}
}

// single is a metric without labels that always has a value.
func single(value func(*Status) float64) func(*Status, emit) {
	return func(s *Status, emit emit) { emit(value(s)) }
}

// timestamp is a moment in seconds since 1970, to the microsecond; 0 for one
// that never came.
func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// agent are the agent's own state, its problems, and what it depends on.
func agent() []metric {
	return []metric{
		gauge("build_info", "Always 1; requorum's version, and Go's.",
			func(s *Status, emit emit) {
				emit(1, strings.TrimPrefix(s.Tool, "requorum "), runtime.Version())
			}, "version", "go_version"),
		gauge("agent_info", "Always 1; the agent, its cluster and its repository.",
			func(s *Status, emit emit) { emit(1, s.Agent, s.Cluster.ID, s.Repository.ID) },
			"agent", "cluster_id", "repository_id"),
		gauge("agent_start_timestamp_seconds", "When the agent started.",
			single(func(s *Status) float64 { return timestamp(s.Started) })),
		gauge("agent_seen_timestamp_seconds", "When an agent of this repository gave its last sign of life there, within a day.",
			func(s *Status, emit emit) {
				for _, a := range s.Agents {
					emit(timestamp(a.Seen), a.Name)
				}
			}, "agent"),
		gauge("status_timestamp_seconds", "When these values were collected.",
			single(func(s *Status) float64 { return timestamp(s.Time) })),
		gauge("ready", "1 while no problem is critical, as /readyz says.",
			single(func(s *Status) float64 { ready, _ := s.Ready(); return yes(ready) })),
		gauge("problems", "Current problems by kind; the status page says what to do.",
			problems, "kind"),
		gauge("certificate_expiry_timestamp_seconds", "When a certificate expires that the agent needs. 0: it could not be read.",
			certificates, "use", "place"),
		gauge("certificate_notice_objective_seconds", "How long before that it should be renewed, as configured.",
			single(func(s *Status) float64 { return s.Objectives.CertificateNotice })),
	}
}

// kinds are those of all problems, so that each has a value before it first
// comes.
func kinds() []string {
	own := []string{
		KindCluster, KindMember, KindRemote, KindRepository, KindRecoveryPoint, KindStartedOver, KindJob,
		KindLate, KindVerify, KindUnverified, KindDivergent, KindCorrupt,
		KindRetention, KindCertificate, KindIdentity, KindWriter, KindSpace,
		KindConfig, KindHeartbeat, KindNoSpace,
	}
	for _, a := range archive.Alarms() {
		own = append(own, string(a))
	}
	return own
}

func problems(s *Status, emit emit) {
	count := map[string]int{}
	for _, p := range s.Problems {
		count[p.Kind]++
	}
	known := kinds()
	for _, kind := range known {
		emit(float64(count[kind]), kind)
	}
	for _, p := range s.Problems {
		if !slices.Contains(known, p.Kind) {
			emit(float64(count[p.Kind]), p.Kind)
		}
	}
}

// certificates emits each once; of several in one place the one that expires
// first, and one that cannot be read before all.
func certificates(s *Status, emit emit) {
	expiry := func(c Certificate) float64 {
		if c.Error != "" {
			return 0
		}
		return timestamp(c.Expires)
	}
	sorted := slices.Clone(s.Certificates)
	slices.SortStableFunc(sorted, func(a, b Certificate) int { return cmp.Compare(expiry(a), expiry(b)) })
	for _, c := range sorted {
		emit(expiry(c), c.Use, c.Place)
	}
}

// archiver are the raft log's way into the repository; none of them is there
// where the agent archives no log.
func archiver() []metric {
	// of is a metric of the archiver's state.
	of := func(value func(*archive.State) float64) func(*Status, emit) {
		return func(s *Status, emit emit) {
			if s.Archive != nil {
				emit(value(s.Archive))
			}
		}
	}
	return []metric{
		gauge("archive_writer", "1 where this agent writes the archive; the others stand by.",
			func(s *Status, emit emit) {
				if s.Archive != nil {
					emit(yes(s.Writer))
				}
			}),
		gauge("archive_role", "1 for what the archiver does: starting, comparing, writer, follower, spooling or stopped.",
			func(s *Status, emit emit) {
				if s.Archive == nil {
					return
				}
				for _, r := range []archive.Role{archive.Starting, archive.Comparing, archive.Writer, archive.Follower, archive.Spooling, archive.Stopped} {
					emit(yes(s.Archive.Role == r), string(r))
				}
			}, "role"),
		gauge("archive_applied_index", "Raft index of the last entry that the member applied.",
			of(func(a *archive.State) float64 { return float64(a.Applied) })),
		gauge("archive_read_index", "Raft index of the last entry read from the member's log.",
			of(func(a *archive.State) float64 { return float64(a.Read) })),
		gauge("archive_committed_index", "Raft index of the last entry that was read and is known to be committed.",
			of(func(a *archive.State) float64 { return float64(a.Released) })),
		gauge("archive_archived_index", "Raft index of the last entry that is durable in the repository.",
			of(func(a *archive.State) float64 { return float64(a.Archived) })),
		gauge("archive_recoverable_index", "Raft index of the last entry that a restore gets to, as last seen. 0: there is no full snapshot.",
			of(func(a *archive.State) float64 { return float64(a.Recoverable) })),
		gauge("archive_archived_revision", "Highest revision that the archive is known to reach.",
			of(func(a *archive.State) float64 { return float64(a.ArchivedRevision) })),
		gauge("archive_archived_timestamp_seconds", "When the last entry became durable; constant while nothing is written.",
			of(func(a *archive.State) float64 { return timestamp(a.ArchivedTime) })),
		gauge("archive_pending_entries", "Entries that the member has applied beyond what a restore gets to.",
			of(func(a *archive.State) float64 { return float64(a.BehindEntries) })),
		gauge("archive_queued_bytes", "Log in memory that is not stored yet.",
			of(func(a *archive.State) float64 { return float64(a.Queued) })),
		gauge("archive_spooled_bytes", "Segments that wait in the spool while the repository is away.",
			of(func(a *archive.State) float64 { return float64(a.Spooled) })),
		gauge("archive_pinned_bytes", "Log files that the member purged, kept until read.",
			of(func(a *archive.State) float64 { return float64(a.Pinned) })),
		gauge("archive_spool_limit_bytes", "Bound for spooled and pinned bytes together.",
			of(func(a *archive.State) float64 { return float64(a.SpoolLimit) })),
		gauge("archive_checked_timestamp_seconds", "When this agent last looked for missing segments.",
			of(func(a *archive.State) float64 { return timestamp(a.Checked) })),
		gauge("archive_alarm", "1 for each of the archiver's alarms that is raised.",
			func(s *Status, emit emit) {
				if s.Archive == nil {
					return
				}
				for _, raised := range s.Archive.Alarms {
					emit(1, string(raised.Alarm))
				}
				for _, a := range archive.Alarms() {
					emit(0, string(a)) // unless it is raised: the first counts
				}
			}, "alarm"),
		counter("archive_segments_total", "Segments that this agent stored since it started.",
			of(func(a *archive.State) float64 { return float64(a.Segments) })),
		counter("archive_segment_bytes_total", "Bytes in them.",
			of(func(a *archive.State) float64 { return float64(a.Bytes) })),
		counter("archive_requests_total", "The archiver's requests since the agent started: put, get or list.",
			func(s *Status, emit emit) {
				if s.Archive == nil {
					return
				}
				emit(float64(s.Archive.Requests.Puts), "put")
				emit(float64(s.Archive.Requests.Gets), "get")
				emit(float64(s.Archive.Requests.Lists), "list")
			}, "operation"),
		counter("archive_gaps_total", "Gaps that this agent found and recorded since it started.",
			of(func(a *archive.State) float64 { return float64(len(a.Gaps)) })),
		counter("archive_dropped_observations_total", "Answers of the member that its log contradicted.",
			of(func(a *archive.State) float64 { return float64(a.Dropped) })),
	}
}

// cluster are the cluster's members, as this agent sees them.
func cluster() []metric {
	each := func(value func(Member) float64) func(*Status, emit) {
		return func(s *Status, emit emit) {
			for _, m := range s.Cluster.Members {
				emit(value(m), m.Name, m.ID)
			}
		}
	}
	// answering leaves out members whose numbers nobody knows.
	answering := func(value func(Member) float64) func(*Status, emit) {
		return func(s *Status, emit emit) {
			for _, m := range s.Cluster.Members {
				if m.Error == "" {
					emit(value(m), m.Name, m.ID)
				}
			}
		}
	}
	return []metric{
		gauge("cluster_asked_timestamp_seconds", "When the cluster last answered. 0: never.",
			single(func(s *Status) float64 { return timestamp(s.Cluster.Asked) })),
		gauge("cluster_has_leader", "1 while a member that answers sees a leader; absent until the cluster was asked.",
			func(s *Status, emit emit) {
				if !s.Cluster.Asked.IsZero() || !s.Cluster.Down.IsZero() {
					emit(yes(s.Cluster.Down.IsZero()))
				}
			}),
		gauge("cluster_members", "Members of the cluster.",
			single(func(s *Status) float64 { return float64(len(s.Cluster.Members)) })),
		gauge("cluster_member_up", "1 where the member answers this agent.",
			each(func(m Member) float64 { return yes(m.Error == "") }), "member", "member_id"),
		gauge("cluster_member_fit", "1 where backups may be read from the member: it answers, and is not catching up or defragmenting.",
			each(func(m Member) float64 { return yes(m.Error == "" && m.Unfit == "") }), "member", "member_id"),
		gauge("cluster_member_revision", "The member's revision.",
			answering(func(m Member) float64 { return float64(m.Revision) }), "member", "member_id"),
		gauge("cluster_member_applied_index", "Raft index of the last entry that the member applied.",
			answering(func(m Member) float64 { return float64(m.Applied) }), "member", "member_id"),
		gauge("cluster_member_db_bytes", "Size of the member's database file.",
			answering(func(m Member) float64 { return float64(m.DBSize) }), "member", "member_id"),
		gauge("cluster_divergent_members", "Members whose history differs from the others'.",
			single(func(s *Status) float64 { return float64(len(s.Cluster.Divergent)) })),
		gauge("cluster_compared_timestamp_seconds", "When the members' histories were last compared. 0: never.",
			single(func(s *Status) float64 { return timestamp(s.Cluster.Compared) })),
	}
}

// jobs are the jobs' last and next runs, by whichever agent.
func jobs() []metric {
	each := func(value func(job.Status) float64) func(*Status, emit) {
		return func(s *Status, emit emit) {
			for _, j := range s.Jobs {
				emit(value(j), j.Name)
			}
		}
	}
	// last is a metric of the newest finished run, absent where there is none.
	last := func(value func(*job.Run) float64) func(*Status, emit) {
		return func(s *Status, emit emit) {
			for _, j := range s.Jobs {
				if j.Last != nil {
					emit(value(j.Last), j.Name)
				}
			}
		}
	}
	return []metric{
		gauge("job_enabled", "1 where the job may run on this agent.",
			each(func(j job.Status) float64 { return yes(j.Off == "") }), "job_name"),
		gauge("job_running", "1 while the job runs on this agent.",
			each(func(j job.Status) float64 { return yes(j.Running != nil) }), "job_name"),
		gauge("job_last_start_timestamp_seconds", "When the job was last started, by any agent. 0: never.",
			each(func(j job.Status) float64 { return timestamp(lastStart(j)) }), "job_name"),
		gauge("job_last_success_timestamp_seconds", "When the job last succeeded, by any agent. 0: never.",
			each(func(j job.Status) float64 { return timestamp(finished(j.LastSuccess)) }), "job_name"),
		gauge("job_last_failure_timestamp_seconds", "When the job last failed, by any agent. 0: never.",
			each(func(j job.Status) float64 { return timestamp(finished(j.LastFailure)) }), "job_name"),
		gauge("job_next_run_timestamp_seconds", "When the job is due next; absent without a schedule here.",
			func(s *Status, emit emit) {
				for _, j := range s.Jobs {
					if !j.Next.IsZero() {
						emit(timestamp(j.Next), j.Name)
					}
				}
			}, "job_name"),
		gauge("job_schedule_interval_seconds", "Longest time between two scheduled runs; absent without a schedule here.",
			func(s *Status, emit emit) {
				for _, j := range s.Jobs {
					if _, longest := config.Periods(j.Schedule, time.UTC); j.Off == "" && longest > 0 {
						emit(longest.Seconds(), j.Name)
					}
				}
			}, "job_name"),
		gauge("job_last_duration_seconds", "How long the newest finished run took.",
			last(func(r *job.Run) float64 { return max(0, r.Finished.Sub(r.Started).Seconds()) }), "job_name"),
		gauge("job_last_attempts", "How many attempts it took, by any agent.",
			last(func(r *job.Run) float64 { return float64(r.Attempt) }), "job_name"),
		gauge("job_last_bytes", "Bytes that it stored or read.",
			last(func(r *job.Run) float64 { return float64(r.Bytes) }), "job_name"),
	}
}

func lastStart(j job.Status) time.Time {
	var start time.Time
	for _, r := range []*job.Run{j.Last, j.LastSuccess, j.LastFailure, j.Running} {
		if r != nil && r.Started.After(start) {
			start = r.Started
		}
	}
	return start
}

func finished(r *job.Run) time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.Finished
}

// recovery are what would be lost, how long it would take to be back, and what
// is proved of that.
func recovery() []metric {
	return []metric{
		gauge("recoverable_until_timestamp_seconds",
			"Time up to which every acknowledged write can be restored from the repository, as last seen; it advances while nothing is written. 0: nothing can be restored.",
			single(func(s *Status) float64 {
				if s.RPO.Until.IsZero() {
					return 0
				}
				return timestamp(s.RPO.Until)
			})),
		gauge("recovery_point_objective_seconds",
			"How old the recoverable time may be, as configured.",
			single(func(s *Status) float64 { return s.Objectives.RecoveryPoint })),
		gauge("recovery_time_seconds",
			"About how long until a cluster serves again; absent where not known.",
			func(s *Status, emit emit) {
				if s.RTO.Known {
					emit(s.RTO.Seconds)
				}
			}),
		gauge("recovery_time_measured_timestamp_seconds",
			"When a drill measured the recovery time. 0: it is an estimate.",
			single(func(s *Status) float64 { return timestamp(s.RTO.Measured) })),
		gauge("gap_open",
			"1 where what is archived now cannot be restored: entries before it are missing.",
			single(func(s *Status) float64 { return yes(gapOpen(s)) })),
		gauge("verified_timestamp_seconds",
			"When a backup of the current timeline was last proved at this level or a higher one. 0: never.",
			func(s *Status, emit emit) {
				newestProof(s, emit, func(b Backup) time.Time { return b.ProvedAt })
			}, "level"),
		gauge("verified_backup_timestamp_seconds",
			"When the newest undamaged backup proved at this level or a higher one was begun. 0: there is none.",
			func(s *Status, emit emit) {
				newestProof(s, emit, func(b Backup) time.Time { return b.Time })
			}, "level"),
		gauge("verified_within_objective_seconds",
			"How old the newest backup that passed the level structure may be, as configured.",
			single(func(s *Status) float64 { return s.Objectives.VerifiedWithin })),
	}
}

// gapOpen reports whether the archive goes on behind entries that are missing,
// with no full snapshot behind them: as the archiver here knows it, or as the
// listing shows.
func gapOpen(s *Status) bool {
	if a := s.Archive; a != nil && a.SnapshotDue != "" {
		return true
	}
	for _, r := range slices.Backward(s.Repository.Ranges) {
		if r.Timeline == s.Repository.Timeline {
			return r.Gap
		}
	}
	return false
}

// newestProof emits, for each level, the newest of the moments of the backups
// that were proved there.
func newestProof(s *Status, emit emit, moment func(Backup) time.Time) {
	for _, level := range report.Levels() {
		var newest time.Time
		for _, b := range current(s) {
			if b.Proved != "" && b.Proved.Includes(level) && !bad(b) && moment(b).After(newest) {
				newest = moment(b)
			}
		}
		emit(timestamp(newest), string(level))
	}
}

// current are the backups of the timeline that the cluster goes on in; all of
// them where that is not known. Those of a timeline that ended hold nothing of
// what is written now.
func current(s *Status) []Backup {
	var own []Backup
	for _, b := range s.Repository.Backups {
		if s.Repository.Timeline == (repository.TimelineID{}) || b.Timeline == s.Repository.Timeline {
			own = append(own, b)
		}
	}
	return own
}

// stored are what is in the repository, as it was last listed.
func stored() []metric {
	newest := func(value func(Backup) float64) func(*Status, emit) {
		return func(s *Status, emit emit) {
			if b, ok := newestBackup(s); ok {
				emit(value(b))
			}
		}
	}
	count := func(is func(Backup) bool) func(*Status, emit) {
		return single(func(s *Status) float64 {
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
		gauge("repository_up", "1 where the repository answered at the last try.",
			single(func(s *Status) float64 { return yes(s.Repository.Error == "" && !s.Repository.Seen.IsZero()) })),
		gauge("repository_seen_timestamp_seconds", "When the repository last answered. 0: never.",
			single(func(s *Status) float64 { return timestamp(s.Repository.Seen) })),
		gauge("repository_listed_timestamp_seconds", "When the repository was last listed. 0: never.",
			single(func(s *Status) float64 { return timestamp(s.Repository.Listed) })),
		gauge("repository_bytes", "Bytes that full snapshots (full) and the log (log) take, as stored.",
			func(s *Status, emit emit) {
				emit(float64(s.Repository.FullBytes), "full")
				emit(float64(s.Repository.LogBytes), "log")
			}, "content"),
		gauge("repository_backups", "Full snapshots.",
			single(func(s *Status) float64 { return float64(len(s.Repository.Backups)) })),
		gauge("repository_damaged_backups", "Full snapshots that a listing or a verdict found damaged.", count(bad)),
		gauge("repository_pinned_backups", "Full snapshots that are pinned.",
			count(func(b Backup) bool { return b.Pinned })),
		gauge("repository_gaps", "Ranges of all timelines in which no point can be restored.",
			single(func(s *Status) float64 {
				n := 0
				for _, r := range s.Repository.Ranges {
					if r.Gap {
						n++
					}
				}
				return float64(n)
			})),
		gauge("newest_backup_timestamp_seconds", "When the current timeline's newest full snapshot was begun. 0: there is none.",
			single(func(s *Status) float64 { b, _ := newestBackup(s); return timestamp(b.Time) })),
		gauge("newest_backup_duration_seconds", "How long it took.",
			newest(func(b Backup) float64 { return max(0, b.Finished.Sub(b.Time).Seconds()) })),
		gauge("newest_backup_stored_bytes", "Its size as stored.",
			newest(func(b Backup) float64 { return float64(b.Stored) })),
		gauge("newest_backup_raw_bytes", "Its size as a database.",
			newest(func(b Backup) float64 { return float64(b.Raw) })),
		gauge("newest_backup_revision", "Its revision.",
			newest(func(b Backup) float64 { return float64(b.Revision) })),
	}
}

func newestBackup(s *Status) (newest Backup, ok bool) {
	for _, b := range current(s) {
		if !ok || b.Time.After(newest.Time) {
			newest, ok = b, true
		}
	}
	return newest, ok
}
