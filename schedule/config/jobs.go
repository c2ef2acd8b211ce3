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
	// A cron expression of five fields, such as `0 */6 * * *`, or @hourly, @daily,
	// @weekly, @monthly, in `time-zone`. A run missed while all agents were down is
	// done once.
	Schedule string `yaml:"schedule"`
	// A delay up to this, fixed for each repository and job, so that clusters do not
	// all begin at once.
	Jitter yamlfile.Duration `yaml:"jitter"`
	// A longer run is ended, and has failed.
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

// Runs reports whether this agent runs the job at all.
func (t Timing) Runs() bool { return t.Run != RunOff }

// Full takes a full snapshot from a member.
type Full struct {
	// Default: nightly: the log leads from there to every point.
	Timing `yaml:",inline"`
	// Also take one when the log since the last is this large, as stored; 0: never.
	//
	// Default: a replay of more takes long.
	MaxLog yamlfile.Bytes `yaml:"max-log"`
	// Ask the member for its HashKV at the snapshot's revision. It serves nothing
	// else meanwhile: about a second for 1.4 GB.
	//
	// Default: the hash of the stored bytes needs no member.
	HashKV bool `yaml:"hashkv"`
	// Read the stored object back whole before it counts.
	//
	// Default: the job checksum reads it anyway.
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
	// Default: daily, what is new.
	Timing `yaml:",inline"`
}

// Structure proves that a stored database is one that etcd could have written.
type Structure struct {
	// Default: no schedule: after each full snapshot.
	Timing `yaml:",inline"`
	// Run after each full snapshot.
	//
	// Default: a backup counts as verified from then on.
	AfterFull bool `yaml:"after-full"`
}

// Replay proves that the log leads from one full snapshot to the next.
type Replay struct {
	// Default: off: likewise.
	Timing `yaml:",inline"`
}

// Drill restores the newest backup into a scratch cluster on this host and
// reads from it.
type Drill struct {
	// Default: off: likewise. It also measures how long a restore takes.
	Timing `yaml:",inline"`
}

// Prune deletes what `retention` does not keep.
type Prune struct {
	// Default: daily, after the verifying jobs.
	Timing `yaml:",inline"`
}

// Merge makes large segments of the log out of small ones.
type Merge struct {
	// Default: hourly: a restore reads few objects.
	Timing `yaml:",inline"`
}

// Divergence compares the members' HashKV.
type Divergence struct {
	// Default: weekly, at the quietest hour: each member pauses for it, about a
	// second for 1.4 GB.
	Timing `yaml:",inline"`
}
