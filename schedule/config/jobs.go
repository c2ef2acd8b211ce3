package config

import (
	"fmt"

	"github.com/requorum/requorum/store/yamlfile"
)

// Jobs are what the agent does on a schedule. `jobs: none` (`--jobs none`) leaves the full
// snapshots that the archived log needs, and `merge`.
type Jobs struct {
	Full       Full       `yaml:"full"`
	Checksum   Checksum   `yaml:"checksum"`
	Structure  Structure  `yaml:"structure"`
	Replay     Replay     `yaml:"replay"`
	Drill      Drill      `yaml:"drill"`
	Prune      Prune      `yaml:"prune"`
	Merge      Merge      `yaml:"merge"`
	Divergence Divergence `yaml:"divergence"`
}

// UnmarshalText reads `default` or `none`, in place of the jobs' own keys.
func (j *Jobs) UnmarshalText(text []byte) error {
	switch string(text) {
	case "default":
	case "none":
		for _, one := range j.All() {
			if one.Name != "full" && one.Name != "merge" {
				one.Timing.Run = RunOff
			}
		}
		j.Full.Schedule, j.Full.MaxLog = "", 0
	default:
		return fmt.Errorf("%q is not known: write default or none", text)
	}
	return nil
}

// Timing is when a job runs. All jobs have these keys.
type Timing struct {
	// Where the job runs: `lease`, on one of the agents, first on the one that writes the
	// archive; `here`, on this agent without leaving it to that one first; `off`, not on this agent.
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

// Shared are the jobs that run on one of several agents, by name.
func (j *Jobs) Shared() map[string]bool {
	all := map[string]bool{}
	for _, one := range j.All() {
		all[one.Name] = one.Timing.Run == RunLease
	}
	return all
}

// Runs reports whether this agent runs the job at all.
func (t Timing) Runs() bool { return t.Run != RunOff }

// Full takes a full snapshot from a member; without a schedule, only when the archived
// log needs one.
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

// Checksum reads what is stored and compares its checksums.
type Checksum struct {
	// Default: daily, what is new.
	Timing `yaml:",inline"`
}

// Structure proves that a stored database is one that etcd could have written.
type Structure struct {
	// Default: no schedule: after each full snapshot. Off if the agent cannot decrypt
	// what it stores.
	Timing `yaml:",inline"`
	// Run after each full snapshot.
	//
	// Default: a backup counts as verified from then on.
	AfterFull bool `yaml:"after-full"`
}

// Replay proves that the log leads from one full snapshot to the next.
type Replay struct {
	// Default: off: it needs memory for the whole keyspace.
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
	// Default: hourly: a restore reads few objects. Off if the agent cannot decrypt what
	// it stores.
	Timing `yaml:",inline"`
}

// Divergence compares the members' HashKV.
type Divergence struct {
	// Default: weekly, at the quietest hour: each member pauses for it, about a
	// second for 1.4 GB.
	Timing `yaml:",inline"`
}
