package config

import (
	"fmt"
	"path/filepath"
	"strings"

	agent "github.com/requorum/requorum/schedule/config"
)

// clientFaults are those of the list of clients.
func (c *Config) clientFaults(places *agent.Places) (all []fault) {
	names, manifests := map[string]bool{}, map[string]bool{}
	if c.Member.Kind == StaticPod {
		manifests[c.Member.StaticPod.Manifest] = true
	}
	for i, cl := range c.Clients {
		at := fmt.Sprintf("clients[%d].", i)
		add := func(key, format string, args ...any) {
			all = append(all, fault{at + key, fmt.Errorf(format, args...)})
		}
		switch {
		case cl.Name == "":
			add("name", "%w", errMissing)
		case !memberName.MatchString(cl.Name):
			add("name", "%q: want letters, digits, dots, underscores and hyphens", cl.Name)
		case names[cl.Name]:
			add("name", "%q stands there twice: each client needs a name of its own", cl.Name)
		}
		names[cl.Name] = true
		for _, kind := range []Kind{Systemd, StaticPod, Command} { // whose sections are called as they are
			if kind != cl.Kind && places.Given(at+string(kind)) {
				add(string(kind), "is for kind %s, and the client is of kind %s: remove it", kind, cl.Kind)
			}
		}
		for _, k := range []struct {
			key   string
			value agent.Duration
		}{{"stop-timeout", cl.StopTimeout}, {"start-timeout", cl.StartTimeout}} {
			if k.value < 0 || k.value == 0 && places.Given(at+k.key) {
				add(k.key, "want a time to wait, such as 3m")
			}
		}
		if cl.Systemd.EnvironmentFile != "" {
			add("systemd.environment-file", "is for the member: a client has no flags of etcd")
		}
		if strings.ContainsAny(cl.Process, "/ ") {
			add("process", "%q: want the program's name alone, such as kube-apiserver", cl.Process)
		}
		for _, k := range []struct{ key, path string }{{"static-pod.manifest", cl.StaticPod.Manifest}, {"static-pod.aside-dir", cl.StaticPod.AsideDir}} {
			if k.path != "" && !filepath.IsAbs(k.path) {
				add(k.key, "%s is relative, and would mean another file in another folder: write the whole path", k.path)
			}
		}
		if m := cl.StaticPod.Manifest; m != "" && manifests[m] {
			add("static-pod.manifest", "%s is the member's, or another client's", m)
		}
		manifests[cl.StaticPod.Manifest] = true
		all = append(all, cl.kindFaults(at)...)
	}
	return all
}

func (cl Client) kindFaults(at string) []fault {
	switch cl.Kind {
	case Systemd:
		return cl.Systemd.faults(at + "systemd.")
	case StaticPod:
		return append(cl.StaticPod.faults(at+"static-pod."), needed(at+"process", cl.Process != "", cl.Kind)...)
	case Command:
		return append(cl.Command.faults(at+"command."), needed(at+"process", cl.Process != "", cl.Kind)...)
	default:
		return []fault{{at + "kind", fmt.Errorf("%q: want static-pod, systemd or command", cl.Kind)}}
	}
}

// deriveClients fills in what need not be said.
func (c *Config) deriveClients() {
	d := Default().Member
	for i := range c.Clients {
		cl := &c.Clients[i]
		if cl.StopTimeout == 0 {
			cl.StopTimeout = d.StopTimeout
		}
		if cl.StartTimeout == 0 {
			cl.StartTimeout = d.StartTimeout
		}
		if cl.Systemd.Systemctl == "" {
			cl.Systemd.Systemctl = d.Systemd.Systemctl
		}
		if cl.StaticPod.Crictl == "" {
			cl.StaticPod.Crictl = d.StaticPod.Crictl
		}
		if cl.StaticPod.Container == "" {
			cl.StaticPod.Container = cl.Process // kubeadm's manifests call it so
		}
		cl.StaticPod.deriveAside()
	}
}

// faults of a section, whose keys begin with at.
func (s SystemdMember) faults(at string) []fault {
	if strings.HasPrefix(s.Unit, "-") {
		return []fault{{at + "unit", fmt.Errorf("%q looks like an option", s.Unit)}}
	}
	return needed(at+"unit", s.Unit != "", Systemd)
}

func (p StaticPodMember) faults(at string) []fault {
	if folder := filepath.Dir(p.Manifest); p.Manifest != "" && inside(p.AsideDir, folder) {
		return []fault{{at + "aside-dir", fmt.Errorf("lies in the manifest folder %s, of which the kubelet reads every file: name a folder outside", folder)}}
	}
	return needed(at+"manifest", p.Manifest != "", StaticPod)
}

func (c CommandMember) faults(at string) []fault {
	return append(needed(at+"start", len(c.Start) > 0, Command), needed(at+"stop", len(c.Stop) > 0, Command)...)
}

// needed is the fault of a key that is not given.
func needed(key string, given bool, kind Kind) []fault {
	if given {
		return nil
	}
	return []fault{{key, fmt.Errorf("%w: kind %s needs it", errMissing, kind)}}
}
