package config

import (
	"fmt"
	"regexp"
	"time"
)

// NamedTiming is one job's timing under its name.
type NamedTiming struct {
	Name   string
	Timing *Timing
	// Reads tells that the job opens what is stored, and so needs an identity
	// where that is encrypted.
	Reads bool
}

// All are the timings of all jobs, in the order of their running.
func (j *Jobs) All() []NamedTiming {
	return []NamedTiming{
		{"full", &j.Full.Timing, false},
		{"synthetic", &j.Synthetic.Timing, true},
		{"checksum", &j.Checksum.Timing, false},
		{"structure", &j.Structure.Timing, true},
		{"replay", &j.Replay.Timing, true},
		{"drill", &j.Drill.Timing, true},
		{"prune", &j.Prune.Timing, false},
		{"merge", &j.Merge.Timing, true},
		{"divergence", &j.Divergence.Timing, false},
	}
}

func (k *checker) jobs() {
	for _, job := range k.Jobs.All() {
		if !job.Timing.Enabled {
			continue
		}
		key := "jobs." + job.Name
		k.refuse(job.Reads && k.Encrypted() && !k.HasIdentities(), key,
			"it has to read what is encrypted, and this agent holds recipients alone: add encryption.identity-files, or write %s.enabled: false here and run the job on a verifier that holds the identity", key)
		k.timing(key, job.Timing)
	}
	k.refuse(k.Jobs.Checksum.Sample < 1 || k.Jobs.Checksum.Sample > 100, "jobs.checksum.sample", "%d: write percent, 1 to 100", k.Jobs.Checksum.Sample)
}

func (k *checker) timing(key string, t *Timing) {
	k.positive(key+".timeout", t.Timeout, time.Second)
	if t.Schedule == "" {
		otherwise := key == "jobs.structure" && k.Jobs.Structure.AfterFull
		k.refuse(!otherwise, key+".schedule", "it would never run: write a cron expression, or %s.enabled: false", key)
		return
	}
	if err := checkSchedule(t.Schedule, k.zone); err != nil {
		k.refuseErr(key+".schedule", err)
		return
	}
	shortest, _ := Periods(t.Schedule, k.zone)
	k.refuse(shortest > 0 && t.Jitter.Std() >= shortest, key+".jitter", "%s is not shorter than the time between two runs (%s): write less", t.Jitter, Duration(shortest))
}

func (k *checker) retention() {
	r := k.Retention
	for _, n := range []struct {
		key   string
		value int
	}{{"last", r.Last}, {"hourly", r.Hourly}, {"daily", r.Daily}, {"weekly", r.Weekly}, {"monthly", r.Monthly}} {
		k.refuse(n.value < 0, "retention."+n.key, "%d is negative: write how many to keep", n.value)
	}
	k.refuse(r.Minimum < 1, "retention.minimum", "%d would let the last backup go: write 1 at least", r.Minimum)
	k.refuse(r.Grace.Std() < day, "retention.grace", "%s is too short for those who read the repository just then: write 24h at least", r.Grace)
}

func (k *checker) companions() {
	seen := map[string]bool{}
	for i, f := range k.Companions {
		key := fmt.Sprintf("companions[%d]", i)
		k.refuse(!name.MatchString(f.Name), key+".name", "%q is no name: write letters, digits, dots and hyphens", f.Name)
		k.refuse(seen[f.Name], key+".name", "%s stands there twice: write another name", f.Name)
		k.refuse(f.Path == "", key+".path", "there is none: write the file's or folder's absolute path")
		k.absolute(key+".path", f.Path)
		seen[f.Name] = true
	}
	k.refuse(len(k.Companions) > 0 && !k.Encrypted(), "companions", "they are secrets, and nothing is encrypted: add encryption.recipients")
	k.refuse(len(k.Companions) > 0 && !k.Jobs.Full.Enabled, "companions", "they are stored with full snapshots, and this agent takes none: remove them, or enable jobs.full")
}

var ionice = regexp.MustCompile(`^(none|idle|best-effort:[0-7])$`)

// leastJobMemory is well above what the smallest database needs. With 30 keys,
// structure, replay and drill pass from 112 MiB on (of 80 half of the attempts died);
// in a build with cgo, whose threads have stacks of 8 MiB each, from 192 (of 160 a
// drill in five died). Below, Go's runtime crashes while the process starts.
const leastJobMemory Bytes = 256 << 20

func (k *checker) resources() {
	r := k.Resources
	k.refuse(r.Nice < 0 || r.Nice > 19, "resources.nice", "%d: write 0 to 19", r.Nice)
	k.refuse(!ionice.MatchString(r.IONice), "resources.ionice", "%q: write none, idle, or best-effort:0 to best-effort:7", r.IONice)
	k.refuse(r.JobMemory < leastJobMemory, "resources.job-memory", "%s is too little for any job: a job's process has spent more before it reads its first byte: write %s at least, and 1GiB for a cluster of a usual size", r.JobMemory, leastJobMemory)
	k.absolute("resources.scratch-dir", r.ScratchDir)
}

func (k *checker) objectives() {
	o := k.Objectives
	k.refuse(k.Archiving() && o.RecoveryPoint < 2*k.Archive.Interval, "objectives.recovery-point", "%s cannot be kept with an archive interval of %s: write twice that at least, or a shorter archive.interval", o.RecoveryPoint, k.Archive.Interval)
	k.positive("objectives.recovery-point", o.RecoveryPoint, time.Second)
	k.positive("objectives.verified-within", o.VerifiedWithin, time.Minute)
	k.absolute("verdicts.sign-key-file", k.Verdicts.SignKeyFile)
	for i, f := range k.Verdicts.TrustedKeyFiles {
		k.absolute(fmt.Sprintf("verdicts.trusted-key-files[%d]", i), f)
	}
}
