// Setup is what a host process is given about its host: its member, the clients
// of the cluster that run there, and where it keeps its state. The keys stand in the
// cluster file of `requorum recover`, for each host or once for all, and reach the
// host with the first request.

package supervisor

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/store/yamlfile"
)

// Setup are the keys of a host in the cluster file: how it is reached, and what its
// host process must know.
type Setup struct {
	// Run is the command through which a program is run on the host, split at spaces,
	// without a shell; `requorum host` is added to it.
	//
	// Default: ssh -o BatchMode=yes -o ConnectTimeout=10 root@HOST, the host being that
	// of the member's peer URL.
	Run string `yaml:"run"`
	// Requorum is the program on the host. Default: requorum, as found in PATH there.
	Requorum string `yaml:"requorum"`
	// StateDir is the host process's folder: what it remembers, and the member's output. On no
	// file system that the recovery might replace.
	//
	// Default: /var/lib/requorum-host.
	StateDir string `yaml:"state-dir"`

	MemberConfig `yaml:",inline"`

	// Clients are what writes through the cluster from this host, in the order in
	// which they are stopped before any member is.
	Clients []ClientConfig `yaml:"clients"`
}

// Kind is how a member is stopped and started.
type Kind string

// The kinds.
const (
	Systemd   Kind = "systemd"
	StaticPod Kind = "static-pod"
	Command   Kind = "command"
	// None is no supervisor: nothing runs on the directories, which are only read. No cluster
	// file has it; each directory of recover --local does.
	None Kind = "none"
)

// kinds are all of them. Each has a section of its name in the cluster file; a new one
// stands here, in Check, and in newService.
var kinds = []Kind{Systemd, StaticPod, Command}

// ServiceConfig is how something is stopped and started: a member or a client.
type ServiceConfig struct {
	Kind Kind `yaml:"kind"`

	Systemd   SystemdMember   `yaml:"systemd"`
	StaticPod StaticPodMember `yaml:"static-pod"`
	Command   CommandMember   `yaml:"command"`

	// StopTimeout is how long it may take until it is proved stopped; StartTimeout
	// until it runs.
	//
	// Default: 3m: a kubelet can take two minutes to notice a manifest.
	StopTimeout  yamlfile.Duration `yaml:"stop-timeout"`
	StartTimeout yamlfile.Duration `yaml:"start-timeout"`
}

// MemberConfig is the one of the host.
type MemberConfig struct {
	// Name in the cluster.
	Name string `yaml:"-"`
	// DataDir, and WALDir where the log lies in a folder of its own.
	DataDir string `yaml:"data-dir"`
	WALDir  string `yaml:"wal-dir"`
	// Owner of what is rebuilt, as user:group. Default: as found on what is
	// replaced, which is whoever the host process runs as where the data directory is
	// gone.
	Owner string `yaml:"owner"`

	ServiceConfig `yaml:",inline"`
}

// SystemdMember is a unit.
type SystemdMember struct {
	Unit string `yaml:"unit"`
	// Systemctl is the program. Default: found in PATH.
	Systemctl string `yaml:"systemctl"`
}

// StaticPodMember is a manifest that the kubelet watches, as kubeadm writes it.
type StaticPodMember struct {
	// Manifest, such as /etc/kubernetes/manifests/etcd.yaml.
	Manifest string `yaml:"manifest"`
	// AsideDir is where the manifest lies while the member is stopped: outside the
	// manifest folder, of which the kubelet reads every file, and on the same file
	// system, so that it comes back whole.
	//
	// Default: requorum-manifests beside the manifest folder.
	AsideDir string `yaml:"aside-dir"`
	// CRISocket is asked through crictl whether the container is gone, such as
	// unix:///run/containerd/containerd.sock. Default: the process table and the
	// locks alone.
	CRISocket string `yaml:"cri-socket"`
	// Container is its name in the manifest. Default: etcd.
	Container string `yaml:"container"`
	// Crictl is the program. Default: found in PATH.
	Crictl string `yaml:"crictl"`
}

// CommandMember is stopped and started by programs, which no shell reads.
type CommandMember struct {
	Start []string `yaml:"start"`
	Stop  []string `yaml:"stop"`
	// Status exits 0 where the member runs and 3 (or 1, 2) where it doesn't, as
	// init scripts do. Default: the process table and the locks alone.
	Status []string `yaml:"status"`
}

// DefaultStateDir is the default.
const DefaultStateDir = "/var/lib/requorum-host"

