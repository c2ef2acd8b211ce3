package config

// Etcd is how the agent reaches the cluster. Names and meanings are etcdctl's.
type Etcd struct {
	// Client URLs of the members, this host's first. Without any the agent talks
	// to no cluster: a verifier, whose jobs full and divergence have to be off.
	//
	// Default: none; to guess it would let a wrong configuration look right.
	Endpoints []string `yaml:"endpoints"`
	// Also use the client URLs that the members advertise.
	//
	// Default: true, so that jobs go on when the members named above are away, and
	// a new member needs no change here.
	DiscoverEndpoints bool `yaml:"discover-endpoints"`
	// File with the CA of the members' certificates. The TLS files are read again
	// at each handshake: rotation needs no restart.
	//
	// Default: none; with https endpoints the system's authorities are taken then.
	CACert string `yaml:"cacert"`
	// File with the client certificate.
	//
	// Default: none; needed where etcd runs with --client-cert-auth.
	Cert string `yaml:"cert"`
	// File with the key of `cert`.
	//
	// Default: none; it goes with `cert`.
	Key string `yaml:"key"`
	// User of etcd's own authentication. Full snapshots need the root role; the
	// archive alone does with any user.
	//
	// Default: none; with a client certificate its common name is the user.
	User string `yaml:"user"`
	// File whose first line is the password of `user`. The variable
	// REQUORUM_ETCD_PASSWORD can take its place.
	//
	// Default: none; a password never stands in this file itself.
	PasswordFile string `yaml:"password-file"`
	// How long one attempt to connect may take.
	//
	// Default: more than a round trip round the world, less than an election.
	DialTimeout Duration `yaml:"dial-timeout"`
	// How long one short request may take: a status, a barrier, a login.
	//
	// Default: etcdctl's own.
	CommandTimeout Duration `yaml:"command-timeout"`
}

// Member is the member that the agent stands beside. Without one the agent
// archives nothing.
type Member struct {
	// The member's data directory. Only its log is read, and nothing is changed.
	//
	// Default: none; on a host without a member (a verifier, or one that takes
	// full snapshots only) it stays empty.
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
	// Default: none; it has to be given.
	URL string `yaml:"url"`
	// At most this many bytes a second are written, such as 50MiB.
	//
	// Default: no limit, so that a full snapshot holds its read transaction in the
	// member as shortly as it can.
	LimitUpload Bytes `yaml:"limit-upload"`
	// At most this many bytes a second are read.
	//
	// Default: no limit; verifying reads most.
	LimitDownload Bytes `yaml:"limit-download"`
	// How long a request is tried again while the repository is away or throttles.
	// The archive waits for ever, in its spool.
	//
	// Default: it outlasts a restart of the server; a job that fails for longer is
	// better tried anew.
	RetryFor Duration `yaml:"retry-for"`
	// The name of the one agent that writes, for a server without conditional
	// puts, which decide between several. The other agents say why they wait.
	//
	// Default: none; with conditional puts the agents agree by themselves.
	Writer string `yaml:"writer"`
}

// Encryption is to whom everything is encrypted, and how it is compressed.
type Encryption struct {
	// age recipients (age1…) that can decrypt what is stored.
	//
	// Default: none: nothing is encrypted, and whoever can read the bucket reads
	// every Secret of the cluster.
	Recipients []string `yaml:"recipients"`
	// Files with age recipients, one a line.
	//
	// Default: none.
	RecipientsFiles []string `yaml:"recipients-files"`
	// Files with age identities. No passphrase, which would cost 128 MiB and some tenths
	// of a second for each segment. Merging, structure, replay, drill and synthetic
	// need one where there are recipients; keep it off the members' hosts if you
	// can, on a verifier of its own.
	//
	// Default: none: an agent that cannot read the backups cannot leak them.
	IdentityFiles []string `yaml:"identity-files"`
	// Compression: fastest, default, better or best.
	//
	// Default: it keeps up with the disk on one core, and the better ones save
	// little on Kubernetes' data.
	Level string `yaml:"level"`
}

// Archive is the continuous archive of the member's raft log.
type Archive struct {
	// Archive the log of `member`.
	//
	// Default: true where there is a member. Without the archive the recovery point
	// is the last full snapshot.
	Enabled bool `yaml:"enabled"`
	// Store a segment when its first entry is this old: about what is lost when
	// everything burns.
	//
	// Default: 10s to S3, where requests cost money (about 1.90 USD a month then), 1s
	// to a folder.
	Interval Duration `yaml:"interval"`
	// Or when it has this many bytes; 8MiB at most.
	//
	// Default: a put of it takes a moment also over a slow line.
	Size Bytes `yaml:"size"`
	// A folder of this agent alone, for segments while the repository is away.
	//
	// Default: a folder for this member and repository below STATE_DIRECTORY (which
	// systemd sets), the user's state folder, or /var/lib/requorum.
	SpoolDir string `yaml:"spool-dir"`
	// Bound for the spool together with purged files of the log that are kept until
	// they are read. Beyond it a gap is recorded, and a full snapshot is taken.
	//
	// Default: a day of a Kubernetes cluster, or an hour of a very busy one.
	SpoolLimit Bytes `yaml:"spool-limit"`
	// How late the writing agent has to be before another one takes over.
	//
	// Default: three intervals and 5s at least: a single slow put is no reason.
	Takeover Duration `yaml:"takeover"`
	// While another agent writes, keep the member's HashKV this often. The member
	// pauses for it, about 1 s for 1.4 GB.
	//
	// Default: never; the job divergence asks for it already.
	Stamp Duration `yaml:"stamp"`
}
