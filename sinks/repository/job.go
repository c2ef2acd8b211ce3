package repository

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	jobsPrefix  = "jobs/"
	failedInfix = ".failed-"
)

// JobResult says how a job ended at a slot. It is written once, by whoever did
// it: with it the slot is done, and who finds it there has lost. That an attempt
// failed which another may follow is a document of the same form, under another
// name.
type JobResult struct {
	Format   int       `json:"format"`
	Job      string    `json:"job"`
	Slot     string    `json:"slot"`
	Attempt  int       `json:"attempt"`
	Holder   string    `json:"holder"`
	Started  time.Time `json:"started"`  // by the holder's clock, as Finished
	Finished time.Time `json:"finished"` // nothing depends on it
	OK       bool      `json:"ok"`
	// Skipped tells that nothing was done: a run of an earlier slot was under way.
	Skipped bool   `json:"skipped,omitempty"`
	Text    string `json:"text,omitempty"`   // what was done, or why it failed, in a sentence
	Backup  string `json:"backup,omitempty"` // the full snapshot that was made
	Bytes   int64  `json:"bytes,omitempty"`  // stored or read
	Verdict uint64 `json:"verdict,omitempty"`
	// Detail is what the job has to say beyond that, in a form of its own.
	Detail json.RawMessage `json:"detail,omitempty"`
}

// JobResultName is the name of a slot's result.
func JobResultName(job, slot string) string {
	return jobsPrefix + job + "/" + slot + documentSuffix
}

// JobFailedName is the name of the record that an attempt failed.
func JobFailedName(job, slot string, attempt int) string {
	return jobsPrefix + job + "/" + slot + failedInfix + strconv.Itoa(attempt) + documentSuffix
}

// ParseJobName reads what JobResultName or JobFailedName wrote; failed is the
// attempt that failed, 0 for a result.
func ParseJobName(name string) (job, slot string, failed int, err error) {
	rest, _ := strings.CutPrefix(name, jobsPrefix)
	job, rest, _ = strings.Cut(rest, "/")
	slot, attempt, isFailed := strings.Cut(strings.TrimSuffix(rest, documentSuffix), failedInfix)
	want := JobResultName(job, slot)
	if isFailed {
		failed, err = strconv.Atoi(attempt)
		want = JobFailedName(job, slot, failed)
	}
	_, _, errSlot := ParseSlot(slot)
	// The round trip refuses every second spelling of a name.
	if err != nil || errSlot != nil || ValidJob(job) != nil || isFailed && failed < 1 || want != name {
		return "", "", 0, fmt.Errorf("%q is not the name of a job's result", name)
	}
	return job, slot, failed, nil
}

// WriteJobResult writes a slot's result. It fails with sinks.ErrExists where it
// has one: whoever wrote that was first.
func (r *Repository) WriteJobResult(ctx context.Context, j JobResult) error {
	j.Format = Format
	return r.writeUnlocked(ctx, JobResultName(j.Job, j.Slot), j)
}

// WriteJobFailed records that an attempt failed.
func (r *Repository) WriteJobFailed(ctx context.Context, j JobResult) error {
	j.Format = Format
	return r.writeUnlocked(ctx, JobFailedName(j.Job, j.Slot, j.Attempt), j)
}

// ReadJobResult reads the result, or the record of a failed attempt, called
// name. Damage, and one that belongs elsewhere, is ErrAltered.
func (r *Repository) ReadJobResult(ctx context.Context, name string) (JobResult, error) {
	var j JobResult
	if err := r.ReadDocument(ctx, name, &j); err != nil {
		return JobResult{}, err
	}
	calledSo := name == JobResultName(j.Job, j.Slot) || name == JobFailedName(j.Job, j.Slot, j.Attempt)
	if err := r.belongs(name, j.Format, calledSo, fmt.Sprintf("of attempt %d at %s of job %s", j.Attempt, j.Slot, j.Job)); err != nil {
		return JobResult{}, err
	}
	return j, nil
}

// SlotState is what names tell of one slot of a job.
type SlotState struct {
	Attempt int  // the newest claim's; 0 without any
	Beat    int  // the newest beat's of that attempt; 0 without any
	Failed  bool // that attempt is recorded as failed
	Done    bool // the slot has its result
}

// ReadSlot lists what there is of one slot of a job: two requests.
func (r *Repository) ReadSlot(ctx context.Context, job, slot string) (SlotState, error) {
	var s SlotState
	failed := func(err error) error {
		return fmt.Errorf("look at slot %s of job %s in %s: %w", slot, job, r, err)
	}
	beats := map[int]int{}
	for obj, err := range r.sink.List(ctx, claimsPrefix+job+"/"+slot+"/", "") {
		if err != nil {
			return SlotState{}, failed(err)
		}
		if n, ok := claimAttempt(job, slot, obj.Name); ok {
			s.Attempt = max(s.Attempt, n)
		}
		if _, _, attempt, n, err := ParseBeatName(obj.Name); err == nil {
			beats[attempt] = max(beats[attempt], n)
		}
	}
	s.Beat = beats[s.Attempt]
	// After the claims: a result that is there now is there for good.
	for obj, err := range r.sink.List(ctx, jobsPrefix+job+"/"+slot+".", "") {
		if err != nil {
			return SlotState{}, failed(err)
		}
		s.Done = s.Done || obj.Name == JobResultName(job, slot)
		s.Failed = s.Failed || s.Attempt > 0 && obj.Name == JobFailedName(job, slot, s.Attempt)
	}
	return s, nil
}
