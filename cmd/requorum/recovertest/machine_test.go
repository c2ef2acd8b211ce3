package recovertest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// Machine is a host whose first process is systemd, made of Debian's packages: sshd, and
// etcd and the agent as units that start at boot. What it writes stays when it has no power.
type Machine struct {
	*Host
	owner  string // etcd's user, and its group
	nspawn *storetest.Process
}

// Machines is a cluster on such hosts, and an operator who reaches them by ssh.
type Machines struct {
	*Site
	all []*Machine
}

// needMachines skips a test, loudly, where none can be booted.
func needMachines(t testing.TB) {
	t.Helper()
	needNetwork(t)
	for program, of := range map[string]string{"systemd-nspawn": "systemd-container", "debootstrap": "debootstrap", "ssh": "openssh-client"} {
		if _, err := exec.LookPath(program); err != nil {
			storetest.Unavailable(t, fmt.Sprintf("%s is not installed (apt-get install %s)", program, of))
		}
	}
	if out, err := exec.Command(filepath.Join(storetest.Root(t), ".tools", "debian")).CombinedOutput(); err != nil {
		storetest.Unavailable(t, fmt.Sprintf(".tools/debian: %v: %s", err, out))
	}
}

// StartMachines boots hosts and waits until their members serve and are archived.
func StartMachines(t testing.TB, version string) *Machines {
	t.Helper()
	needMachines(t)
	s := &Machines{Site: newSite(t, Options{Version: version, Repository: OnS3})}
	for _, h := range s.hosts {
		s.all = append(s.all, &Machine{Host: h})
	}
	s.shell(t)
	var booting sync.WaitGroup
	for _, m := range s.all {
		m.install(t)
		booting.Go(func() { m.boot(t) })
	}
	booting.Wait()
	t.Cleanup(func() {
		for _, m := range s.all {
			if t.Failed() {
				t.Logf("journal of %s:\n%s", m.Name, m.try("journalctl", "--no-pager", "--lines=40"))
			}
			m.off(t)
		}
	})
	s.WaitReady(t, s.hosts...)
	s.waitArchived(t)
	return s
}

// shell gives the operator a key, hosts that are known, and requorum. ssh looks for
// these in root's home, whatever HOME says: the operator's folder is mounted there, for the
// operator's processes only.
func (s *Machines) shell(t testing.TB) {
	t.Helper()
	dir := filepath.Join(s.Dir, ".ssh")
	require.NoError(t, os.Mkdir(dir, 0o700))
	program(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "id_ed25519"))
	wrapper := filepath.Join(s.Dir, "requorum")
	text := fmt.Sprintf("#!/bin/sh\nexec unshare --mount sh -c 'mount --bind %s /root && exec %s \"$@\"' requorum \"$@\"\n", s.Dir, s.Binary)
	require.NoError(t, storetest.WriteProgram(wrapper, []byte(text), 0o700))
	s.Binary = wrapper
}

// etcdUnit is that of Debian's etcd-server, but for the folder of its program.
const etcdUnit = `[Unit]
Description=etcd - highly-available key value store
After=network.target
Wants=network-online.target

[Service]
EnvironmentFile=-/etc/default/etcd
Type=notify
User=etcd
ExecStart=/usr/bin/etcd
Restart=on-abnormal
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
`

