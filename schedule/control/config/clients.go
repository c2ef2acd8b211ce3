package config

import agent "github.com/requorum/requorum/schedule/config"

// ClientKind is how a client is stopped and started: one of StaticPod, Systemd
// and Command.
type ClientKind = Kind

// Client is something that writes through the cluster, and must not while it is
// recovered: an API server, for one. Clients are stopped in the order of the list
// before any member is, and started in the reverse order after the proof.
type Client struct {
	// Name is what answers, the journal and the log call it.
	Name string     `yaml:"name"`
	Kind ClientKind `yaml:"kind"`

	Systemd   SystemdMember   `yaml:"systemd"`
	StaticPod StaticPodMember `yaml:"static-pod"`
	Command   CommandMember   `yaml:"command"`

	// Process is the name of its program, as the process table has it, such as
	// kube-apiserver: while one of that name runs on this host the client is not
	// stopped. Needed for static-pod and command.
	Process string `yaml:"process"`
	// Restart leaves the client alone until the new cluster is proved, and restarts
	// it then: what keeps state of the old one in memory, and writes only through
	// clients that are stopped.
	Restart bool `yaml:"restart"`

	// StopTimeout is how long it may take until it is proved stopped; StartTimeout
	// until it runs.
	//
	// Default: 3m: a kubelet can take two minutes to notice a manifest.
	StopTimeout  agent.Duration `yaml:"stop-timeout"`
	StartTimeout agent.Duration `yaml:"start-timeout"`
}