// DefaultSetup has what need not be said.
func DefaultSetup() *Setup {
	const patience = yamlfile.Duration(3 * time.Minute)
	return &Setup{
		Requorum: "requorum", StateDir: DefaultStateDir,
		MemberConfig: MemberConfig{ServiceConfig: ServiceConfig{
			StopTimeout: patience, StartTimeout: patience,
			Systemd:   SystemdMember{Systemctl: "systemctl"},
			StaticPod: StaticPodMember{Container: "etcd", Crictl: "crictl"},
		}},
	}
}

// ClientConfig is something that writes through the cluster, and must not while it is
// recovered: an API server, for one. Clients are stopped in the order of the list
// before any member is, and started in the reverse order after the proof.
type ClientConfig struct {
	// Name is what answers, the state file and the log call it.
	Name string `yaml:"name"`

	ServiceConfig `yaml:",inline"`

	// Process is the name of its program, as the process table has it, such as
	// kube-apiserver: while one of that name runs on this host the client is not
	// stopped. Needed for static-pod and command.
	Process string `yaml:"process"`
	// Restart leaves the client alone until the new cluster is proved, and restarts
	// it then: what keeps state of the old one in memory, and writes only through
	// clients that are stopped.
	Restart bool `yaml:"restart"`
}

const guide = "docs/quorum-loss.md"

// PlainName is what names of clients look like, and of members and clusters in the
// cluster file.
var PlainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

var errMissing = errors.New("is not given, and there is no default")

// Complete fills in what a host of the cluster file leaves out: with what stands there
// for all hosts, then with the defaults. member is the host's.
func (s *Setup) Complete(member string, all *Setup) {
	fill(reflect.ValueOf(s).Elem(), reflect.ValueOf(all).Elem())
	fill(reflect.ValueOf(s).Elem(), reflect.ValueOf(DefaultSetup()).Elem())
	s.Clients = slices.Clone(s.Clients) // which are derived below, for each host
	s.Name = member
	m := &s.MemberConfig
	if m.DataDir != "" {
		m.DataDir = filepath.Clean(m.DataDir)
	}
	if m.WALDir != "" {
		m.WALDir = filepath.Clean(m.WALDir)
	}
	m.StaticPod.deriveAside()
	s.deriveClients()
}

// fill sets what is zero.
func fill(to, from reflect.Value) {
	for i := range to.NumField() {
		if f := to.Field(i); f.Kind() == reflect.Struct {
			fill(f, from.Field(i))
		} else if f.IsZero() {
			f.Set(from.Field(i))
		}
	}
}

// Check looks what is wrong with a host's keys, which begin with at, once they are
// Complete.
func (s *Setup) Check(k *yamlfile.Checker, at string) {
	m := &s.MemberConfig
	for _, of := range []struct{ key, value string }{{"data-dir", m.DataDir}, {"kind", string(m.Kind)}} {
		k.Refuse(of.value == "", at+of.key, "%w: give it here, or in defaults for all hosts", errMissing)
	}
	checkPaths(k, at, [][2]string{{"data-dir", m.DataDir}, {"wal-dir", m.WALDir}, {"state-dir", s.StateDir}})
	k.Refuse(m.DataDir == "/", at+"data-dir", "/ is no data directory")
	k.Refuse(inside(s.StateDir, m.DataDir), at+"data-dir", "the state folder lies in it: it must outlive it")
	k.Refuse(m.Owner != "" && strings.Count(m.Owner, ":") != 1, at+"owner", "%q: want user:group, such as etcd:etcd", m.Owner)
	k.Refuse(strings.HasPrefix(s.Run, "-") || strings.HasPrefix(s.Requorum, "-") || strings.ContainsAny(s.Requorum, " \t\n"),
		at+"run", "%q and requorum %q: want a command, such as ssh root@10.0.0.1, and a program", s.Run, s.Requorum)
	switch m.Kind {
	case "":
	case Systemd, StaticPod, Command:
		m.checkKind(k, at)
	default:
		k.Refuse(true, at+"kind", "%q: want systemd, static-pod or command (K3s, RKE2 and Talos are recovered by hand: %s)", m.Kind, guide)
	}
	m.check(k, at, "member")
	s.checkClients(k, at)
}

