package config

import (
	"strings"
	"testing"
	"time"
)

const withClients = good + `
clients:
  - name: kube-apiserver
    kind: static-pod
    process: kube-apiserver
    static-pod: {manifest: /etc/kubernetes/manifests/kube-apiserver.yaml}
  - name: kubelet
    kind: systemd
    restart: true
    start-timeout: 1m
    systemd: {unit: kubelet.service}
  - name: app
    kind: command
    process: appd
    command: {start: [/a], stop: [/b]}
`

func TestClients(t *testing.T) {
	c, err := Parse([]byte(withClients), "control.yaml")
	if err != nil {
		t.Fatal(err)
	}
	api, kubelet := c.Clients[0], c.Clients[1]
	if api.StaticPod.AsideDir != "/etc/kubernetes/requorum-manifests" || api.StaticPod.Container != "kube-apiserver" || api.StaticPod.Crictl != "crictl" ||
		time.Duration(api.StopTimeout) != 3*time.Minute || kubelet.Systemd.Systemctl != "systemctl" || time.Duration(kubelet.StartTimeout) != time.Minute || !kubelet.Restart {
		t.Errorf("%+v", c.Clients)
	}
}

// TestClientFaults: what cannot be honoured is refused, with its line.
func TestClientFaults(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"name: app", "name: kubelet", `clients[2].name: "kubelet" stands there twice`},
		{"name: app", "name: a/b", "line 19: clients[2].name"},
		{"- name: app\n    kind", "- kind", "clients[2].name: is not given"},
		{"kind: command\n    process", "kind: store\n    process", "line 20: clients[2].kind"},
		{"    process: kube-apiserver\n", "", "clients[0].process: is not given"},
		{"    process: appd\n", "", "clients[2].process: is not given"},
		{"process: appd", "process: /usr/bin/appd", "the program's name alone"},
		{"restart: true", "restart: perhaps", "clients[1].restart"},
		{"start-timeout: 1m", "start-timeout: 0s", "want a time to wait"},
		{"systemd: {unit: kubelet.service}", "systemd: {}", "clients[1].systemd.unit"},
		{"unit: kubelet", "unit: --kubelet", "looks like an option"},
		{"unit: kubelet.service", "unit: kubelet.service, environment-file: /etc/default/kubelet", "is for the member"},
		{"start: [/a], ", "", "clients[2].command.start"},
		{"command: {start", "static-pod: {manifest: /m}\n    command: {start", "is for kind static-pod"},
		{"/kube-apiserver.yaml", "/etcd.yaml", "is the member's, or another client's"},
		{"/etc/kubernetes/manifests/kube-apiserver.yaml", "kube-apiserver.yaml", "is relative"},
		{"kube-apiserver.yaml}", "kube-apiserver.yaml, aside-dir: /etc/kubernetes/manifests/x}", "the kubelet reads every file"},
		{"kind: systemd\n    restart", "kinds: systemd\n    restart", "clients[1].kinds: unknown key"},
	} {
		text := strings.Replace(withClients, c.old, c.new, 1)
		if text == withClients {
			t.Fatalf("%q is not in the example", c.old)
		}
		if _, err := Parse([]byte(text), "control.yaml"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.new, err, c.want)
		}
	}
}
