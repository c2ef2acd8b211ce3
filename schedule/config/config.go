// Package config is the configuration of an agent: one strict YAML file, or flags
// that set the same keys.
//
// It promises:
//
//  1. Nothing is accepted and then ignored: an unknown key, a key without a value
//     and settings that contradict each other are errors.
//  2. All faults are found at once, and each names the file, the line, the key
//     and what to write.
//  3. Read and Parse look at no other file and at no network; Check looks at the
//     files that are named, and at no network.
//  4. Secrets stay out of errors, and out of every printed form of a Config.
//
// The comment of each key is its text in docs/agent-configuration.md; what
// stands behind "Default:" is the reason for the default.
package config

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/walreplay/archive"
)

// Config is the configuration of one agent. One that Read or Parse gave has its
// defaults filled in and no contradictions.
type Config struct {
	// The agent's name: letters, digits, dots and hyphens. No two agents of one
	// repository may have the same.
	//
	// Default: the host's name.
	Name string `yaml:"name"`

	Etcd       Etcd       `yaml:"etcd"`
	Member     Member     `yaml:"member"`
	Repository Repository `yaml:"repository"`
	Encryption Encryption `yaml:"encryption"`
	Archive    Archive    `yaml:"archive"`
	Jobs       Jobs       `yaml:"jobs"`

	// The time zone of schedules and of `retention`, such as Europe/Berlin.
	//
	// Default: UTC has no summer time.
	TimeZone string `yaml:"time-zone"`

	Retention Retention `yaml:"retention"`
	// Files and directories that a rebuilt cluster needs, as absolute paths. They are
	// stored with each full snapshot, and need encryption.recipients.
	//
	// Default: none. On kubeadm: /etc/kubernetes/pki and the EncryptionConfiguration.
	Attachments []string `yaml:"attachments"`

	Resources  Resources  `yaml:"resources"`
	Objectives Objectives `yaml:"objectives"`
	Listen     Listen     `yaml:"listen"`
	Heartbeat  Heartbeat  `yaml:"heartbeat"`
	Log        Log        `yaml:"log"`

	// Logger hears of requests that are tried again; nil is allowed. It stands in
	// no file: whoever reads the file sets it.
	Logger *slog.Logger `yaml:"-"`

	source `yaml:"-"`
}

// Zone is TimeZone, loaded.
func (c *Config) Zone() *time.Location { return c.zone }

// Archiving reports whether this agent archives a member's log.
func (c *Config) Archiving() bool {
	return c.Archive.Enabled && c.HasMember()
}

// HasMember reports whether the agent stands beside a member, whose files it reads.
func (c *Config) HasMember() bool { return c.Member.DataDir != "" || c.Member.WALDir != "" }

// HasCluster reports whether the agent talks to a cluster; a verifier does not.
func (c *Config) HasCluster() bool { return len(c.Etcd.Endpoints) > 0 }

// Encrypted reports whether what this agent stores is encrypted.
func (c *Config) Encrypted() bool {
	return len(c.Encryption.Recipients) > 0 || len(c.Encryption.RecipientsFiles) > 0
}

// HasIdentities reports whether the agent can read what is encrypted.
func (c *Config) HasIdentities() bool { return len(c.Encryption.IdentityFiles) > 0 }

// derive fills in the defaults that follow from other keys or from the host. What
// cannot be found is left empty, and found missing later.
func (c *Config) derive() {
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	if len(c.Etcd.Endpoints) == 0 && c.HasMember() {
		c.Etcd.Endpoints = []string{client.DefaultEndpoint}
	}
	for _, j := range c.Jobs.All() {
		// Encrypting must not need more than a recipient.
		if j.Reads && c.Encrypted() && !c.HasIdentities() && !c.Given("jobs."+j.Name+".run") {
			j.Timing.Run = RunOff
		}
	}
	if c.Archive.Interval == 0 {
		c.Archive.Interval = yamlfile.Duration(DiskInterval)
		if place.PaysPerRequest(c.Repository.URL) {
			c.Archive.Interval = yamlfile.Duration(archive.DefaultInterval)
		}
	}
	if c.Archive.SpoolDir == "" && c.Archiving() {
		c.Archive.SpoolDir, _ = DefaultSpoolDir(c.getenv, c.Member.DataDir+"\n"+c.Member.WALDir+"\n"+c.Repository.URL)
	}
	if c.Resources.ScratchDir == "" {
		c.Resources.ScratchDir = os.TempDir()
	}
	if c.Objectives.RecoveryPoint == 0 {
		c.Objectives.RecoveryPoint = max(yamlfile.Duration(time.Minute), 6*c.Archive.Interval)
		if !c.Archiving() {
			c.Objectives.RecoveryPoint = yamlfile.Duration(2 * day)
		}
	}
	if zone, err := time.LoadLocation(c.TimeZone); err == nil {
		c.zone = zone
	}
}

