package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
)

// Namespace is where kubeadm's static pods live.
const Namespace = "kube-system"

// Runtime is a container runtime, which is asked through crictl about one container
// of Namespace.
type Runtime struct {
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
func (r Runtime) Running(ctx context.Context) ([]string, error) {
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
// the runtime has, or had, such a container at all: without that it tells nothing.
func (r Runtime) Alive(ctx context.Context) (pods []string, known bool, err error) {
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
	if err := r.ask(ctx, &answer, "pods", "--namespace", Namespace, "-o", "json"); err != nil {
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
func (r Runtime) containers(ctx context.Context, which ...string) ([]container, error) {
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
		if c.Labels["io.kubernetes.container.name"] == r.Container && c.Labels["io.kubernetes.pod.namespace"] == Namespace {
			ours = append(ours, c)
		}
	}
	return ours, nil
}

func (r Runtime) ask(ctx context.Context, answer any, args ...string) error {
	out, err := Ask(ctx, append([]string{r.Crictl, "--runtime-endpoint", r.Socket}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("the answer of %s %s: %w", r.Crictl, args[0], err)
	}
	return nil
}
