package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/store/storetest"
)

const controlUnit = "requorum-control.service"

// controls are the configurations of agent control in deploy/, by their files.
func controls(t testing.TB) map[string]*config.Config {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, "deploy", "systemd", "control*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%q %v", files, err)
	}
	all := map[string]*config.Config{}
	for _, path := range files {
		name := filepath.Base(path)
		c, err := config.Parse([]byte(deployed(t, "systemd", name)), name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = c
	}
	return all
}

// Each configuration is read strictly, and fits the unit: the unit starts what the
// configuration says it is, makes the state folder, hides no path that is named and
// no process that has to be seen.
func TestControlFitsItsUnit(t *testing.T) {
	u := settings(t, controlUnit)
	start := strings.Fields(only(t, u, "ExecStart"))
	if strings.Join(start[1:4], " ") != "agent control --config" {
		t.Fatalf("ExecStart=%s", start)
	}
	state := filepath.Join("/var/lib", only(t, u, "StateDirectory"))
	if mode := only(t, u, "StateDirectoryMode"); mode != "0700" {
		t.Errorf("StateDirectoryMode=%s", mode)
	}
	if only(t, u, "User") != "root" || only(t, u, "KillMode") != "process" {
		t.Error("without root there is nothing to control, and a store outlives the process")
	}
	for _, key := range []string{"ProtectProc", "ProcSubset", "PrivatePIDs", "PrivateUsers", "CapabilityBoundingSet", "ProtectSystem", "PrivateNetwork"} {
		if len(u[key]) > 0 {
			t.Errorf("%s= would hide processes or files that have to be seen", key)
		}
	}
	for name, c := range controls(t) {
		text := deployed(t, "systemd", name)
		if !strings.Contains(text, start[4]) {
			t.Errorf("%s does not say that it is %s", name, start[4])
		}
		if c.StateDir != state || filepath.Dir(c.AuditFile) != state {
			t.Errorf("%s: state in %s, audit in %s, and the unit makes %s", name, c.StateDir, c.AuditFile, state)
		}
		for _, path := range []string{c.Listen.Cert, c.Listen.Key, c.Listen.ClientCA} {
			if filepath.Dir(filepath.Dir(path)) != filepath.Dir(start[4]) {
				t.Errorf("%s: %s lies elsewhere than the configuration, %s", name, path, start[4])
			}
		}
		if strings.HasPrefix(c.Member.DataDir, "/home/") || strings.HasPrefix(c.Member.DataDir, "/root/") {
			t.Errorf("%s: ProtectHome= hides %s", name, c.Member.DataDir)
		}
	}
}

// What is said of kubeadm: the API server is stopped, everything else restarted
// after it, the kubelet at last; each by the name that its process has, with the
// manifest of that name.
func TestControlOfKubeadm(t *testing.T) {
	c := controls(t)["control-kubeadm.yaml"]
	var order []string
	for _, client := range c.Clients {
		order = append(order, client.Name)
		if client.Process != client.Name || client.Restart == (client.Name == "kube-apiserver") {
			t.Errorf("%+v", client)
		}
		if p := client.StaticPod; client.Kind == config.StaticPod && (p.Manifest != "/etc/kubernetes/manifests/"+client.Name+".yaml" ||
			p.AsideDir != c.Member.StaticPod.AsideDir || p.CRISocket != c.Member.StaticPod.CRISocket || p.Container != client.Name) {
			t.Errorf("%+v", p)
		}
	}
	if got := strings.Join(order, " "); got != "kube-apiserver kube-controller-manager kube-scheduler kubelet" {
		t.Errorf("%s", got)
	}
}

// systemd takes every line of the unit as it is meant.
func TestControlUnitVerify(t *testing.T) {
	_, err := exec.LookPath("systemd-analyze")
	needs(t, err == nil, "systemd-analyze is not installed (apt-get install systemd)")
	path := write(t, filepath.Join(t.TempDir(), controlUnit), replaced(t, deployed(t, "systemd", controlUnit), "/usr/local/bin/requorum", binary(t)))
	if text := must(t, nil, "systemd-analyze", "verify", "--man=no", path); strings.Contains(text, path) || strings.Contains(text, "requorum") {
		t.Errorf("systemd-analyze verify: %s", text)
	}
}

// The unit's command with each configuration finds all that it names on a host that
// has it, and says what is missing on one that hasn't.
func TestControlCheckConfig(t *testing.T) {
	needs(t, os.Getuid() == 0, "who is not root does not see what processes run")
	u := settings(t, controlUnit)
	for name, cfg := range controls(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ca := storetest.NewAuthority(t)
			cert, key := ca.Issue(t, "host", time.Hour)
			pairs := []string{cfg.Listen.Cert, cert, cfg.Listen.Key, key, cfg.Listen.ClientCA, ca.CA, cfg.Listen.Address, "127.0.0.1:0", cfg.Member.DataDir, filepath.Join(dir, "etcd")}
			if cfg.Member.Kind == config.StaticPod {
				const folder = "/etc/kubernetes"
				pairs = append(pairs, folder, dir)
				for _, c := range append(cfg.Clients, config.Client{Kind: config.StaticPod, StaticPod: cfg.Member.StaticPod}) {
					if c.Kind == config.StaticPod {
						write(t, filepath.Join(dir, strings.TrimPrefix(c.StaticPod.Manifest, folder)), "kind: Pod\nmetadata: {name: "+c.StaticPod.Container+"}\n")
					}
				}
			}
			configuration := write(t, filepath.Join(dir, "control.yaml"), replaced(t, deployed(t, "systemd", name), pairs...))
			bin := filepath.Join(dir, "bin")
			for program, text := range map[string]string{
				"systemctl": "printf 'LoadState=loaded\\nActiveState=inactive\\nSubState=dead\\nMainPID=0\\n'\n", "crictl": "echo '{\"containers\": []}'\n",
			} {
				if err := os.Chmod(write(t, filepath.Join(bin, program), "#!/bin/sh\n"+text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			line := strings.Fields(replaced(t, only(t, u, "ExecStart"), "/usr/local/bin/requorum", binary(t), "/etc/requorum/control.yaml", configuration))
			line = append(line, "--check-config")
			env := []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
			if text := must(t, env, line[0], line[1:]...); !strings.Contains(text, "can be honoured") {
				t.Errorf("%s", text)
			}
			if err := os.Rename(filepath.Join(bin, "systemctl"), filepath.Join(bin, "crictl")); err != nil {
				t.Fatal(err)
			}
			if e := run(t, []string{"PATH=" + bin}, line[0], line[1:]...); e.code != 1 || !strings.Contains(e.text, "cannot be") {
				t.Errorf("without its programs: exit code %d\n%s", e.code, e.text)
			}
		})
	}
}
