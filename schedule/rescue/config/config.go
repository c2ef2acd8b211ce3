// Package config is the cluster file of `requorum recover`: which hosts a cluster
// has, how the control process of each is reached, and where its backups lie. One
// strict YAML file, kept where the operator works.
//
// It promises what schedule/config promises of the agent's file: nothing is
// accepted and not honoured, all faults are found at once, each with its line, and
// what to write. No password, no key and no credential stands in it.
package config

import "github.com/requorum/requorum/store"

// Guide is the page that has all keys.
const Guide = "docs/quorum-loss.md"

// Config is one that Read or Parse gave: with its defaults, and without
// contradictions. Paths of files are as they were written, and relative ones are
// relative to the folder of the file.
type Config struct {
	// Cluster is what the operator calls it. It has to be typed where the outcome of
	// a recovery is unproven.
	Cluster string  `yaml:"cluster"`
	Control Control `yaml:"control"`
	Etcd    Etcd    `yaml:"etcd"`
	// Repositories hold backups and the archived log: file:// and s3:// URLs.
	// Credentials come from the SDK's own places, never from the URL.
	//
	// Default: none; what the members have is all then.
	Repositories []string `yaml:"repositories"`
	// IdentityFiles open what is encrypted in the repositories.
	//
	// Default: none.
	IdentityFiles []string `yaml:"identity-files"`
	// Recipients and RecipientsFiles are those for whom the full snapshot is
	// encrypted that a recovery ends with: the same as the agents'.
	//
	// Default: none; needed where there are identity files.
	Recipients      []string `yaml:"recipients"`
	RecipientsFiles []string `yaml:"recipients-files"`
	// StateDir is where the journal of a recovery lies, and what was read of the
	// members. Keep it until the cluster is well.
	//
	// Default: the name of the cluster file with .recovery behind it.
	StateDir string `yaml:"state-dir"`
	Hosts    []Host `yaml:"hosts"`

	file string
}

// Control is as whom the control processes are asked.
type Control struct {
	// CA of the control processes' certificates, in PEM.
	CA string `yaml:"ca"`
	// Cert and Key are the operator's, with the roles, in PEM.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Etcd is as whom the cluster itself is asked: whether it serves, and for the
// proof. Names and meanings are etcdctl's.
type Etcd struct {
	CACert string `yaml:"cacert"`
	Cert   string `yaml:"cert"`
	Key    string `yaml:"key"`
	User   string `yaml:"user"`
	// PasswordFile is a file whose first line is the password of User.
	PasswordFile string `yaml:"password-file"`

	// Dial says it all in the place of the keys above, where no file is read; nil
	// otherwise. Its Endpoints are not looked at.
	Dial *store.ClientConfig `yaml:"-"`
	// Endpoints are client URLs of members that no host is known of.
	Endpoints []string `yaml:"-"`
}

// Host is a host that has a member, or is to get one.
type Host struct {
	// Member is the name of the member on it, old or new.
	Member string `yaml:"member"`
	// Control is where its control process listens, such as 10.0.0.1:2391.
	Control string `yaml:"control"`
	// PeerURLs and ClientURLs of the member. Default: those that the cluster knew.
	PeerURLs   []string `yaml:"peer-urls"`
	ClientURLs []string `yaml:"client-urls"`
}

// File is the name of the cluster file, or says that there is none.
func (c *Config) File() string { return c.file }

// Host gives the one of a member, nil where there is none.
func (c *Config) Host(member string) *Host {
	for i := range c.Hosts {
		if c.Hosts[i].Member == member {
			return &c.Hosts[i]
		}
	}
	return nil
}