// install fills the machine's disk.
func (m *Machine) install(t testing.TB) {
	t.Helper()
	root := storetest.Root(t)
	passwd, err := os.ReadFile(filepath.Join(root, ".cache", "debian", "etc", "passwd"))
	require.NoError(t, err)
	for line := range strings.Lines(string(passwd)) {
		if f := strings.Split(line, ":"); f[0] == "etcd" {
			m.owner = f[2] + ":" + f[3]
		}
	}
	unit, err := os.ReadFile(filepath.Join(root, "deploy", "systemd", "requorum-agent.service"))
	require.NoError(t, err)
	key, err := os.ReadFile(filepath.Join(m.site.Dir, ".ssh", "id_ed25519.pub"))
	require.NoError(t, err)
	env := func(name string) string {
		for _, e := range m.site.Env {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v
			}
		}
		return ""
	}
	for path, text := range map[string]string{
		"etc/hostname":                              m.Name + "\n",
		"etc/machine-id":                            fmt.Sprintf("%032x\n", m.site.number<<8|m.number),
		"root/.ssh/authorized_keys":                 string(key),
		"etc/systemd/system/etcd.service":           etcdUnit,
		"etc/systemd/system/requorum-agent.service": string(unit),
		"etc/requorum/secrets/aws":                  fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY")),
		"etc/requorum/agent.yaml":                   fmt.Sprintf("etcd: {endpoints: [%q]}\nmember: {data-dir: /var/lib/etcd}\nrepository: {url: %q, retry-for: 2s}\narchive: {interval: 1s, takeover: 2s, spool-dir: /var/lib/requorum/spool}\nresources: {scratch-dir: /var/lib/requorum}\n", m.ClientURL, m.site.Repository),
		"etc/default/etcd": fmt.Sprintf(`ETCD_NAME=%s
ETCD_DATA_DIR=/var/lib/etcd
ETCD_LISTEN_PEER_URLS=%s
ETCD_LISTEN_CLIENT_URLS=%s
ETCD_INITIAL_ADVERTISE_PEER_URLS=%[2]s
ETCD_ADVERTISE_CLIENT_URLS=%[3]s
ETCD_INITIAL_CLUSTER=%[4]s
ETCD_INITIAL_CLUSTER_STATE=new
`, m.Name, m.PeerURL, m.ClientURL, m.site.InitialCluster()),
	} {
		path = m.disk(path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		mode := os.FileMode(0o644)
		if strings.Contains(path, "secrets") || strings.Contains(path, ".ssh") {
			mode = 0o600
		}
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
	}
	if err := os.MkdirAll(m.disk("etc/ssh"), 0o755); err != nil { // where ssh-keygen puts them
		t.Fatal(err)
	}
	program(t, "ssh-keygen", "-q", "-A", "-f", m.disk())
	host, err := os.ReadFile(m.disk("etc/ssh/ssh_host_ed25519_key.pub"))
	require.NoError(t, err)
	known, err := os.OpenFile(filepath.Join(m.site.Dir, ".ssh", "known_hosts"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = fmt.Fprintf(known, "%s %s", m.Address, host)
	require.NoError(t, errors.Join(err, known.Close()))
	for _, unit := range []string{"etcd", "requorum-agent"} {
		m.enable(t, unit, true)
	}
	m.emptyDataDir(t)
}

// disk is a path on what the machine has written, as this machine sees it while it is off.
func (m *Machine) disk(elem ...string) string {
	return filepath.Join(append([]string{m.dir, "disk"}, elem...)...)
}

// enable makes a unit start at boot, or not, on a machine that is off.
func (m *Machine) enable(t testing.TB, unit string, enabled bool) {
	t.Helper()
	link := m.disk("etc/systemd/system/multi-user.target.wants", unit+".service")
	err := os.MkdirAll(filepath.Dir(link), 0o755)
	if err == nil {
		err = os.RemoveAll(link)
	}
	if err == nil && enabled {
		err = os.Symlink("/etc/systemd/system/"+unit+".service", link)
	}
	require.NoError(t, err)
}

func (m *Machine) emptyDataDir(t testing.TB) {
	t.Helper()
	require.NoError(t, os.Mkdir(m.DataDir, 0o700))
	program(t, "chown", m.owner, m.DataDir)
}

// bootScript runs systemd-nspawn in control groups of its own, since the systemd of each
// machine takes those that it finds. It is the first process of a namespace: mounts and
// processes end with it, and it with the test.
const bootScript = `
for groups in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
	if [ -e $groups/cgroup.procs ]; then
		mkdir -p $groups/$SPACE
		echo $$ >$groups/$SPACE/cgroup.procs
	fi
done
cd $DIR
mkdir -p disk work root
mkdir -p /run/systemd/nspawn
mount -t tmpfs tmpfs /run/systemd/nspawn # what it leaves there
mount -t overlay overlay -o lowerdir=$TREE,upperdir=disk,workdir=work root
systemd-nspawn --quiet --register=no --keep-unit --boot --console=pipe --machine=$SPACE --hostname=$NAME \
	--network-namespace-path=$NETNS --directory=root \
	--bind-ro=$ETCD:/usr/bin/etcd --bind-ro=$REQUORUM:/usr/local/bin/requorum \
	--bind=$DIR/etcd:/var/lib/etcd --bind=$DIR/state:/var/lib/requorum-host || exit`

// boot switches the machine on, and waits for its sshd.
func (m *Machine) boot(t testing.TB) {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", bootScript)
	cmd.Env = append(os.Environ(), "SPACE="+string(m.space), "NAME="+m.Name, "DIR="+m.dir, "NETNS="+filepath.Join(netnsDir, string(m.space)),
		"TREE="+filepath.Join(storetest.Root(t), ".cache", "debian"), "ETCD="+m.site.etcd, "REQUORUM="+storetest.Requorum(t))
	var err error
	if m.nspawn, err = storetest.StartProcess(cmd, filepath.Join(m.dir, "console.log")); err != nil {
		t.Error(err)
		return
	}
	m.waitSSH(t)
}

// waitSSH waits until sshd says hello.
func (m *Machine) waitSSH(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if conn, err := net.DialTimeout("tcp", m.Address+":22", time.Second); err == nil {
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			hello := make([]byte, 4)
			_, err = conn.Read(hello)
			conn.Close()
			if err == nil && string(hello) == "SSH-" {
				return
			}
		}
		if !m.nspawn.Running() || time.Now().After(deadline) {
			t.Errorf("%s does not boot: %s", m.Name, storetest.Tail(m.nspawn.Log, 30))
			return
		}
	}
}

// off is a machine's power cut: all of its processes end with the first one.
func (m *Machine) off(t testing.TB) {
	t.Helper()
	m.space.killAll(t)
	if m.nspawn == nil {
		return
	}
	select {
	case <-m.nspawn.Done():
	case <-time.After(20 * time.Second):
		t.Errorf("systemd-nspawn of %s does not end", m.Name)
		m.nspawn.Kill()
	}
}

// Strike finds the machines' first processes, for a power cut without delay.
func (s *Machines) Strike(t testing.TB) (strike func()) {
	t.Helper()
	var first []int
	for _, m := range s.all {
		first = append(first, slices.Min(m.space.processes(t)))
	}
	return func() {
		for _, pid := range first {
			_ = syscall.Kill(pid, syscall.SIGKILL) // seen below
		}
		for _, m := range s.all {
			m.off(t)
		}
	}
}

// cutSSH ends the machine's ssh connections, and not the programs that these run.
func (m *Machine) cutSSH(t testing.TB) (cut int) {
	t.Helper()
	for _, pid := range m.space.processes(t) {
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.HasPrefix(string(command), "sshd: root") && syscall.Kill(pid, syscall.SIGKILL) == nil {
			cut++
		}
	}
	return cut
}

// ssh runs a command on the machine, as the operator would.
func (m *Machine) ssh(t testing.TB, command ...string) string {
	t.Helper()
	out, err := m.sshCommand(command...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s on %s: %v: %s", strings.Join(command, " "), m.Name, err, out)
	}
	return strings.TrimSpace(string(out))
}

// try is ssh for the output of a failed test.
func (m *Machine) try(command ...string) string {
	out, err := m.sshCommand(command...).CombinedOutput()
	return strings.TrimSpace(fmt.Sprintf("%s\n%v", out, err))
}

func (m *Machine) sshCommand(command ...string) *exec.Cmd {
	dir := filepath.Join(m.site.Dir, ".ssh")
	return exec.Command("ssh", append([]string{"-F", "none", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-i", filepath.Join(dir, "id_ed25519"), "-o", "UserKnownHostsFile=" + filepath.Join(dir, "known_hosts"), "root@" + m.Address}, command...)...)
}

func program(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// removeGroups removes the control groups of a number's machines that have ended.
func removeGroups(number int) {
	for _, groups := range []string{"", "systemd", "unified"} {
		all, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", groups, "rq"+strconv.Itoa(number)+"-*")) // the pattern is a sound one
		for _, top := range all {
			var dirs []string
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, dir := range slices.Backward(dirs) {
				_ = os.Remove(dir) // what is not empty yet goes the next time
			}
		}
	}
}
