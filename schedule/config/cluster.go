package config

import (
	"github.com/requorum/requorum/store/yamlfile"
)

// Etcd is how the agent reaches the cluster. Names and meanings are etcdctl's.
type Etcd struct {
	// Client URLs of the members, this host's first. Without any the agent talks
	// to no cluster: a verifier, whose jobs full and divergence have to be off.
	//
	// Default: none.
	Endpoints []string `yaml:"endpoints"`
	// Also use the client URLs that the members advertise.
	//
	// Default: true, so that a new member needs no change here.
	DiscoverEndpoints bool `yaml:"discover-endpoints"`
	// File with the CA of the members' certificates. Renewed TLS files
	// need no restart.
	//
	// Default: none: the system's authorities.
	CACert string `yaml:"cacert"`
	// File with the client certificate.
	//
	// Default: none; needed where etcd runs with --client-cert-auth.
	Cert string `yaml:"cert"`
	// File with the key of `cert`.
	//
	// Default: none.
	Key string `yaml:"key"`
	// User of etcd's own authentication. Full snapshots need the root role; the
	// archive alone does with any user.
	//
	// Default: none; with a client certificate its common name is the user.
	User string `yaml:"user"`
	// File whose first line is the password of `user`. The variable
	// REQUORUM_ETCD_PASSWORD can take its place.
	//
	// Default: none.
	PasswordFile string `yaml:"password-file"`
	// How long one attempt to connect may take.
	//
	// Default: etcdctl's own.
	DialTimeout yamlfile.Duration `yaml:"dial-timeout"`
	// How long one short request may take: a status, a barrier, a login.
	//
	// Default: etcdctl's own.
	CommandTimeout yamlfile.Duration `yaml:"command-timeout"`
}

// Member is the member that the agent stands beside. Without one the agent
// archives nothing.
type Member struct {
	// The member's data directory. Only its log is read, and nothing is changed.
	//
	// Default: none; empty on a host without a member.
	DataDir string `yaml:"data-dir"`
	// The member's --wal-dir.
	//
	// Default: none; etcd's own is member/wal in `data-dir`.
	WALDir string `yaml:"wal-dir"`
}

// Repository is where everything is stored.
type Repository struct {
	// Where the repository is: file:///path or s3://bucket/prefix?region=…, see
	// s3.md. Credentials come from the SDK's own places, never from the URL.
	//
	// Default: none.
	URL string `yaml:"url"`
	// At most this many bytes a second are written, such as 50MiB.
	//
	// Default: no limit: a full snapshot holds a read transaction in the member.
	LimitUpload yamlfile.Bytes `yaml:"limit-upload"`
	// At most this many bytes a second are read.
	//
	// Default: no limit; verifying reads most.
	LimitDownload yamlfile.Bytes `yaml:"limit-download"`
	// How long a request is tried again while the repository is away or throttles.
	// The archive waits for ever, in its spool.
	//
	// Default: long enough for a restart of the server.
	RetryFor yamlfile.Duration `yaml:"retry-for"`
	// The name of the one agent that writes, for a server without conditional puts.
	//
	// Default: none; with conditional puts the agents agree by themselves.
	Writer string `yaml:"writer"`
}

// Encryption is to whom everything is encrypted, and how it is compressed.
type Encryption struct {
	// age recipients (age1…) that can decrypt what is stored.
	//
	// Default: none: who can read the bucket reads every Secret of the cluster.
	Recipients []string `yaml:"recipients"`
	// Files with age recipients, one a line.
	//
	// Default: none.
	RecipientsFiles []string `yaml:"recipients-files"`
	// Files with age identities, without a passphrase. Merging, structure, replay,
	// drill and synthetic need one where there are recipients; keep it off the
	// members' hosts if you can.
	//
	// Default: none: an agent that cannot read the backups cannot leak them.
	IdentityFiles []string `yaml:"identity-files"`
	// Compression: fastest, default, better or best.
	//
	// Default: it keeps up with the disk on one core.
	Level string `yaml:"level"`
}

// Archive is the continuous archive of the member's raft log.
type Archive struct {
	// Archive the log of `member`.
	//
	// Default: true where there is a member.
	Enabled bool `yaml:"enabled"`
	// Store a segment when its first entry is this old: about what is lost when
	// everything burns.
	//
	// Default: 10s to S3, where requests cost money (about 1.90 USD a month then), 1s
	// to a folder.
	Interval yamlfile.Duration `yaml:"interval"`
	// Or when it has this many bytes; 8MiB at most.
	//
	// Default: a put takes a moment also over a slow line.
	Size yamlfile.Bytes `yaml:"size"`
	// A folder of this agent alone, for segments while the repository is away.
	//
	// Default: a folder for this member and repository below STATE_DIRECTORY (which
	// systemd sets), the user's state folder, or /var/lib/requorum.
	SpoolDir string `yaml:"spool-dir"`
	// Bound for the spool and the purged log files that are kept until they are
	// read. Beyond it a gap is recorded, and a full snapshot is taken.
	//
	// Default: a day of a Kubernetes cluster, or an hour of a very busy one.
	SpoolLimit yamlfile.Bytes `yaml:"spool-limit"`
	// How late the writing agent has to be before another one takes over.
	//
	// Default: three intervals, and 5s at least.
	Takeover yamlfile.Duration `yaml:"takeover"`
	// While another agent writes, keep the member's HashKV this often. The member
	// pauses for it, about 1 s for 1.4 GB.
	//
	// Default: never.
	Stamp yamlfile.Duration `yaml:"stamp"`
}
