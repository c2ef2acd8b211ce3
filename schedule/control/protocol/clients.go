package protocol

import (
	"time"

	"github.com/requorum/requorum/schedule/control/config"
)

// ClientPhase is how far a recovery got with a client.
type ClientPhase string

// The phases. A client that no recovery has touched has none.
const (
	ClientStopping   ClientPhase = "stopping"
	ClientStopped    ClientPhase = "stopped" // by Quiesce, and proved
	ClientStarting   ClientPhase = "starting"
	ClientStarted    ClientPhase = "started"
	ClientRestarting ClientPhase = "restarting"
	ClientRestarted  ClientPhase = "restarted"
	ClientLeft       ClientPhase = "left" // stopped before the recovery, and left so by Resume
)

// ClientState is one of the configured clients, as it is now.
type ClientState struct {
	Name string            `json:"name"`
	Kind config.ClientKind `json:"kind"`
	// Restart says that Quiesce leaves it alone, and Resume restarts it.
	Restart bool `json:"restart,omitempty"`
	// Stopped says that it is proved that the client does not run and will not come
	// up by itself; Found is what was looked at for it. Where it is not proved, Why
	// says the reason, and Runs whether something that runs was found: without Runs
	// and without Stopped it is unknown.
	Stopped bool     `json:"stopped"`
	Runs    bool     `json:"runs"`
	Why     string   `json:"why,omitempty"`
	Found   []string `json:"found,omitempty"`
	// Phase is what the recovery that has the host did with it, and Ran whether it
	// ran before that: what did not is not started by Resume.
	Phase ClientPhase `json:"phase,omitempty"`
	Ran   *bool       `json:"ran,omitempty"`
	// Timeout is what Phase may take at most, where it is one that is under way.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
}
