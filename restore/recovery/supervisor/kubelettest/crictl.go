package kubelettest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// Crictl writes a program that answers as crictl does, of what the kubelet runs. CRI
// has to be set.
func (k *Kubelet) Crictl(t testing.TB) string {
	t.Helper()
	// Arguments: --runtime-endpoint SOCKET ps|pods … or stop --timeout 0 ID.
	program := filepath.Join(k.CRI, "crictl")
	text := fmt.Sprintf("#!/bin/sh\ncd %q\ncase \"$3 $4 $5\" in\n'ps --state running') cat running ;;\nps*) cat all ;;\npods*) cat pods ;;\n'stop --timeout 0') kill -9 ${6#c-} ;;\n*) exit 1 ;;\nesac\n", k.CRI)
	require.NoError(t, storetest.WriteProgram(program, []byte(text), 0o700))
	return program
}

// publish writes down what the container runtime would say.
func (k *Kubelet) publish() {
	if k.CRI == "" {
		return
	}
	type container struct {
		ID      string            `json:"id"`
		Sandbox string            `json:"podSandboxId"`
		State   string            `json:"state"`
		Labels  map[string]string `json:"labels"`
	}
	type pod struct {
		ID    string `json:"id"`
		State string `json:"state"`
	}
	running, all, pods := []container{}, []container{}, []pod{}
	for name, p := range k.pods {
		c := container{fmt.Sprintf("c-%d", p.Cmd.Process.Pid), "pod-" + name, "CONTAINER_RUNNING", map[string]string{
			"io.kubernetes.container.name": name, "io.kubernetes.pod.namespace": "kube-system",
		}}
		if p.Running() {
			running = append(running, c)
		} else {
			c.State = "CONTAINER_EXITED"
		}
		all = append(all, c)
		state := "SANDBOX_READY"
		if p.down {
			state = "SANDBOX_NOTREADY"
		}
		pods = append(pods, pod{"pod-" + name, state})
	}
	for name, answer := range map[string]any{
		"running": map[string]any{"containers": running}, "all": map[string]any{"containers": all}, "pods": map[string]any{"items": pods},
	} {
		data, err := json.Marshal(answer)
		if err == nil {
			err = replace(filepath.Join(k.CRI, name), data)
		}
		if err != nil {
			k.fault(err.Error())
		}
	}
}

func replace(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
