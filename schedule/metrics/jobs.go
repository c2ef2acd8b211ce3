package metrics

import (
	"time"

	"github.com/requorum/requorum/schedule/status"
)

// jobs are the jobs' last and next runs, by whichever agent.
func jobs() []metric {
	each := func(value func(status.Job) float64) func(*status.Status, emit) {
		return func(s *status.Status, emit emit) {
			for _, j := range s.Jobs {
				emit(value(j), j.Name)
			}
		}
	}
	// last is a metric of the newest finished run, absent where there is none.
	last := func(value func(*status.Run) float64) func(*status.Status, emit) {
		return func(s *status.Status, emit emit) {
			for _, j := range s.Jobs {
				if j.Last != nil {
					emit(value(j.Last), j.Name)
				}
			}
		}
	}
	return []metric{
		gauge("job_enabled", "1 where the job may run on this agent.",
			each(func(j status.Job) float64 { return yes(j.Off == "") }), "job_name"),
		gauge("job_running", "1 while the job runs on this agent.",
			each(func(j status.Job) float64 { return yes(j.Running != nil) }), "job_name"),
		gauge("job_last_start_timestamp_seconds", "When the job was last started, by any agent. 0: never.",
			each(func(j status.Job) float64 { return timestamp(lastStart(j)) }), "job_name"),
		gauge("job_last_success_timestamp_seconds", "When the job last succeeded, by any agent. 0: never.",
			each(func(j status.Job) float64 { return timestamp(finished(j.LastSuccess)) }), "job_name"),
		gauge("job_last_failure_timestamp_seconds", "When the job last failed, by any agent. 0: never.",
			each(func(j status.Job) float64 { return timestamp(finished(j.LastFailure)) }), "job_name"),
		gauge("job_next_run_timestamp_seconds", "When the job is due next; absent where it has no schedule here.",
			func(s *status.Status, emit emit) {
				for _, j := range s.Jobs {
					if !j.Next.IsZero() {
						emit(timestamp(j.Next), j.Name)
					}
				}
			}, "job_name"),
		gauge("job_schedule_interval_seconds", "Longest time between two runs as scheduled; absent where the job has no schedule here, or is off.",
			func(s *status.Status, emit emit) {
				for _, j := range s.Jobs {
					if longest := interval(j.Schedule); j.Off == "" && longest > 0 {
						emit(longest.Seconds(), j.Name)
					}
				}
			}, "job_name"),
		gauge("job_last_duration_seconds", "How long the newest finished run took.",
			last(func(r *status.Run) float64 { return max(0, r.Finished.Sub(r.Started).Seconds()) }), "job_name"),
		gauge("job_last_attempts", "How many attempts it took; more than 1 are retries, by this agent or another.",
			last(func(r *status.Run) float64 { return float64(r.Attempt) }), "job_name"),
		gauge("job_last_bytes", "Bytes that it stored or read.",
			last(func(r *status.Run) float64 { return float64(r.Bytes) }), "job_name"),
	}
}

func lastStart(j status.Job) time.Time {
	var start time.Time
	for _, r := range []*status.Run{j.Last, j.LastSuccess, j.LastFailure, j.Running} {
		if r != nil && r.Started.After(start) {
			start = r.Started
		}
	}
	return start
}

func finished(r *status.Run) time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.Finished
}
