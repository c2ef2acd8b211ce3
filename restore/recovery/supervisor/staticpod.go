package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// kubeletLooks is longer than the kubelet leaves between two looks at its folder
// (fileCheckFrequency, 20 s): until then it may start a crashed container of a
// manifest that is away.
const kubeletLooks = 25 * time.Second

// staticPod is a member or a client that the kubelet runs while its manifest lies in the
// manifest folder.
type staticPod struct {
	evidence
	manifest manifestFile
	runtime  containerRuntime
	looks    time.Duration

	mu    sync.Mutex
	since time.Time // when the manifest was first seen to be away; zero while it isn't
}

func newStaticPod(c StaticPodMember, e evidence) *staticPod {
	return &staticPod{
		evidence: e,
		manifest: manifestFile{Path: c.Manifest, AsideDir: c.AsideDir, Container: c.Container},
		runtime:  containerRuntime{Crictl: c.Crictl, Socket: c.CRISocket, Container: c.Container},
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

// Wanted reports whether the manifest is in place.
func (s *staticPod) Wanted(context.Context) (bool, error) { return s.inPlace() }

// inPlace is false too where the manifest of a client lies at neither of its places.
func (s *staticPod) inPlace() (bool, error) {
	inPlace, _, err := s.manifest.Where()
	if !s.member() && errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return inPlace, err
}

// Stopped asks where the manifest is, then the container runtime and the evidence.
func (s *staticPod) Stopped(ctx context.Context) error {
	inPlace, err := s.inPlace()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	away, err := s.away(inPlace)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if inPlace {
		return fmt.Errorf("%w: its manifest %s is in place, and the kubelet starts it", ErrRuns, s.manifest.Path)
	}
	if s.member() {
		return s.memberStopped(ctx)
	}
	if err := s.manifest.Alone(); err != nil {
		return fmt.Errorf("%w: %w", ErrRuns, err)
	}
	pods, known, err := s.runtime.Alive(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	case len(pods) > 0:
		return fmt.Errorf("%w: the kubelet has not taken down pod %s", ErrRuns, strings.Join(pods, ", "))
	}
	if err := s.stopped(); err != nil {
		return err
	}
	if !known && away < s.looks {
		return fmt.Errorf("%w: the manifest is away for %v, the kubelet may not look for %v, and there is no word of the container runtime (static-pod.cri-socket)", ErrUnproven, away.Round(time.Second), s.looks)
	}
	return nil
}

// memberStopped goes by the locks, which show it at every moment; of a client, only the
// time says that the kubelet starts none any more.
func (s *staticPod) memberStopped(ctx context.Context) error {
	ids, err := s.runtime.Running(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if len(ids) > 0 {
		return fmt.Errorf("%w: container %s", ErrRuns, strings.Join(ids, ", "))
	}
	return s.stopped()
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
	if err := s.manifest.TakeAway(); err != nil && (s.member() || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	if err := waitStopped(ctx, s.Stopped); err != nil {
		return fmt.Errorf("the manifest was moved to %s: %w: run again to go on waiting (the manifest is not moved again), or look why with journalctl -u kubelet", s.manifest.Aside(), err)
	}
	return nil
}

// Kill has the container runtime kill the container.
func (s *staticPod) Kill(ctx context.Context) (bool, error) {
	ids, err := s.runtime.Running(ctx)
	if err != nil || len(ids) == 0 {
		return false, err
	}
	_, err = ask(ctx, append([]string{s.runtime.Crictl, "--runtime-endpoint", s.runtime.Socket, "stop", "--timeout", "0"}, ids...)...)
	return err == nil, err
}

// Start returns the manifest, where it is away, and waits for the kubelet.
func (s *staticPod) Start(ctx context.Context) error {
	if err := s.manifest.Return(); err != nil {
		return err
	}
	if err := until(ctx, func() error { return s.runs(context.WithoutCancel(ctx)) }); err != nil {
		return fmt.Errorf("manifest %s is in place, and the kubelet has not started it: %w: run again to go on waiting (the manifest is not moved again), or look why with journalctl -u kubelet", s.manifest.Path, err)
	}
	return nil
}

// runs fails with errNotRunning until the container runtime and the process table
// have a client, and the locks show a member.
func (s *staticPod) runs(ctx context.Context) error {
	if !s.member() && s.runtime.Socket != "" {
		ids, err := s.runtime.Running(ctx)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return errNotRunning
		}
	}
	return s.running()
}

// Restart takes the manifest away and returns it, each time waiting for the kubelet.
func (s *staticPod) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

// namespace is where kubeadm's static pods live.
const namespace = "kube-system"

// containerRuntime is a container runtime, which is asked through crictl about one container
// of Namespace.
type containerRuntime struct {
	Crictl    string // the program
	Socket    string // empty: there is no runtime to ask
	Container string // its name in the manifest
}

// container is what crictl says of one.
type container struct {
	ID      string            `json:"id"`
	Sandbox string            `json:"podSandboxId"`
	State   string            `json:"state"`
	Labels  map[string]string `json:"labels"`
}

// Running gives the IDs of the containers that run; none where there is no runtime
// to ask.
func (r containerRuntime) Running(ctx context.Context) ([]string, error) {
	all, err := r.containers(ctx, "--state", "running")
	ids := make([]string, 0, len(all))
	for _, c := range all {
		ids = append(ids, c.ID)
	}
	return ids, err
}

// Alive gives the IDs of pods that the kubelet has not taken down yet: those whose
// sandbox is ready, and in which the container runs or has run. A container that
// crashes again and again is between two lives most of the time. known says that
// the runtime has, or had, such a container at all: without that it says nothing.
func (r containerRuntime) Alive(ctx context.Context) (pods []string, known bool, err error) {
	all, err := r.containers(ctx, "--all")
	if err != nil || len(all) == 0 {
		return nil, false, err
	}
	var answer struct {
		Items []struct {
			ID    string `json:"id"`
			State string `json:"state"`
		} `json:"items"`
	}
	if err := r.ask(ctx, &answer, "pods", "--namespace", namespace, "-o", "json"); err != nil {
		return nil, false, err
	}
	ready := map[string]bool{}
	for _, p := range answer.Items {
		ready[p.ID] = p.State == "SANDBOX_READY"
	}
	for _, c := range all {
		if ready[c.Sandbox] {
			pods = append(pods, c.Sandbox)
			delete(ready, c.Sandbox)
		}
	}
	return pods, true, nil
}

// containers asks for those of our name, and passes over other namespaces'.
func (r containerRuntime) containers(ctx context.Context, which ...string) ([]container, error) {
	if r.Socket == "" {
		return nil, nil
	}
	var answer struct {
		Containers []container `json:"containers"`
	}
	args := append(append([]string{"ps"}, which...), "--label", "io.kubernetes.container.name="+r.Container, "-o", "json")
	if err := r.ask(ctx, &answer, args...); err != nil {
		return nil, err
	}
	var ours []container
	for _, c := range answer.Containers {
		if c.Labels["io.kubernetes.container.name"] == r.Container && c.Labels["io.kubernetes.pod.namespace"] == namespace {
			ours = append(ours, c)
		}
	}
	return ours, nil
}

func (r containerRuntime) ask(ctx context.Context, answer any, args ...string) error {
	out, err := ask(ctx, append([]string{r.Crictl, "--runtime-endpoint", r.Socket}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("the answer of %s %s: %w", r.Crictl, args[0], err)
	}
	return nil
}