// check looks at the keys that a member and a client have alike.
func (s *ServiceConfig) check(k *yamlfile.Checker, at, what string) {
	checkPaths(k, at, [][2]string{{"static-pod.manifest", s.StaticPod.Manifest}, {"static-pod.aside-dir", s.StaticPod.AsideDir}})
	for _, other := range kinds {
		k.Refuse(other != s.Kind && k.Given(at+string(other)), at+string(other), "is for kind %s, and the %s is of kind %s: remove it", other, what, s.Kind)
	}
	for _, of := range []struct {
		key   string
		value yamlfile.Duration
	}{{"stop-timeout", s.StopTimeout}, {"start-timeout", s.StartTimeout}} {
		k.Refuse(of.value < 0 || k.Given(at+of.key) && of.value == 0, at+of.key, "want a time to wait, such as 3m")
	}
}

// checkKind looks at the section of the kind.
func (s *ServiceConfig) checkKind(k *yamlfile.Checker, at string) {
	at += string(s.Kind) + "."
	switch s.Kind {
	case Systemd:
		k.Refuse(strings.HasPrefix(s.Systemd.Unit, "-"), at+"unit", "%q looks like an option", s.Systemd.Unit)
		needed(k, at+"unit", s.Systemd.Unit != "", s.Kind)
	case StaticPod:
		folder := filepath.Dir(s.StaticPod.Manifest)
		k.Refuse(s.StaticPod.Manifest != "" && inside(s.StaticPod.AsideDir, folder), at+"aside-dir", "lies in the manifest folder %s, of which the kubelet reads every file: name a folder outside", folder)
		needed(k, at+"manifest", s.StaticPod.Manifest != "", s.Kind)
	case Command:
		needed(k, at+"start", len(s.Command.Start) > 0, s.Kind)
		needed(k, at+"stop", len(s.Command.Stop) > 0, s.Kind)
	case None:
	}
}

// checkPaths refuses relative ones; each comes with its key.
func checkPaths(k *yamlfile.Checker, at string, paths [][2]string) {
	for _, of := range paths {
		k.Refuse(of[1] != "" && !filepath.IsAbs(of[1]), at+of[0], "%s is relative, and would mean another file in another folder: write the whole path", of[1])
	}
}

// needed refuses a key that is not given.
func needed(k *yamlfile.Checker, key string, given bool, kind Kind) {
	k.Refuse(!given, key, "%w: kind %s needs it", errMissing, kind)
}

// inside reports whether a path is a folder or lies in it.
func inside(path, folder string) bool {
	if path == "" || folder == "" {
		return false
	}
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// checkClients looks at the list of clients.
func (s *Setup) checkClients(k *yamlfile.Checker, at string) {
	names, manifests := map[string]bool{}, map[string]bool{}
	if s.Kind == StaticPod {
		manifests[s.StaticPod.Manifest] = true
	}
	for i, cl := range s.Clients {
		at := fmt.Sprintf("%sclients[%d].", at, i)
		k.Refuse(cl.Name == "", at+"name", "%w", errMissing)
		k.Refuse(cl.Name != "" && !PlainName.MatchString(cl.Name), at+"name", "%q: want letters, digits, dots, underscores and hyphens", cl.Name)
		k.Refuse(cl.Name != "" && names[cl.Name], at+"name", "%q stands there twice: each client needs a name of its own", cl.Name)
		names[cl.Name] = true
		k.Refuse(strings.ContainsAny(cl.Process, "/ "), at+"process", "%q: want the program's name alone, such as kube-apiserver", cl.Process)
		m := cl.StaticPod.Manifest
		k.Refuse(m != "" && manifests[m], at+"static-pod.manifest", "%s is the member's, or another client's", m)
		manifests[m] = true
		cl.check(k, at, "client")
		switch cl.Kind {
		case StaticPod, Command:
			needed(k, at+"process", cl.Process != "", cl.Kind)
			cl.checkKind(k, at)
		case Systemd:
			cl.checkKind(k, at)
		default:
			k.Refuse(true, at+"kind", "%q: want static-pod, systemd or command", cl.Kind)
		}
	}
}

// deriveClients fills in what need not be said.
func (s *Setup) deriveClients() {
	for i := range s.Clients {
		cl := &s.Clients[i]
		defaults := DefaultSetup().ServiceConfig
		defaults.StaticPod.Container = cl.Process // kubeadm's manifests call it so
		fill(reflect.ValueOf(&cl.ServiceConfig).Elem(), reflect.ValueOf(defaults))
		cl.StaticPod.deriveAside()
	}
}

func (p *StaticPodMember) deriveAside() {
	if p.AsideDir == "" && p.Manifest != "" {
		p.AsideDir = filepath.Join(filepath.Dir(filepath.Dir(p.Manifest)), "requorum-manifests")
	}
}
