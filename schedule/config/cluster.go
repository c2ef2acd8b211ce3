package config

import (
	"github.com/requorum/requorum/store/yamlfile"
)

// Etcd is how the agent reaches the cluster. Names and meanings are etcdctl's.
type Etcd struct {
	// Client URLs of the members, this host's first. None: a verifier, whose jobs
	// full and divergence have to be off.
	//
	// Default: 127.0.0.1:2379 if there is a `member`.
	Endpoints []string `yaml:"endpoints"`
	// Also use the client URLs that the members advertise.
	//
	// Default: a new member needs no change here.
	DiscoverEndpoints bool `yaml:"discover-endpoints"`
	// File with the CA of the members' certificates. Renewed TLS files
	// need no restart.
	//
	// Default: the system's authorities.
	CACert string `yaml:"cacert"`
	// File with the client certificate.
	//
	// Default: needed where etcd runs with --client-cert-auth.
	Cert string `yaml:"cert"`
	// File with the key of `cert`.
	//
	// Default: none.
	Key string `yaml:"key"`
	// User of etcd's own authentication. Full snapshots need the root role, the
	// archive any user.
	//
	// Default: the client certificate's common name.
	User string `yaml:"user"`
	// File whose first line is the password of `user`. Or the variable
	// REQUORUM_ETCD_PASSWORD or ETCDCTL_PASSWORD.
	//
	// Default: none.
	PasswordFile string `yaml:"password-file"`
	// One attempt to connect takes at most this.
	//
	// Default: none.
	DialTimeout yamlfile.Duration `yaml:"dial-timeout"`
	// One short request takes at most this: a status, a barrier, a login.
	//
	// Default: none.
	CommandTimeout yamlfile.Duration `yaml:"command-timeout"`
}

// Member is the member that the agent stands beside. Without one the agent
// archives nothing.
type Member struct {
	// The member's data directory. Its log and its database
	// are read; nothing in it is changed.
	//
	// Default: none.
	DataDir string `yaml:"data-dir"`
	// The member's --wal-dir.
	//
	// Default: etcd's own, member/wal in `data-dir`.
	WALDir string `yaml:"wal-dir"`
}

// Repository is where everything is stored.
type Repository struct {
	// file:///path or s3://bucket/prefix?region=…, see s3.md. Without credentials.
	//
	// Default: none.
	URL string `yaml:"url"`
	// Bytes written a second, at most, such as 50MiB.
	//
	// Default: no limit: a slow snapshot makes the member's database grow.
	LimitUpload yamlfile.Bytes `yaml:"limit-upload"`
	// Bytes read a second, at most.
	//
	// Default: none.
	LimitDownload yamlfile.Bytes `yaml:"limit-download"`
	// How long a request is retried while the repository is away or throttles. The
	// archive waits for ever, in its spool.
	//
	// Default: a server restarts in that time.
	RetryFor yamlfile.Duration `yaml:"retry-for"`
	// `on`: agents decide by conditional puts which one writes and runs the jobs. `off` promises that only
	// this agent uses the repository: for a server without conditional puts.
	//
	// Default: another agent takes over from one that stops.
	Lease Lease `yaml:"lease"`
	// File with the Ed25519 key, made by ssh-keygen, that signs all that this agent
	// writes.
	//
	// Default: none: who can write to the repository decides what is restored.
	SigningKeyFile string `yaml:"signing-key-file"`
	// File with the keys that are trusted, in the form of OpenSSH's allowed_signers:
	// what none of them signed does not exist for this agent. It is looked at each minute.
	//
	// Default: nobody's signature is checked.
	TrustFile string `yaml:"trust-file"`
	// Files with public keys that are not trusted any more, one a line. They are looked at
	// each minute.
	//
	// Default: none.
	RevokedKeysFiles []string `yaml:"revoked-keys-files"`
}

// Lease is whether agents share the repository by a lease: on or off.
type Lease string

// The values of Lease.
const (
	LeaseOn  Lease = "on"
	LeaseOff Lease = "off"
)

// Alone reports whether the configuration promises that only this agent uses the
// repository.
func (r Repository) Alone() bool { return r.Lease == LeaseOff }

// Encryption is to whom everything is encrypted, and how it is compressed.
type Encryption struct {
	// age recipients (age1…) that can decrypt what is stored.
	//
	// Default: none: who can read the bucket reads every Secret.
	Recipients []string `yaml:"recipients"`
	// Files with age recipients, one a line.
	//
	// Default: none.
	RecipientsFiles []string `yaml:"recipients-files"`
	// Files with age identities, without a passphrase. Merging, structure, replay and
	// drill need one if there are recipients; keep it off members' hosts.
	//
	// Default: none.
	IdentityFiles []string `yaml:"identity-files"`
	// Compression: fastest, default, better or best.
	//
	// Default: fastest keeps up with the disk on one core.
	Level string `yaml:"level"`
}

// Archive is the continuous archive of the member's raft log.
type Archive struct {
	// Archive the log of `member`.
	//
	// Default: none.
	Enabled bool `yaml:"enabled"`
	// Store a segment when its first entry is this old: about what is lost with all
	// disks.
	//
	// Default: 10s to S3 (requests cost money), 1s to a folder.
	Interval yamlfile.Duration `yaml:"interval"`
	// Or when it has this many bytes; 8MiB at most.
	//
	// Default: a put is quick also over a slow line.
	Size yamlfile.Bytes `yaml:"size"`
	// A folder of this agent alone, for segments while the repository is away.
	//
	// Default: a folder for this member and repository below STATE_DIRECTORY (which
	// systemd sets), the user's state folder, or /var/lib/requorum.
	SpoolDir string `yaml:"spool-dir"`
	// Bound for the spool and the purged log files that are kept until read. Beyond
	// it a gap is recorded, and a full snapshot taken.
	//
	// Default: a day of a Kubernetes cluster, or an hour of a very busy one.
	SpoolLimit yamlfile.Bytes `yaml:"spool-limit"`
	// How late the writer has to be before another agent takes over.
	//
	// Default: three intervals, and 5s at least.
	Takeover yamlfile.Duration `yaml:"takeover"`
}
