package member

import (
	"context"
	"fmt"
	"strings"

	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/supervisor"
)

// staticPod is a member that the kubelet runs while its manifest lies in the
// manifest folder.
type staticPod struct {
	evidence
	manifest supervisor.Manifest
	runtime  supervisor.Runtime
}

func newStaticPod(c config.StaticPodMember, e evidence) *staticPod {
	return &staticPod{
		evidence: e,
		manifest: supervisor.Manifest{Path: c.Manifest, AsideDir: c.AsideDir, Container: c.Container},
		runtime:  supervisor.Runtime{Crictl: c.Crictl, Socket: c.CRISocket, Container: c.Container},
	}
}

// Check looks at the manifest and both folders, and asks the container runtime.
func (s *staticPod) Check(ctx context.Context) error {
	if err := s.manifest.Check(); err != nil {
		return err
	}
	_, err := s.runtime.Running(ctx)
	return err
}

// Stopped asks where the manifest is, then the container runtime, the locks and the process table.
func (s *staticPod) Stopped(ctx context.Context) (*Proof, error) {
	inPlace, _, err := s.manifest.Where()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if inPlace {
		return nil, fmt.Errorf("%w: its manifest %s is in place, and the kubelet starts it", ErrRuns, s.manifest.Path)
	}
	ids, err := s.runtime.Running(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if len(ids) > 0 {
		return nil, fmt.Errorf("%w: container %s", ErrRuns, strings.Join(ids, ", "))
	}
	proof, err := s.stopped()
	if err == nil {
		proof.Found = append(proof.Found, fmt.Sprintf("its manifest lies in %s, which the kubelet does not read", s.manifest.Aside()))
		if s.runtime.Socket != "" {
			proof.Found = append(proof.Found, fmt.Sprintf("the container runtime runs no container %s of %s", s.runtime.Container, supervisor.Namespace))
		}
	}
	return proof, err
}

// Stop takes the manifest away, where it is in place, and waits for the kubelet.
func (s *staticPod) Stop(ctx context.Context) (*Proof, error) {
	if err := s.manifest.TakeAway(); err != nil {
		return nil, err
	}
	proof, err := waitStopped(ctx, s.Stopped)
	if err != nil {
		return nil, fmt.Errorf("the manifest was moved to %s, and the kubelet has not stopped the member: %w: run again to go on waiting (the manifest is not moved again), or look why with journalctl -u kubelet", s.manifest.Aside(), err)
	}
	return proof, nil
}

// Start returns the manifest, where it is away, and waits for the kubelet.
func (s *staticPod) Start(ctx context.Context) error {
	if err := s.manifest.Return(); err != nil {
		return err
	}
	if err := supervisor.Until(ctx, s.started); err != nil {
		return fmt.Errorf("manifest %s is in place, and the kubelet has not started the member: %w: run again to go on waiting (the manifest is not moved again), or look why with journalctl -u kubelet", s.manifest.Path, err)
	}
	return nil
}