// DefaultSpoolDir is a folder below StateDir, one for each member and repository:
// archivers do not share a spool.
func DefaultSpoolDir(getenv func(string) string, of string) (string, error) {
	state, err := StateDir(getenv)
	if err != nil {
		return "", fmt.Errorf("the spool: %w", err)
	}
	sum := sha256.Sum256([]byte(of))
	return filepath.Join(state, fmt.Sprintf("spool-%x", sum[:6])), nil
}

// SeenDir is the folder in which the agent remembers how far its repository reached: below the
// spool if there is one. Empty if no folder is known.
func (c *Config) SeenDir() string {
	if c.Archive.SpoolDir != "" {
		return filepath.Join(c.Archive.SpoolDir, "seen")
	}
	dir, _ := SeenDir(c.getenv)
	return dir
}

// SeenDir is the folder of a user's own commands for the same.
func SeenDir(getenv func(string) string) (string, error) {
	state, err := StateDir(getenv)
	if err != nil {
		return "", err
	}
	return filepath.Join(state, "seen"), nil
}

// StateDir is where this user keeps what outlives a run. A service's own state folder
// comes first, as systemd gives it.
func StateDir(getenv func(string) string) (string, error) {
	service, _, _ := strings.Cut(getenv("STATE_DIRECTORY"), ":") // it may be several
	switch {
	case filepath.IsAbs(service):
		return service, nil
	case filepath.IsAbs(getenv("XDG_STATE_HOME")):
		return filepath.Join(getenv("XDG_STATE_HOME"), "requorum"), nil
	case os.Getuid() == 0:
		return "/var/lib/requorum", nil
	case filepath.IsAbs(getenv("HOME")):
		return filepath.Join(getenv("HOME"), ".local", "state", "requorum"), nil
	}
	return "", errors.New("no folder to keep state in is known: set XDG_STATE_HOME or HOME")
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// DiskInterval is the archive's interval to a folder, where a segment costs
// nothing but a file.
const DiskInterval = time.Second

// Default is the configuration of an empty file, without what follows from other
// keys or from the host.
func Default() *Config {
	timing := func(run Run, schedule string, jitter, timeout time.Duration) Timing {
		return Timing{Run: run, Schedule: schedule, Jitter: yamlfile.Duration(jitter), Timeout: yamlfile.Duration(timeout)}
	}
	return &Config{
		Etcd: Etcd{
			DiscoverEndpoints: true,
			DialTimeout:       yamlfile.Duration(client.DefaultDialTimeout), CommandTimeout: yamlfile.Duration(client.DefaultCommandTimeout),
		},
		Repository: Repository{RetryFor: yamlfile.Duration(time.Minute), Lease: LeaseOn},
		Encryption: Encryption{Level: string(codec.DefaultLevel)},
		Archive:    Archive{Enabled: true, Size: archive.DefaultSize, SpoolLimit: archive.DefaultSpoolLimit},
		Jobs: Jobs{
			Full:       Full{Timing: timing(RunLease, "0 1 * * *", time.Hour, snapshot.DefaultTimeout), MaxLog: 4 << 30},
			Checksum:   Checksum{Timing: timing(RunLease, "30 3 * * *", 10*time.Minute, 6*time.Hour)},
			Structure:  Structure{Timing: timing(RunLease, "", 0, 2*time.Hour), AfterFull: true},
			Replay:     Replay{timing(RunOff, "0 4 * * *", 10*time.Minute, 6*time.Hour)},
			Drill:      Drill{timing(RunOff, "0 5 * * 0", 10*time.Minute, 6*time.Hour)},
			Prune:      Prune{timing(RunLease, "0 6 * * *", 10*time.Minute, time.Hour)},
			Merge:      Merge{timing(RunLease, "@hourly", 10*time.Minute, time.Hour)},
			Divergence: Divergence{timing(RunLease, "0 3 * * 6", 10*time.Minute, 10*time.Minute)},
		},
		TimeZone: "UTC",
		Retention: Retention{
			AnyPoint: yamlfile.Duration(week), Last: 3, Daily: 35, Weekly: 8, Monthly: 12, Minimum: 3, Grace: yamlfile.Duration(day),
		},
		Resources:  Resources{JobMemory: 1 << 30},
		Objectives: Objectives{VerifiedWithin: yamlfile.Duration(2 * day), CertificateNotice: yamlfile.Duration(2 * week)},
		Listen:     Listen{Address: "127.0.0.1:2390"},
		Heartbeat:  Heartbeat{Every: yamlfile.Duration(time.Minute), Timeout: yamlfile.Duration(10 * time.Second)},
		Log:        Log{Format: "text", Level: "info"},
	}
}

// String is the configuration as YAML, with its defaults and without secrets.
func (c *Config) String() string {
	data, err := yaml.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// MarshalJSON is String as JSON, with the same keys.
func (c *Config) MarshalJSON() ([]byte, error) {
	var all map[string]any
	if err := yaml.Unmarshal([]byte(c.String()), &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// LogValue is where the configuration came from.
func (c *Config) LogValue() slog.Value { return slog.StringValue(c.File()) }
