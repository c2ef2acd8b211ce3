package clients

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/supervisor"
)

// kubeletLooks is longer than the kubelet leaves between two looks at its folder
// (fileCheckFrequency, 20 s): until then it may start a crashed container of a
// manifest that is away.
const kubeletLooks = 25 * time.Second

// staticPod is a client that the kubelet runs while its manifest lies in the
// manifest folder.
type staticPod struct {
	evidence
	manifest supervisor.Manifest
	runtime  supervisor.Runtime
	looks    time.Duration

	mu    sync.Mutex
	since time.Time // when the manifest was first seen to be away; zero while it isn't
}

func newStaticPod(c config.StaticPodMember, e evidence) *staticPod {
	return &staticPod{
		evidence: e,
		manifest: supervisor.Manifest{Path: c.Manifest, AsideDir: c.AsideDir, Container: c.Container},
		runtime:  supervisor.Runtime{Crictl: c.Crictl, Socket: c.CRISocket, Container: c.Container},
		looks:    kubeletLooks,
	}
}

// Check looks at the manifest and both folders, and asks the container runtime.
func (s *staticPod) Check(ctx context.Context) error {
	if err := s.manifest.Check(); err != nil {
		return err
	}
	ids, err := s.runtime.Running(ctx)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return s.visible("")
	}
	return s.visible("the container runtime runs container " + ids[0])
}

// Wanted tells whether the manifest is in place.
func (s *staticPod) Wanted(context.Context) (bool, error) { return s.inPlace() }

// inPlace is false too where the manifest lies at neither of its places.
func (s *staticPod) inPlace() (bool, error) {
	inPlace, _, err := s.manifest.Where()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return inPlace, err
}

// Stopped asks where the manifest is, then the container runtime and the process
// table.
func (s *staticPod) Stopped(ctx context.Context) ([]string, error) {
	inPlace, err := s.inPlace()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	away, err := s.away(inPlace)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if inPlace {
		return nil, fmt.Errorf("%w: its manifest %s is in place, and the kubelet starts it", ErrRuns, s.manifest.Path)
	}
	if err := s.manifest.Alone(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRuns, err)
	}
	found := []string{fmt.Sprintf("its manifest %s is not in place", s.manifest.Path)}
	pods, known, err := s.runtime.Alive(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	case len(pods) > 0:
		return nil, fmt.Errorf("%w: the kubelet has not taken down pod %s", ErrRuns, strings.Join(pods, ", "))
	case known:
		found = append(found, fmt.Sprintf("the container runtime has taken down every pod of %s with container %s", supervisor.Namespace, s.runtime.Container))
	}
	seen, err := s.gone()
	if err != nil {
		return nil, err
	}
	if !known {
		if away < s.looks {
			return nil, fmt.Errorf("%w: the manifest is away for %v, the kubelet may not look for %v, and there is no word of the container runtime (static-pod.cri-socket)", ErrUnproven, away.Round(time.Second), s.looks)
		}
		found = append(found, fmt.Sprintf("the manifest has been away for longer than %v, within which the kubelet looks", s.looks))
	}
	return append(found, seen...), nil
}

// away is how long the manifest has been away, at least: since the folder was
// changed, or, where the host's clock was set back, since this process saw it.
func (s *staticPod) away(inPlace bool) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if inPlace {
		s.since = time.Time{}
		return 0, nil
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	info, err := os.Stat(filepath.Dir(s.manifest.Path))
	if err != nil {
		return 0, err
	}
	return max(time.Since(s.since), time.Since(info.ModTime())), nil
}

// Stop takes the manifest away, where it is in place, and waits for the kubelet.
func (s *staticPod) Stop(ctx context.Context) error {
	if err := s.manifest.TakeAway(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := waitStopped(ctx, s.Stopped); err != nil {
		return fmt.Errorf("the manifest was moved to %s: %w: run again to go on waiting (the manifest is not moved again), or look why with journalctl -u kubelet", s.manifest.Aside(), err)
	}
	return nil
}

// Start returns the manifest, where it is away, and waits for the kubelet.
func (s *staticPod) Start(ctx context.Context) error {
	if err := s.manifest.Return(); err != nil {
		return err
	}
	if err := supervisor.Until(ctx, func() error { return s.runs(context.WithoutCancel(ctx)) }); err != nil {
		return fmt.Errorf("manifest %s is in place, and the kubelet has not started it: %w: run again to go on waiting (the manifest is not moved again), or look why with journalctl -u kubelet", s.manifest.Path, err)
	}
	return nil
}

// runs fails with errNotRunning until the container runtime and the process table
// have it.
func (s *staticPod) runs(ctx context.Context) error {
	if s.runtime.Socket != "" {
		ids, err := s.runtime.Running(ctx)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return errNotRunning
		}
	}
	return s.started()
}

// Restart takes the manifest away and returns it, each time waiting for the kubelet.
func (s *staticPod) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}
