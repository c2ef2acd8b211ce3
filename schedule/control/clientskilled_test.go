package control_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/store/storetest"
)

// outside is a control process of its own, which can be killed.
type outside struct {
	cmd    *exec.Cmd
	client *client.Client
}

func (n *node) outside(t *testing.T, ca *storetest.Authority, file, cert, key string) *outside {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{cmd: exec.Command(exe, "serve", file)}
	o.cmd.Stderr = os.Stderr
	out, err := o.cmd.StdoutPipe()
	if err == nil {
		err = o.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.kill)
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	o.client, err = client.New(client.Options{Address: strings.TrimSpace(address), Member: "m1", Run: run1, CA: ca.CA, Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *outside) kill() {
	_ = o.cmd.Process.Kill() // SIGKILL; it may have been
	_ = o.cmd.Wait()
	if o.client != nil {
		o.client.Close()
	}
}

// configuration writes a file for the clients of a node.
func (n *node) configuration(t *testing.T, ca *storetest.Authority) string {
	t.Helper()
	cert, key := ca.Issue(t, "host", time.Hour)
	var clients []map[string]any
	for _, c := range n.clients {
		m := map[string]any{"name": c.Name, "kind": string(c.Kind), "process": c.Process, "restart": c.Restart}
		if p := c.StaticPod; p.Manifest != "" {
			m["static-pod"] = map[string]string{"manifest": p.Manifest, "aside-dir": p.AsideDir, "cri-socket": p.CRISocket, "crictl": p.Crictl}
		} else {
			m["command"] = map[string][]string{"start": c.Command.Start, "stop": c.Command.Stop}
		}
		clients = append(clients, m)
	}
	data, err := yaml.Marshal(map[string]any{
		"listen":    map[string]string{"address": "127.0.0.1:0", "cert": cert, "key": key, "client-ca": ca.CA},
		"member":    map[string]any{"name": "m1", "data-dir": idle(t).DataDir, "kind": "command", "command": map[string][]string{"start": {"/bin/true"}, "stop": {"/bin/true"}}},
		"clients":   clients,
		"state-dir": filepath.Join(n.base, "state"),
	})
	file := filepath.Join(n.base, "control.yaml")
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestKilledInQuiesceAndResume (promises 7 and 8): the process is killed at more than twenty
// moments of a quiesce and of a resume, and the next one goes on: everything is gone
// at the end of the one, everything runs at the end of the other, no client that was
// off is started, and the kubelet sees whole manifests only.
func TestKilledInQuiesceAndResume(t *testing.T) {
	n := newNode(t, 150*time.Millisecond)
	n.command(t, "one", true)
	n.command(t, "off", false)
	n.pod(t, "apiserver", false)
	n.pod(t, "manager", true)
	ca := storetest.NewAuthority(t)
	file := n.configuration(t, ca)
	var units []string
	for _, v := range protocol.Verbs() {
		units = append(units, v.Role())
	}
	cert, key := ca.IssueRoles(t, "operator", time.Hour, units...)

	type verb struct {
		name string
		ask  func(*client.Client, context.Context) (*protocol.Done, error)
		want map[string]int
	}
	verbs := []verb{
		{"quiesce", (*client.Client).Quiesce, map[string]int{"one": 0, "off": 0, "apiserver": 0, "manager": 1}},
		{"resume", (*client.Client).Resume, map[string]int{"one": 1, "off": 0, "apiserver": 1, "manager": 1}},
	}
	// After the request was sent.
	delays := []time.Duration{2, 5, 9, 14, 20, 40, 90, 180, 300, 500}
	kills, rounds, at := map[string]int{}, 0, 0
	for ; kills["quiesce"]+kills["resume"] < 24 && rounds < 20; rounds++ {
		for _, v := range verbs {
			for attempt := 0; ; attempt++ {
				o := n.outside(t, ca, file, cert, key)
				if _, err := o.client.Member(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { _, err := v.ask(o.client, t.Context()); ended <- err }()
				if attempt < 6 {
					time.Sleep(delays[at%len(delays)] * time.Millisecond)
					at++
					o.kill()
					if <-ended != nil {
						kills[v.name]++
						continue
					}
					break // it had ended before
				}
				if err := <-ended; err != nil {
					t.Fatalf("%s, after %d kills: %v", v.name, attempt, err)
				}
				o.kill()
				break
			}
			for _, c := range n.clients {
				if got := n.running(t, c.Process); got != v.want[c.Name] {
					t.Fatalf("round %d, after %s: %d processes of %s, want %d", rounds, v.name, got, c.Name, v.want[c.Name])
				}
			}
		}
	}
	starts := n.whole(t)
	if got := starts[n.clients[2].Process]; got != 1+rounds {
		t.Errorf("the API server was started %d times in %d rounds", got, rounds)
	}
	if got := starts[n.clients[3].Process]; got < 1+rounds {
		t.Errorf("the manager was started %d times in %d rounds", got, rounds)
	}
	if got := strings.Count(n.calls(t), "start one"); got != 1+rounds || strings.Contains(n.calls(t), "off") {
		t.Errorf("%d starts in %d rounds: %s", got, rounds, n.calls(t))
	}
	if kills["quiesce"] < 8 || kills["resume"] < 8 {
		t.Errorf("killed only %v times", kills)
	}
	t.Logf("killed %v times in %d rounds", kills, rounds)
}
