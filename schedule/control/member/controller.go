package member

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/processes"
	"github.com/requorum/requorum/schedule/control/supervisor"
)

// Errors to tell apart.
var (
	// ErrRuns says that the member is not stopped; what proves it is in the error.
	ErrRuns = errors.New("the member runs")
	// ErrUnproven says that nothing tells of a running member, and that not all
	// could be looked at that would.
	ErrUnproven = errors.New("that the member is stopped cannot be proved")
)

// Controller is a kind of member. Its methods are called by one goroutine at a
// time.
type Controller interface {
	// Check looks, without changing anything, whether the member could be
	// controlled: programs, unit, manifest.
	Check(ctx context.Context) error
	// Stopped gives the proof that the member is stopped, as of now, and fails with
	// ErrRuns or ErrUnproven.
	Stopped(ctx context.Context) (*Proof, error)
	// Stop stops the member and waits for the proof until ctx ends. A member that
	// is stopped already is left alone.
	Stop(ctx context.Context) (*Proof, error)
	// Start starts the member and waits until its process has the database or the
	// log open. It doesn't wait for a quorum: the others may not have been started.
	Start(ctx context.Context) error
}

// Proof is what shows that a member is stopped.
type Proof struct {
	Time time.Time `json:"time"`
	// Found are sentences, one for each thing that was looked at.
	Found     []string         `json:"found"`
	Processes *processes.Table `json:"processes"`
}

// ManualError says that the member's kind is controlled by hand, and how.
type ManualError struct {
	Kind  config.Kind
	Steps []string
}

func (e *ManualError) Error() string {
	return fmt.Sprintf("a %s member is controlled by its distribution: %s", e.Kind, strings.Join(e.Steps, "; "))
}

// Manual gives the steps where a member is controlled by hand; nil where it isn't.
func Manual(c Controller) *ManualError {
	if d, ok := c.(*distribution); ok {
		return d.manual()
	}
	return nil
}

// New gives the controller of the member that a configuration names. stateDir is
// the folder for a pid file, and for what a started member prints.
func New(m config.Member, stateDir string) (Controller, error) {
	e := evidence{dataDir: m.DataDir, walDir: m.WALDir}
	switch m.Kind {
	case config.Store:
		return newStore(m, e, stateDir)
	case config.Systemd:
		return &systemd{evidence: e, unit: supervisor.Unit{Name: m.Systemd.Unit, Systemctl: m.Systemd.Systemctl}}, nil
	case config.StaticPod:
		return newStaticPod(m.StaticPod, e), nil
	case config.Command:
		return &command{evidence: e, CommandMember: m.Command, log: filepath.Join(stateDir, m.Name+".log")}, nil
	case config.K3s, config.RKE2, config.Talos:
		return &distribution{evidence: e, kind: m.Kind}, nil
	}
	return nil, fmt.Errorf("member %s: kind %q is unknown", m.Name, m.Kind)
}
