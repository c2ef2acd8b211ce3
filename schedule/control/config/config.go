// Package config is the configuration of `requorum agent control`, the process
// that may stop, start and rebuild the member of its host: one strict YAML file
// of its own, beside the agent's.
//
// It promises what schedule/config promises of the agent's: nothing is accepted
// and not honoured, all faults are found at once, each with its line, and what
// to write. And that what a request can reach is fixed here: one member, and its
// directories.
package config

import (
	"time"

	agent "github.com/requorum/requorum/schedule/config"
)

// Guide is the page that has all keys.
const Guide = "docs/agent-control.md"

// Config is one that Read or Parse gave: with its defaults, and without
// contradictions.
type Config struct {
	Listen Listen `yaml:"listen"`
	Member Member `yaml:"member"`

	// Clients are what writes through the cluster from this host, in the order in
	// which they are stopped before any member is.
	Clients []Client `yaml:"clients"`

	// StateDir is the folder of the process's own: its journal, the member's pid
	// file and output. On no file system that the recovery might replace.
	//
	// Default: the folder that the systemd unit makes.
	StateDir string `yaml:"state-dir"`
	// AuditFile gets a line of JSON for each request. Mode 0600.
	//
	// Default: audit.jsonl in state-dir.
	AuditFile string `yaml:"audit-file"`

	// Repositories are the URLs that a rebuild may read of, and that are asked, before
	// a member is started, whether its timeline was superseded. A request can name no
	// other.
	Repositories []string `yaml:"repositories"`
	// IdentityFiles open what is encrypted there.
	IdentityFiles []string `yaml:"identity-files"`

	Log Log `yaml:"log"`
}

// Listen is where the process is reached. There is no way without TLS, and none
// without client certificates.
type Listen struct {
	// Address to bind, such as 10.0.0.1:2391.
	Address string `yaml:"address"`
	// Cert and Key are this host's, in PEM.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// ClientCA signs those who may give orders, and nobody else: not the CA of
	// etcd's clients or of Kubernetes. What a certificate may order stands in its
	// organisational units.
	ClientCA string `yaml:"client-ca"`
}

// Kind is how a member is stopped and started.
type Kind string

// The kinds. The last three have databases that only their distribution writes:
// for them the steps are printed.
const (
	Store     Kind = "store"
	Systemd   Kind = "systemd"
	StaticPod Kind = "static-pod"
	Command   Kind = "command"
	K3s       Kind = "k3s"
	RKE2      Kind = "rke2"
	Talos     Kind = "talos"
)

// Member is the one that this process controls.
type Member struct {
	// Name in the cluster. A request names it, and is refused by the control
	// process of another one.
	Name string `yaml:"name"`
	// DataDir, and WALDir where the log lies in a folder of its own.
	DataDir string `yaml:"data-dir"`
	WALDir  string `yaml:"wal-dir"`
	Kind    Kind   `yaml:"kind"`
	// Owner of what is rebuilt, as user:group. Default: as found on what is
	// replaced, which is whoever this process runs as where the data directory is
	// gone; for kind store its user.
	Owner string `yaml:"owner"`

	Store     StoreMember     `yaml:"store"`
	Systemd   SystemdMember   `yaml:"systemd"`
	StaticPod StaticPodMember `yaml:"static-pod"`
	Command   CommandMember   `yaml:"command"`

	// StopTimeout is how long a member may take until it is proved stopped;
	// StartTimeout until it runs.
	//
	// Default: 3m: a kubelet can take two minutes to notice a manifest.
	StopTimeout  agent.Duration `yaml:"stop-timeout"`
	StartTimeout agent.Duration `yaml:"start-timeout"`
}

// StoreMember is the bundled store, which this process starts and keeps.
type StoreMember struct {
	// Command is `requorum store` with its flags, or an etcd with its own.
	Command []string `yaml:"command"`
	// LogFile gets what it prints. Default: NAME.log in state-dir.
	LogFile string `yaml:"log-file"`
	// User and group it runs as, as user:group. Default: this process's.
	User string `yaml:"user"`
}

// SystemdMember is a unit.
type SystemdMember struct {
	Unit string `yaml:"unit"`
	// Systemctl is the program. Default: found in PATH.
	Systemctl string `yaml:"systemctl"`
	// EnvironmentFile is what the unit reads etcd's ETCD_ variables from, such as
	// /etc/default/etcd: those about the members can be brought in line there after a
	// recovery. For the member only. Default: none; that is done by hand.
	EnvironmentFile string `yaml:"environment-file"`
}

// StaticPodMember is a manifest that the kubelet watches, as kubeadm writes it.
type StaticPodMember struct {
	// Manifest, such as /etc/kubernetes/manifests/etcd.yaml.
	Manifest string `yaml:"manifest"`
	// AsideDir is where the manifest lies while the member is stopped: outside the
	// manifest folder, of which the kubelet reads every file, and on the same file
	// system, so that it comes back whole.
	//
	// Default: requorum-manifests beside the manifest folder.
	AsideDir string `yaml:"aside-dir"`
	// CRISocket is asked through crictl whether the container is gone, such as
	// unix:///run/containerd/containerd.sock. Default: the process table and the
	// locks alone.
	CRISocket string `yaml:"cri-socket"`
	// Container is its name in the manifest. Default: etcd.
	Container string `yaml:"container"`
	// Crictl is the program. Default: found in PATH.
	Crictl string `yaml:"crictl"`
}

// CommandMember is stopped and started by programs, which no shell reads.
type CommandMember struct {
	Start []string `yaml:"start"`
	Stop  []string `yaml:"stop"`
	// Status exits 0 where the member runs and 3 (or 1, 2) where it doesn't, as
	// init scripts do. Default: the process table and the locks alone.
	Status []string `yaml:"status"`
}

// Log is what the process itself says, on standard error.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Default has what need not be said.
func Default() *Config {
	const patience = agent.Duration(3 * time.Minute)
	return &Config{
		StateDir: "/var/lib/requorum-control",
		Member: Member{
			StopTimeout: patience, StartTimeout: patience,
			Systemd:   SystemdMember{Systemctl: "systemctl"},
			StaticPod: StaticPodMember{Container: "etcd", Crictl: "crictl"},
		},
		Log: Log{Level: "info", Format: "text"},
	}
}
