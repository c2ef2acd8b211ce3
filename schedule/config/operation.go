package config

// Retention is what stays recoverable. A full snapshot goes only when no line
// here keeps it; log goes with the snapshots that it follows.
type Retention struct {
	// Any point in time of this last while stays recoverable.
	//
	// Default: a mistake of Friday is found on Monday, and there is time to act.
	AnyPoint Duration `yaml:"any-point"`
	// The newest full snapshots, this many.
	//
	// Default: one may turn out damaged, and the one before too.
	Last int `yaml:"last"`
	// The newest of each of this many hours that have one.
	//
	// Default: none; the log reaches every point of the last days anyway.
	Hourly int `yaml:"hourly"`
	// The newest of each of this many days.
	//
	// Default: a month, and the days until somebody notices.
	Daily int `yaml:"daily"`
	// The newest of each of this many weeks.
	//
	// Default: two months.
	Weekly int `yaml:"weekly"`
	// The newest of each of this many months.
	//
	// Default: a year.
	Monthly int `yaml:"monthly"`
	// All full snapshots that are younger than this; 0: no more than the others keep.
	//
	// Default: none; `any-point` keeps those of the last days.
	Within Duration `yaml:"within"`
	// Never fewer full snapshots than this, whatever their age; 1 at least.
	//
	// Default: when no new ones come for long, the old ones do not go.
	Minimum int `yaml:"minimum"`
	// What was let go is deleted this much later, by the repository's clock; 24h at
	// least.
	//
	// Default: whoever reads the repository just then ends in peace, and a wrong
	// retention can be mended for a day.
	Grace Duration `yaml:"grace"`
}

// NoIONice is an IONice that leaves the process as it was started.
const NoIONice = "none"

// Companion is a file or folder that is stored with each full snapshot.
type Companion struct {
	// Its name in the backup: letters, digits, dots and hyphens.
	//
	// Default: none; it has to be given.
	Name string `yaml:"name"`
	// The file or folder, as an absolute path.
	//
	// Default: none; it has to be given.
	Path string `yaml:"path"`
}

// Resources bound what the agent takes of its host.
type Resources struct {
	// The agent's priority for the processor: 0 (as others) to 19 (last).
	//
	// Default: behind etcd, and not starved.
	Nice int `yaml:"nice"`
	// Its priority for the disk: idle, best-effort:0 to best-effort:7, or none. Only
	// some I/O schedulers of Linux honour it.
	//
	// Default: the last among those that are served; idle could wait for ever beside
	// a busy etcd.
	IONice string `yaml:"ionice"`
	// The memory that a job which reads databases may take, in a process of its own:
	// 256MiB at least. The agent itself stays below 256 MiB.
	//
	// Default: enough for about two million keys; a job that needs more fails and
	// says so.
	JobMemory Bytes `yaml:"job-memory"`
	// Folder for databases that are unpacked. It needs room for two.
	//
	// Default: the system's folder for temporary files, which may be memory: then name
	// another one.
	ScratchDir string `yaml:"scratch-dir"`
}

// Objectives are what the agent is held to: beyond them it is not ready, and
// says why.
type Objectives struct {
	// At most this much may be lost if everything but the repository burns.
	//
	// Default: 1m, and six archive intervals at least; without the archive two days,
	// since full snapshots are all there is.
	RecoveryPoint Duration `yaml:"recovery-point"`
	// A backup that has passed `structure` is never older than this.
	//
	// Default: two full snapshots in a row that nobody proved.
	VerifiedWithin Duration `yaml:"verified-within"`
	// Certificates that expire sooner than this are a problem.
	//
	// Default: two weeks, also over a holiday.
	CertificateNotice Duration `yaml:"certificate-notice"`
}

// Verdicts are how results of verifying are signed and believed.
type Verdicts struct {
	// File with the Ed25519 private key that signs this agent's verdicts.
	//
	// Default: none; verdicts are bound to each other, but anybody who can write could
	// write one.
	SignKeyFile string `yaml:"sign-key-file"`
	// Files with the Ed25519 public keys whose verdicts are believed.
	//
	// Default: none: everybody's.
	TrustedKeyFiles []string `yaml:"trusted-key-files"`
}

// Listen is the port of the status page, the API and the metrics.
type Listen struct {
	// Host and port.
	//
	// Default: this host alone, and a port clear of etcd's 2379 to 2382.
	Address string `yaml:"address"`
	// File with the server's certificate. It is read again at each handshake.
	//
	// Default: none; needed beyond loopback.
	Cert string `yaml:"cert"`
	// File with its key.
	//
	// Default: none; it goes with `cert`.
	Key string `yaml:"key"`
	// File with the CA of those who may connect.
	//
	// Default: none: anybody who reaches the port; name one beyond loopback, since a
	// backup can be asked for there.
	ClientCA string `yaml:"client-ca"`
	// Serve plain text beyond loopback all the same.
	//
	// Default: false; behind a proxy that encrypts it may be right.
	AllowPlaintext bool `yaml:"allow-plaintext"`
}

// Heartbeat are pings to a service that raises the alarm when they stay away,
// in the convention of healthchecks.
type Heartbeat struct {
	// The URL to ping. It is a secret, so `url-file` or the variable
	// REQUORUM_HEARTBEAT_URL is better.
	//
	// Default: none: nothing is sent.
	URL Secret `yaml:"url"`
	// File whose first line is the URL.
	//
	// Default: none.
	URLFile string `yaml:"url-file"`
	// How often.
	//
	// Default: a silence is seen as fast as a full minute of writes is lost.
	Every Duration `yaml:"every"`
	// How long one ping may take.
	//
	// Default: what healthchecks recommends.
	Timeout Duration `yaml:"timeout"`
}

// Webhook is told of each problem that comes and goes, as a small JSON document.
type Webhook struct {
	// The URL to post to. It is a secret, so `url-file` or the variable
	// REQUORUM_WEBHOOK_URL is better.
	//
	// Default: none: nothing is sent.
	URL Secret `yaml:"url"`
	// File whose first line is the URL.
	//
	// Default: none.
	URLFile string `yaml:"url-file"`
	// How long one post may take.
	//
	// Default: as long as a ping.
	Timeout Duration `yaml:"timeout"`
}

// Log is what the agent writes to standard error.
type Log struct {
	// text or json.
	//
	// Default: for people; json is for those who collect logs.
	Format string `yaml:"format"`
	// debug, info, warn or error.
	//
	// Default: one line for each event that matters.
	Level string `yaml:"level"`
}
