package metrics

import (
	"cmp"
	"runtime"
	"slices"
	"strings"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/walreplay/archive"
)

// agent are the agent's own state, its problems, and what it depends on.
func agent() []metric {
	return []metric{
		gauge("build_info", "Always 1; the labels say which requorum runs, built with which Go.",
			func(s *status.Status, emit emit) {
				emit(1, strings.TrimPrefix(s.Tool, "requorum "), runtime.Version())
			}, "version", "go_version"),
		gauge("agent_info", "Always 1; the labels say which agent of which cluster this is and which repository it uses, as far as it knows.",
			func(s *status.Status, emit emit) { emit(1, s.Agent, s.Cluster.ID, s.Repository.ID) },
			"agent", "cluster_id", "repository_id"),
		gauge("agent_start_timestamp_seconds", "When the agent started.",
			one(func(s *status.Status) float64 { return timestamp(s.Started) })),
		gauge("status_timestamp_seconds", "When the agent put these values together.",
			one(func(s *status.Status) float64 { return timestamp(s.Time) })),
		gauge("ready", "1 while no problem is critical, as /readyz says.",
			one(func(s *status.Status) float64 { ready, _ := s.Ready(); return yes(ready) })),
		gauge("agent_waiting", "1 while the agent does no jobs, because another one is the named writer.",
			one(func(s *status.Status) float64 { return yes(s.Waiting != "") })),
		gauge("problems", "Problems that last, by kind; the API and the status page say what is wrong and what to do.",
			problems, "kind"),
		gauge("certificate_expiry_timestamp_seconds", "When a certificate that the agent depends on expires. 0: it could not be read.",
			certificates, "use", "place"),
		gauge("certificate_notice_objective_seconds", "How long before that it is to be renewed, as configured.",
			one(func(s *status.Status) float64 { return s.Objectives.CertificateNotice })),
	}
}

// kinds are those of all problems, so that each has a value before it first
// comes.
func kinds() []string {
	own := []string{
		status.KindCluster, status.KindMember, status.KindRemote, status.KindRepository, status.KindRecoveryPoint, status.KindJob,
		status.KindLate, status.KindVerify, status.KindUnverified, status.KindDivergent, status.KindCorrupt,
		status.KindRetention, status.KindCertificate, status.KindCanary, status.KindWriter, status.KindSpace,
		status.KindConfig, status.KindHeartbeat,
	}
	for _, a := range alarms() {
		own = append(own, string(a))
	}
	return own
}

func alarms() []archive.Alarm {
	return []archive.Alarm{
		archive.AlarmStalled, archive.AlarmBehind, archive.AlarmMember, archive.AlarmRepository, archive.AlarmSpool,
		archive.AlarmSpoolFull, archive.AlarmGap, archive.AlarmClock, archive.AlarmRolledBack, archive.AlarmTimeline,
		archive.AlarmDamaged, archive.AlarmLog, archive.AlarmRestarted,
	}
}

func problems(s *status.Status, emit emit) {
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
func certificates(s *status.Status, emit emit) {
	expiry := func(c status.Certificate) float64 {
		if c.Error != "" {
			return 0
		}
		return timestamp(c.Expires)
	}
	sorted := slices.Clone(s.Certificates)
	slices.SortStableFunc(sorted, func(a, b status.Certificate) int { return cmp.Compare(expiry(a), expiry(b)) })
	for _, c := range sorted {
		emit(expiry(c), c.Use, c.Place)
	}
}
