package config

import (
	"github.com/requorum/requorum/store/yamlfile"
)

// Jobs are what the agent does on a schedule. Each can be asked for at any time
// as well.
type Jobs struct {
	Full       Full       `yaml:"full"`
	Synthetic  Synthetic  `yaml:"synthetic"`
	Checksum   Checksum   `yaml:"checksum"`
	Structure  Structure  `yaml:"structure"`
	Replay     Replay     `yaml:"replay"`
	Drill      Drill      `yaml:"drill"`
	Prune      Prune      `yaml:"prune"`
	Merge      Merge      `yaml:"merge"`
	Divergence Divergence `yaml:"divergence"`
}

// Timing is when a job runs. All jobs have these keys.
type Timing struct {
	// Where the job runs: `lease`, on the agent that holds the repository's lease; `here`,
	// on this agent whoever holds it; `off`, not on this agent.
	Run Run `yaml:"run"`
	// When: a cron expression of five fields, such as `0 */6 * * *` for every six
	// hours, or @hourly, @daily, @weekly, @monthly, in `time-zone`. A run that was
	// missed while all agents were down is done once.
	Schedule string `yaml:"schedule"`
	// A fixed delay up to this, another one for each repository and job, so that
	// clusters that share a bucket do not all begin at once.
	Jitter yamlfile.Duration `yaml:"jitter"`
	// A run that takes longer is ended, and has failed.
	Timeout yamlfile.Duration `yaml:"timeout"`
}

// Run is where a job runs: lease, here or off.
type Run string

// The values of Run.
const (
	RunLease Run = "lease"
	RunHere  Run = "here"
	RunOff   Run = "off"
)

// Runs tells whether this agent runs the job at all.
func (t Timing) Runs() bool { return t.Run != RunOff }

// Full takes a full snapshot from a member.
type Full struct {
	// Default: once a day, at night: the log leads from there to every point.
	Timing `yaml:",inline"`
	// Also take one when the log since the last is this large, as stored; 0: never.
	//
	// Default: about what replays in the time that a restore may take.
	MaxLog yamlfile.Bytes `yaml:"max-log"`
	// Ask the member for its HashKV at the snapshot's revision. It serves nothing
	// else meanwhile: about a second for 1.4 GB.
	//
	// Default: false; the hash of the stored bytes is computed without the member.
	HashKV bool `yaml:"hashkv"`
	// Read the stored object back whole before it counts.
	//
	// Default: false; S3 compares checksums, and the job checksum reads it anyway.
	ReadBack bool `yaml:"read-back"`
}

// Synthetic makes a full snapshot from the last one and the log, off the cluster.
type Synthetic struct {
	// Default: off: it needs memory for the whole keyspace.
	Timing `yaml:",inline"`
	// Also make one when this many entries of the log have come since; 0: never.
	//
	// Default: about a minute of replaying in a restore.
	Entries uint64 `yaml:"entries"`
}

// Checksum reads what is stored and compares its checksums.
type Checksum struct {
	// Default: daily, after the full snapshot, what is new since the last time.
	Timing `yaml:",inline"`
	// The part of the bytes that is read, in percent.
	//
	// Default: all, and each byte is read once.
	Sample int `yaml:"sample"`
}

// Structure proves that a stored database is one that etcd could have written.
type Structure struct {
	// Default: no schedule: after each full snapshot.
	Timing `yaml:",inline"`
	// Run after each full snapshot.
	//
	// Default: true: a backup counts as verified from then on.
	AfterFull bool `yaml:"after-full"`
}

// Replay proves that the log leads from one full snapshot to the next.
type Replay struct {
	// Default: off, for the same reason; best on a verifier.
	Timing `yaml:",inline"`
}

// Drill restores the newest backup into a scratch cluster on this host and
// reads from it.
type Drill struct {
	// Default: off, for the same reason. It also measures how long a restore takes.
	Timing `yaml:",inline"`
}

// Prune deletes what `retention` does not keep.
type Prune struct {
	// Default: daily, after the verifying jobs, so that what they proved counts.
	Timing `yaml:",inline"`
}

// Merge makes large segments of the log out of small ones.
type Merge struct {
	// Default: hourly: a restore reads few objects, and the bucket stays small.
	Timing `yaml:",inline"`
}

// Divergence compares the members' HashKV.
type Divergence struct {
	// Default: weekly, at the quietest hour: each member pauses for it, about a
	// second for 1.4 GB.
	Timing `yaml:",inline"`
}
