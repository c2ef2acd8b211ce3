// Package config is the configuration of an agent: one strict YAML file.
//
// It promises:
//
//  1. Nothing is accepted and not honoured: an unknown key, a key without a value
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
	"log/slog"
	"time"
)

// Config is the configuration of one agent. One that Read or Parse gave has its
// defaults filled in and no contradictions.
type Config struct {
	// The agent's name, in claims, results and logs: letters, digits, dots and
	// hyphens. No two agents of one repository may have the same.
	//
	// Default: the host's name, which is unique where one agent runs on a host.
	Name string `yaml:"name"`

	Etcd       Etcd       `yaml:"etcd"`
	Member     Member     `yaml:"member"`
	Repository Repository `yaml:"repository"`
	Encryption Encryption `yaml:"encryption"`
	Archive    Archive    `yaml:"archive"`
	Jobs       Jobs       `yaml:"jobs"`

	// The time zone of all schedules, and of the days, weeks and months of
	// `retention`, as the tz database names it, such as Europe/Berlin.
	//
	// Default: UTC has no hours that come twice or not at all.
	TimeZone string `yaml:"time-zone"`

	Retention Retention `yaml:"retention"`
	// Files that a cluster cannot be rebuilt without, stored with each full
	// snapshot. They are secrets, so encryption.recipients are needed.
	//
	// Default: none; only you know which they are. On kubeadm: /etc/kubernetes/pki
	// and the EncryptionConfiguration.
	Companions []Companion `yaml:"companions"`

	Resources  Resources  `yaml:"resources"`
	Objectives Objectives `yaml:"objectives"`
	Verdicts   Verdicts   `yaml:"verdicts"`
	Listen     Listen     `yaml:"listen"`
	Heartbeat  Heartbeat  `yaml:"heartbeat"`
	Webhook    Webhook    `yaml:"webhook"`
	Log        Log        `yaml:"log"`

	// Logger hears of requests that are tried again; nil is allowed. It stands in
	// no file: whoever reads the file sets it.
	Logger *slog.Logger `yaml:"-"`

	source `yaml:"-"`
}

// Zone is TimeZone, loaded.
func (c *Config) Zone() *time.Location { return c.zone }

// Archiving tells whether this agent archives a member's log.
func (c *Config) Archiving() bool {
	return c.Archive.Enabled && c.HasMember()
}

// HasMember tells whether the agent stands beside a member, whose files it reads.
func (c *Config) HasMember() bool { return c.Member.DataDir != "" || c.Member.WALDir != "" }

// HasCluster tells whether the agent talks to a cluster; a verifier does not.
func (c *Config) HasCluster() bool { return len(c.Etcd.Endpoints) > 0 }

// Encrypted tells whether what this agent stores is encrypted.
func (c *Config) Encrypted() bool {
	return len(c.Encryption.Recipients) > 0 || len(c.Encryption.RecipientsFiles) > 0
}

// HasIdentities tells whether the agent can read what is encrypted.
func (c *Config) HasIdentities() bool { return len(c.Encryption.IdentityFiles) > 0 }
