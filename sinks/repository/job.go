package repository

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const jobsPrefix = "jobs/"

// JobRecord is what is recorded of a run of a job at a slot. Each is written once: whoever
// finds one of that name was not the first.
type JobRecord struct {
	Format  int    `json:"format"`
	Job     string `json:"job"`
	Slot    string `json:"slot"`
	Attempt int    `json:"attempt"` // from 1
	Holder  string `json:"holder"`  // the agent that runs it
	// Process is random for each start of the holder.
	Process  string    `json:"process"`
	Started  time.Time `json:"started"` // by the holder's clock, as Finished
	Finished time.Time `json:"finished,omitzero"`
	OK       bool      `json:"ok"`
	Text     string    `json:"text,omitempty"`   // what was done, or why it failed, in a sentence
	Backup   string    `json:"backup,omitempty"` // the full snapshot that was made
	Bytes    int64     `json:"bytes,omitempty"`  // stored or read
	// Damaged says that the run failed because it found damage in the repository.
	Damaged bool `json:"damaged,omitempty"`
	// Detail is what the job has to say beyond that, in a form of its own.
	Detail json.RawMessage `json:"detail,omitempty"`
	Agent  *Agent          `json:"agent,omitempty"` // describes the holder
}

// JobKind is the kind of a JobRecord.
type JobKind string

// The kinds of JobRecord. JobDone ends a slot, and so does JobFailed without an attempt in
// its name; the others are about one attempt.
const (
	JobDone    JobKind = ""
	JobFailed  JobKind = "failed"
	JobBegun   JobKind = "attempt"
	JobBeat    JobKind = "beat"    // the attempt is under way still
	JobStopped JobKind = "stopped" // with its agent: it does not count
)

// JobName is the name of a JobRecord.
type JobName struct {
	Job, Slot string
	Kind      JobKind
	Attempt   int
	Beat      int // from 1; 0 for other kinds
}

func (n JobName) String() string {
	kind := string(n.Kind)
	if n.Attempt > 0 {
		kind += "-" + strconv.Itoa(n.Attempt)
	}
	if n.Beat > 0 {
		kind += "-" + strconv.Itoa(n.Beat)
	}
	if kind != "" {
		kind = "." + kind
	}
	return jobsPrefix + n.Job + "/" + n.Slot + kind + documentSuffix
}

// Final reports whether the record ends the slot.
func (n JobName) Final() bool { return n.Attempt == 0 }

// maxAttempt is far above what any agent attempts: a higher number is a stray object's.
const maxAttempt = 1000

// ParseJobName reads what JobName.String wrote.
func ParseJobName(name string) (n JobName, err error) {
	rest, _ := strings.CutPrefix(name, jobsPrefix)
	n.Job, rest, _ = strings.Cut(rest, "/")
	n.Slot, rest, _ = strings.Cut(strings.TrimSuffix(rest, documentSuffix), ".")
	kind, rest, _ := strings.Cut(rest, "-")
	attempt, beat, _ := strings.Cut(rest, "-")
	n.Kind = JobKind(kind)
	n.Attempt, _ = strconv.Atoi(attempt) // the name is made again of what was read
	n.Beat, _ = strconv.Atoi(beat)
	_, _, err = ParseSlot(n.Slot)
	valid := err == nil && ValidJob(n.Job) == nil && 0 <= n.Attempt && n.Attempt <= maxAttempt && (n.Beat > 0) == (n.Kind == JobBeat)
	switch n.Kind {
	case JobDone:
		valid = valid && n.Attempt == 0
	case JobBegun, JobBeat, JobStopped:
		valid = valid && n.Attempt > 0
	case JobFailed:
	default:
		valid = false
	}
	return n, checkName(name, n.String(), "a record of a job", valid)
}

// WriteJob writes a record. It fails with sinks.ErrExists if there is one of that name.
func (r *Repository) WriteJob(ctx context.Context, n JobName, j JobRecord) error {
	j.Format = Format
	if err := r.WriteDocument(ctx, n.String(), j); err != nil {
		return fmt.Errorf("record attempt %d at slot %s of job %s: %w", j.Attempt, j.Slot, j.Job, err)
	}
	return nil
}

// ReadJob reads a record. Damage, and one that belongs elsewhere, is ErrAltered.
func (r *Repository) ReadJob(ctx context.Context, n JobName) (JobRecord, error) {
	return Read(ctx, r, n.String(), func(j JobRecord) (int, bool, string) {
		calledSo := j.Job == n.Job && j.Slot == n.Slot && (n.Final() || n.Attempt == j.Attempt) && j.OK == (n.Kind == JobDone)
		return j.Format, calledSo, fmt.Sprintf("attempt %d at %s of job %s", j.Attempt, j.Slot, j.Job)
	})
}

// SlotState is what the names of the records show of one slot of a job.
type SlotState struct {
	Slot     string
	Attempts int  // that were begun and not stopped with their agent
	Newest   int  // the number of the newest; 0 without any
	Beats    int  // of that one
	Ended    bool // that one has ended
	Next     int  // the number for the next: unsigned ones have names as well
	Done     bool // the slot has its result
	OK       bool // and that is a success
}

// ReadSlots lists the records of a job: of all slots that have any, from one to another,
// which is the last of the result in any case. It makes one request, as a rule. If
// signatures are checked the documents are read as well, and unsigned ones do not count.
func (r *Repository) ReadSlots(ctx context.Context, job, from, to string) ([]SlotState, error) {
	var all []SlotState
	taken := map[int]bool{} // of the last one
	begin := func(slot string) *SlotState {
		if n := len(all); n == 0 || all[n-1].Slot != slot {
			all = append(all, SlotState{Slot: slot, Next: 1})
			clear(taken)
		}
		return &all[len(all)-1]
	}
	folder := jobsPrefix + job + "/"
	for obj, err := range r.sink.List(ctx, folder, folder+from) {
		if err == nil && obj.Name > folder+to+"/" { // behind the records of the last slot: "." sorts before "/"
			break
		}
		n, stray := ParseJobName(obj.Name)
		own := false
		if err == nil && stray == nil {
			own, err = r.Counts(ctx, obj.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("list the records of job %s in %s: %w", job, r, err)
		}
		if stray != nil {
			continue
		}
		s := begin(n.Slot)
		// The attempts come first: they are listed in the order of names.
		if n.Kind == JobBegun {
			for taken[n.Attempt] = true; taken[s.Next]; {
				s.Next++
			}
		}
		switch {
		case !own:
		case n.Final():
			s.Done, s.OK = true, s.OK || n.Kind == JobDone
		case n.Kind == JobBegun:
			s.Attempts, s.Newest = s.Attempts+1, max(s.Newest, n.Attempt)
		case n.Kind == JobBeat && n.Attempt == s.Newest:
			s.Beats++
		case n.Kind != JobBeat:
			s.Ended = s.Ended || n.Attempt == s.Newest
			if n.Kind == JobStopped {
				s.Attempts--
			}
		}
	}
	begin(to)
	return all, nil
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
