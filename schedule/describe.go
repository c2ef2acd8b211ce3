package schedule

import (
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

// describe is what the agent knows at a time.
func (t *term) describe(now time.Time) *status.Status {
	t.mu.Lock()
	seen, archiver, runner, waiting, failed := t.seen, t.archiver, t.runner, t.waiting, t.failures["jobs"]
	t.mu.Unlock()
	s := &status.Status{
		Time: now.UTC(), Started: t.started.UTC(), Agent: t.cfg.Name, Tool: t.Tool, Waiting: waiting, Archives: t.cfg.Archiving(),
		Cluster: seen.cluster, Repository: seen.repository, RTO: seen.rto,
		Certificates: slices.Clone(seen.certificates),
		Objectives: status.Objectives{
			RecoveryPoint: t.cfg.Objectives.RecoveryPoint.Std().Seconds(), VerifiedWithin: t.cfg.Objectives.VerifiedWithin.Std().Seconds(),
			CertificateNotice: t.cfg.Objectives.CertificateNotice.Std().Seconds(),
		},
	}
	s.Cluster.Members = slices.Clone(s.Cluster.Members)
	s.Repository.URL = t.sink.String()
	if archiver != nil {
		state := archiver.State()
		state.Holes, state.Gaps, state.Alarms = filled(state.Holes), filled(state.Gaps), filled(state.Alarms)
		s.Archive = &state
		s.Writer = state.Role == archive.Writer || state.Role == archive.Spooling
		s.Repository.Timeline = state.Timeline
	}
	if runner != nil {
		s.Jobs = runner.Status()
	} else {
		s.Jobs = t.plannedJobs(failed)
	}
	t.describeComparison(s)
	s.RPO = t.rpo(now, s, seen)
	t.describeProblems(s, seen)
	noNil(s)
	return s
}

// noNil makes empty lists of those that are nil: null is no list to a reader.
func noNil(s *status.Status) {
	s.Cluster.Divergent, s.Cluster.Members = filled(s.Cluster.Divergent), filled(s.Cluster.Members)
	r := &s.Repository
	r.Backups, r.Ranges, r.Timelines = filled(r.Backups), filled(r.Ranges), filled(r.Timelines)
	s.Certificates, s.Problems, s.Jobs = filled(s.Certificates), filled(s.Problems), filled(s.Jobs)
}

// filled is a list that is not nil.
func filled[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// plannedJobs are the jobs before the repository was reached, or where none can run.
func (t *term) plannedJobs(failed error) []status.Job {
	var all []status.Job
	for _, e := range t.entries() {
		j := status.Job{Name: e.Name, Schedule: e.Schedule, Off: e.Off}
		switch {
		case e.Off != "":
		case failed != nil:
			j.Off = failed.Error()
		default:
			j.Waiting = "the repository was not reached yet"
		}
		all = append(all, j)
	}
	return all
}

// rpo is what would be lost if everything but the repository burned now.
func (t *term) rpo(now time.Time, s *status.Status, seen observations) status.RPO {
	until := t.point.at()
	newest := seen.newest
	// Full snapshots count, if they are of the history that goes on.
	if newest != nil && (s.Archive == nil || s.Archive.Timeline.ClusterID == 0 || s.Archive.Timeline == newest.Timeline) {
		until = later(until, seen.held[newest.Timeline])
	}
	// What others archive shows in the listing only.
	for _, r := range s.Repository.Ranges {
		if s.Archive == nil && newest != nil && r.Timeline == newest.Timeline && !r.Gap && r.LastIndex >= newest.Facts.RaftIndex && !isDamaged(s, r) {
			until = later(until, earlier(r.To, s.Repository.Listed))
		}
	}
	if newest == nil {
		text := "Everything would be lost: there is no full snapshot."
		if s.Repository.Listed.IsZero() {
			text = "It is not known what would be lost: the repository was not listed yet."
		}
		return status.RPO{Text: text}
	}
	if until.IsZero() {
		return status.RPO{Text: "It is not known what would be lost: no member has confirmed anything yet."}
	}
	lost := max(0, now.Sub(until))
	text := fmt.Sprintf("What was written in the last %s would be lost.", inWords(lost))
	if s.Archive == nil {
		text = fmt.Sprintf("At most what was written in the last %s would be lost, as far as this agent knows, which archives nothing itself.", inWords(lost))
	}
	return status.RPO{Known: true, Until: until.UTC(), Seconds: lost.Seconds(), Text: text}
}

// isDamaged tells that a range begins with a full snapshot that is known to be
// damaged.
func isDamaged(s *status.Status, r walreplay.Range) bool {
	return slices.ContainsFunc(s.Repository.Backups, func(b status.Backup) bool {
		return b.Timeline == r.Timeline && b.ID == r.FirstBackup && b.Damaged != ""
	})
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// inWords is a length of time for people: no more exact than they need it.
func inWords(d time.Duration) string {
	switch {
	case d < time.Second:
		return "1 s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	case d < 72*time.Hour:
		return fmt.Sprintf("%d h", int(d.Round(time.Hour).Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
