package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/requorum/requorum/schedule/control/config"
)

// namespace is where kubeadm's static pods live.
const namespace = "kube-system"

// staticPod is a member that the kubelet runs while its manifest lies in the
// manifest folder. The manifest is moved by a second name and the removal of the
// first: whoever reads the folder sees all of it or nothing, and a name that is
// taken is never overwritten.
type staticPod struct {
	evidence
	config.StaticPodMember
	aside string // the manifest while the member is stopped
}

func newStaticPod(c config.StaticPodMember, e evidence) *staticPod {
	return &staticPod{evidence: e, StaticPodMember: c, aside: filepath.Join(c.AsideDir, filepath.Base(c.Manifest))}
}

// where tells at which of its two places the manifest lies.
func (s *staticPod) where() (inPlace, aside bool, err error) {
	a, errA := os.Lstat(s.Manifest)
	b, errB := os.Lstat(s.aside)
	for _, err := range []error{errA, errB} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, false, err
		}
	}
	inPlace, aside = errA == nil, errB == nil
	switch {
	case inPlace && aside && !os.SameFile(a, b):
		return false, false, fmt.Errorf("there is a manifest %s, and another one that was set aside, %s: something wrote a new one: move one of them away", s.Manifest, s.aside)
	case inPlace && !a.Mode().IsRegular():
		return false, false, fmt.Errorf("manifest %s is no ordinary file", s.Manifest)
	case !inPlace && !aside:
		return false, false, fmt.Errorf("there is neither a manifest %s nor one that was set aside, %s: %w", s.Manifest, s.aside, fs.ErrNotExist)
	}
	return inPlace, aside, nil
}

// Check looks at the manifest and both folders, and asks the container runtime.
func (s *staticPod) Check(ctx context.Context) error {
	if _, _, err := s.where(); err != nil {
		return err
	}
	if err := s.sameFileSystem(); err != nil {
		return err
	}
	_, err := s.containers(ctx)
	return err
}

// sameFileSystem makes sure that the manifest can come back whole.
func (s *staticPod) sameFileSystem() error {
	folder, err := os.Stat(filepath.Dir(s.Manifest))
	if err != nil {
		return err
	}
	at := s.AsideDir
	beside, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		beside, err = os.Stat(at)
	}
	if err != nil {
		return err
	}
	a, okA := folder.Sys().(*syscall.Stat_t)
	b, okB := beside.Sys().(*syscall.Stat_t)
	if okA && okB && a.Dev != b.Dev {
		return fmt.Errorf("member.static-pod.aside-dir %s lies on another file system than the manifest folder: name a folder from which the manifest can be returned in one step", s.AsideDir)
	}
	return nil
}

// containers are those of the member that the container runtime runs; none where
// it isn't asked.
func (s *staticPod) containers(ctx context.Context) ([]string, error) {
	if s.CRISocket == "" {
		return nil, nil
	}
	out, err := ask(ctx, s.Crictl, "--runtime-endpoint", s.CRISocket, "ps", "--state", "running", "--label", "io.kubernetes.container.name="+s.Container, "-o", "json")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Containers []struct {
			ID     string            `json:"id"`
			Labels map[string]string `json:"labels"`
		} `json:"containers"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", s.Crictl, err)
	}
	var ids []string
	for _, c := range answer.Containers {
		if c.Labels["io.kubernetes.container.name"] == s.Container && c.Labels["io.kubernetes.pod.namespace"] == namespace {
			ids = append(ids, c.ID)
		}
	}
	return ids, nil
}

// Stopped asks where the manifest is, then the container runtime, the locks and the process table.
func (s *staticPod) Stopped(ctx context.Context) (*Proof, error) {
	inPlace, _, err := s.where()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if inPlace {
		return nil, fmt.Errorf("%w: its manifest %s is in place, and the kubelet starts it", ErrRuns, s.Manifest)
	}
	ids, err := s.containers(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	if len(ids) > 0 {
		return nil, fmt.Errorf("%w: container %s", ErrRuns, strings.Join(ids, ", "))
	}
	proof, err := s.stopped()
	if err == nil {
		proof.Found = append(proof.Found, fmt.Sprintf("its manifest lies in %s, which the kubelet does not read", s.aside))
		if s.CRISocket != "" {
			proof.Found = append(proof.Found, fmt.Sprintf("the container runtime runs no container %s of %s", s.Container, namespace))
		}
	}
	return proof, err
}

// Stop takes the manifest away, where it is in place, and waits for the kubelet.
func (s *staticPod) Stop(ctx context.Context) (*Proof, error) {
	inPlace, aside, err := s.where()
	if err != nil {
		return nil, err
	}
	if inPlace {
		if err := s.sameFileSystem(); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(s.AsideDir, 0o700); err != nil {
			return nil, err
		}
		if err := relocate(s.Manifest, s.aside, aside); err != nil {
			return nil, fmt.Errorf("take the manifest away: %w", err)
		}
	}
	proof, err := waitStopped(ctx, s.Stopped)
	if err != nil {
		return nil, fmt.Errorf("the manifest was moved to %s, and the kubelet has not stopped the member: %w: run again to go on waiting (the manifest is not moved again), or look why with journalctl -u kubelet", s.aside, err)
	}
	return proof, nil
}

// Start returns the manifest, where it is away, and waits for the kubelet.
func (s *staticPod) Start(ctx context.Context) error {
	inPlace, aside, err := s.where()
	if err != nil {
		return err
	}
	if aside {
		if err := relocate(s.aside, s.Manifest, inPlace); err != nil {
			return fmt.Errorf("return the manifest: %w", err)
		}
	}
	if err := until(ctx, s.started); err != nil {
		return fmt.Errorf("manifest %s is in place, and the kubelet has not started the member: %w: run again to go on waiting (the manifest is not moved again), or look why with journalctl -u kubelet", s.Manifest, err)
	}
	return nil
}

// relocate gives a file another name in one step. both says that an earlier
// attempt was ended when it had both.
func relocate(from, to string, both bool) error {
	if !both {
		if err := os.Link(from, to); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(to)); err != nil {
			return err
		}
	}
	if err := os.Remove(from); err != nil {
		return err
	}
	return syncDir(filepath.Dir(from))
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
