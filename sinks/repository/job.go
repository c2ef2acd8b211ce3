package repository

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
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
	// Skipped says that nothing was done: a run of an earlier slot was under way.
	Skipped bool   `json:"skipped,omitempty"`
	Text    string `json:"text,omitempty"`   // what was done, or why it failed, in a sentence
	Backup  string `json:"backup,omitempty"` // the full snapshot that was made
	Bytes   int64  `json:"bytes,omitempty"`  // stored or read
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
	valid := err == nil && errSlot == nil && ValidJob(job) == nil && (!isFailed || failed > 0)
	return job, slot, failed, checkName(name, want, "a job's result", valid)
}

// WriteJobResult writes a slot's result. It fails with sinks.ErrExists where it
// has one: whoever wrote that was first.
func (r *Repository) WriteJobResult(ctx context.Context, j JobResult) error {
	j.Format = Format
	return r.WriteDocument(ctx, JobResultName(j.Job, j.Slot), j)
}

// WriteJobFailed records that an attempt failed.
func (r *Repository) WriteJobFailed(ctx context.Context, j JobResult) error {
	j.Format = Format
	return r.WriteDocument(ctx, JobFailedName(j.Job, j.Slot, j.Attempt), j)
}

// ReadJobResult reads the result, or the record of a failed attempt, called
// name. Damage, and one that belongs elsewhere, is ErrAltered.
func (r *Repository) ReadJobResult(ctx context.Context, name string) (JobResult, error) {
	return Read(ctx, r, name, func(j JobResult) (int, bool, string) {
		calledSo := name == JobResultName(j.Job, j.Slot) || name == JobFailedName(j.Job, j.Slot, j.Attempt)
		return j.Format, calledSo, fmt.Sprintf("of attempt %d at %s of job %s", j.Attempt, j.Slot, j.Job)
	})
}

// SlotState is what names say of one slot of a job.
type SlotState struct {
	Attempt int  // the newest claim's; 0 without any
	Next    int  // the number for the next claim: unsigned ones have names as well
	Failed  bool // that attempt is recorded as failed
	Done    bool // the slot has its result
}

// ReadSlot lists what there is of one slot of a job: two requests. Where signatures
// are checked the documents are read as well, and unsigned ones say nothing.
func (r *Repository) ReadSlot(ctx context.Context, job, slot string) (SlotState, error) {
	var s SlotState
	unsigned := map[int]bool{}
	failed := func(err error) error {
		return fmt.Errorf("look at slot %s of job %s in %s: %w", slot, job, r, err)
	}
	for obj, err := range r.sink.List(ctx, claimsPrefix+job+"/"+slot+"/", "") {
		if err != nil {
			return SlotState{}, failed(err)
		}
		if n, ok := claimAttempt(job, slot, obj.Name); ok {
			if own, err := r.Counts(ctx, obj.Name); err != nil {
				return SlotState{}, failed(err)
			} else if own {
				s.Attempt = max(s.Attempt, n)
			} else {
				unsigned[n] = true
			}
		}
	}
	for s.Next = s.Attempt + 1; unsigned[s.Next]; {
		s.Next++
	}
	// After the claims: a result that is there now is there for good.
	for obj, err := range r.sink.List(ctx, jobsPrefix+job+"/"+slot+".", "") {
		if err != nil {
			return SlotState{}, failed(err)
		}
		done, hasFailed := obj.Name == JobResultName(job, slot), s.Attempt > 0 && obj.Name == JobFailedName(job, slot, s.Attempt)
		if !done && !hasFailed {
			continue
		}
		own, err := r.Counts(ctx, obj.Name)
		if err != nil {
			return SlotState{}, failed(err)
		}
		s.Done, s.Failed = s.Done || done && own, s.Failed || hasFailed && own
	}
	return s, nil
}

const demandInfix = "-demand-"

// SlotName is the name of the slot of a schedule at a time: the same on every
// host. Names of slots are sorted by time.
func SlotName(t time.Time) string { return t.UTC().Format(backupTimeLayout) }

// NewDemandSlot names a run that was asked for now: nobody else's slot.
func NewDemandSlot(now time.Time) string {
	var random [3]byte
	rand.Read(random[:]) // never fails, by its documentation
	return DemandSlot(now, random[:])
}

// DemandSlot names a run that was asked for at a time and for a reason, of whose sum
// the first 3 bytes count: the same for all that ask for it.
func DemandSlot(at time.Time, sum []byte) string {
	return SlotName(at) + demandInfix + hex.EncodeToString(sum[:3])
}

// ParseSlot reads what SlotName or NewDemandSlot wrote.
func ParseSlot(slot string) (at time.Time, demand bool, err error) {
	stamp, random, demand := strings.Cut(slot, demandInfix)
	at, err = time.Parse(backupTimeLayout, stamp)
	// The round trip refuses every second spelling of a name.
	if err == nil && at.UTC().Format(backupTimeLayout) == stamp && (!demand || isLowerHex(random, 6)) {
		return at, demand, nil
	}
	return time.Time{}, false, fmt.Errorf("%q is not a slot: want for example 20260102T010000Z or 20260102T010203Z%s3f9a2c", slot, demandInfix)
}

func isLowerHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

// SlotBackupID is the ID of the full snapshot that a job makes at a slot. It
// follows from the two, so that of several who make it only one can have it.
func SlotBackupID(job, slot string) (string, error) {
	at, _, err := ParseSlot(slot)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(job + "/" + slot))
	return SlotName(at) + "-" + hex.EncodeToString(sum[:3]), nil
}

// ValidJob refuses names of jobs that cannot be part of an object's name.
func ValidJob(job string) error {
	if job == "" || len(job) > 64 || strings.Trim(job, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.Trim(job, "-") != job {
		return fmt.Errorf("%q cannot be the name of a job: want lower-case letters, digits and dashes between them", job)
	}
	return nil
}

const claimsPrefix = "claims/"

// Claim is one attempt at a slot of a job: what is to be done once by one of
// several processes. It is written once and says who set out first; it is no
// lock. Nobody is fenced off by it, so a job's result has a name that follows
// from job and slot, and one that wakes up late loses when it writes that.
type Claim struct {
	Format  int    `json:"format"`
	Job     string `json:"job"`
	Slot    string `json:"slot"`
	Attempt int    `json:"attempt"` // from 1
	Holder  string `json:"holder"`
	// Process is random for each start of the holder, where it makes a
	// difference which of its processes it was.
	Process string `json:"process,omitempty"`
	// Lease is the epoch of the lease under which an agent does it; 0 without one.
	Lease   uint64    `json:"lease,omitempty"`
	Created time.Time `json:"created"` // by the holder's clock; nothing depends on it
}

// WriteClaim writes a claim. It fails with sinks.ErrExists where another one
// made that attempt first.
func (r *Repository) WriteClaim(ctx context.Context, c Claim) error {
	c.Format = Format
	if err := r.WriteDocument(ctx, ClaimName(c.Job, c.Slot, c.Attempt), c); err != nil {
		return fmt.Errorf("claim %s of job %s: %w", c.Slot, c.Job, err)
	}
	return nil
}

// ReadClaim reads the claim of one attempt. Damage, and a claim that belongs
// elsewhere, is ErrAltered.
func (r *Repository) ReadClaim(ctx context.Context, job, slot string, attempt int) (Claim, error) {
	name := ClaimName(job, slot, attempt)
	return Read(ctx, r, name, func(c Claim) (int, bool, string) {
		return c.Format, name == ClaimName(c.Job, c.Slot, c.Attempt), fmt.Sprintf("attempt %d at %s of job %s", c.Attempt, c.Slot, c.Job)
	})
}

// ClaimName is the name of the claim of one attempt.
func ClaimName(job, slot string, attempt int) string {
	return claimsPrefix + job + "/" + slot + "/" + strconv.Itoa(attempt) + documentSuffix
}

// maxAttempt is far above what anybody attempts: a higher number is a stray object's.
const maxAttempt = 1000

// claimAttempt is the attempt whose claim on a slot is called name.
func claimAttempt(job, slot, name string) (int, bool) {
	base := strings.TrimPrefix(name, claimsPrefix+job+"/"+slot+"/")
	n, err := strconv.Atoi(strings.TrimSuffix(base, documentSuffix))
	return n, err == nil && 0 < n && n <= maxAttempt && name == ClaimName(job, slot, n)
}

const (
	leasePrefix = "runner/"
	leaseFormat = leasePrefix + "%016x" + documentSuffix
)

// Lease is a heartbeat of the one agent that runs the jobs of this repository.
// Heartbeats are numbered from 1 on without a hole, each is written once, and the
// newest one counts: whoever wrote it holds the lease. So of a holder that renews
// and another agent that takes over, which both write the next number, one wins.
type Lease struct {
	Format  int    `json:"format"`
	Number  uint64 `json:"number"`
	Epoch   uint64 `json:"epoch"` // the number with which this holder took the lease
	Holder  string `json:"holder"`
	Process string `json:"process"` // random for each start of the holder
	// Released says that the holder gave the lease back.
	Released bool      `json:"released,omitempty"`
	Created  time.Time `json:"created"` // by the holder's clock; nothing depends on it
	// Agent describes the holder; nil if an older version wrote it.
	Agent *Agent `json:"agent,omitempty"`
}

// Agent describes the agent that wrote a document; nothing depends on it.
type Agent struct {
	Name string   `json:"name"`
	Host string   `json:"host,omitempty"`
	Tool string   `json:"tool,omitempty"` // such as "requorum 1.2.3"
	Role string   `json:"role,omitempty"` // of its archiver; empty without one
	Jobs []string `json:"jobs,omitempty"` // that run
	// Keeps is what its retention keeps, in words; empty if it does not prune.
	Keeps string `json:"keeps,omitempty"`
}

// LeaseName is the name of a heartbeat.
func LeaseName(number uint64) string { return fmt.Sprintf(leaseFormat, number) }

// ParseLeaseName reads what LeaseName wrote.
func ParseLeaseName(name string) (number uint64, err error) {
	scan(name, leaseFormat, &number)
	return number, checkName(name, LeaseName(number), "a lease", number > 0)
}

// WriteLease writes a heartbeat. It fails with sinks.ErrExists where somebody else
// wrote that number first.
func (r *Repository) WriteLease(ctx context.Context, l Lease) error {
	l.Format = Format
	return r.WriteDocument(ctx, LeaseName(l.Number), l)
}

// ReadLease reads a heartbeat. Damage, and one that belongs elsewhere, is
// ErrAltered.
func (r *Repository) ReadLease(ctx context.Context, number uint64) (Lease, error) {
	return Read(ctx, r, LeaseName(number), func(l Lease) (int, bool, string) {
		return l.Format, l.Number == number, fmt.Sprintf("heartbeat %d", l.Number)
	})
}

// NewestLease is the number of the newest heartbeat behind from, which is from
// itself where none is: one request as a rule. Heartbeats have no hole, so what lies
// behind one was written by somebody else: it does not count, and stray names the
// first of it. What took the numbers from 1 on before there was a heartbeat is passed
// over: the next one comes after it.
func (r *Repository) NewestLease(ctx context.Context, from uint64) (newest uint64, stray string, err error) {
	after := ""
	if from > 0 {
		after = LeaseName(from)
	}
	newest = from
	var runs [][2]uint64 // numbers without a hole, from the first to the last
	for obj, err := range r.sink.List(ctx, leasePrefix, after) {
		if err != nil {
			return 0, "", fmt.Errorf("list the heartbeats of the lease in %s: %w", r, err)
		}
		n, err := ParseLeaseName(obj.Name)
		switch last := len(runs) - 1; {
		case err != nil:
		case last >= 0 && runs[last][1]+1 == n:
			runs[last][1] = n
		case last < 0 && from > 0 && n == from+1:
			runs = append(runs, [2]uint64{from, n})
		default:
			runs = append(runs, [2]uint64{n, n})
		}
	}
	if len(runs) > 0 && runs[0][0] == 1 {
		newest = runs[0][1] // where none counts
	}
	for i := len(runs) - 1; i >= 0; i-- {
		if counts, err := r.leasesCount(ctx, from, runs[i]); err != nil {
			return 0, "", err
		} else if !counts {
			stray = LeaseName(runs[i][0])
			runs = slices.Delete(runs, i, i+1)
		}
	}
	if len(runs) == 0 {
		return newest, stray, nil
	}
	// The heartbeats are those that go on from the known one. Where that is not known, or
	// was removed with the old ones, they are the last of which there are several.
	at := len(runs) - 1
	if runs[0][0] == from {
		at = 0
	} else {
		for ; at >= 0 && runs[at][0] == runs[at][1]; at-- {
		}
		switch {
		case at < 0 && from > 0:
			return from, LeaseName(runs[0][0]), nil
		case at < 0:
			at = len(runs) - 1
		}
	}
	if at+1 < len(runs) {
		stray = LeaseName(runs[at+1][0])
	}
	return runs[at][1], stray, nil
}

// leasesTried is how many heartbeats at the end of a run are looked at for one that
// counts, and then how many all over it: two days of heartbeats are there, and hide only
// among very many others.
const leasesTried = 64

// leasesCount reports whether one of a run of heartbeats counts, as far as was looked:
// nobody else decides where the numbers go on. A run that goes on from a known heartbeat
// does.
func (r *Repository) leasesCount(ctx context.Context, from uint64, run [2]uint64) (bool, error) {
	if run[0] == from {
		return true, nil
	}
	last := run[1] - run[0] // by offset: the highest number there is has none after it
	tries := make([]uint64, 0, 2*leasesTried)
	for i := range min(last, leasesTried-1) + 1 {
		tries = append(tries, last-i)
	}
	if last >= leasesTried {
		for i := range uint64(leasesTried) {
			tries = append(tries, last/leasesTried*i)
		}
	}
	for _, offset := range tries {
		if counts, err := r.leaseCounts(ctx, run[0]+offset); counts || err != nil {
			return counts, err
		}
	}
	return false, nil
}

// leaseCounts reports whether a heartbeat is neither unsigned nor damaged. One that may not
// be read, or not by this version, counts by its name where signatures are not checked.
func (r *Repository) leaseCounts(ctx context.Context, number uint64) (bool, error) {
	if r.Checks() {
		return r.Counts(ctx, LeaseName(number))
	}
	_, err := r.ReadLease(ctx, number)
	switch {
	case errors.Is(err, ErrAltered):
		return false, nil
	case errors.Is(err, sinks.ErrNotFound), errors.Is(err, sinks.ErrDenied), errors.Is(err, ErrNewerFormat):
		return true, nil
	}
	return err == nil, err
}
