package recovery

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/verify/replaying"
)

// shortElection is for commands that meet a member without a quorum, and wait for it in
// vain; the new members have to answer within it as well.
const shortElection = 3 * time.Second

// site is a cluster whose hosts are loopback: each has its real etcd, started and
// stopped by shell scripts, and is reached through one more.
type site struct {
	version  string
	dir      string
	hosts    []*testHost
	cluster  string // etcd's --initial-cluster
	config   *Config
	election time.Duration // that commands wait for; 0: as long as the users' do
}

type testHost struct {
	name             string
	dir              string
	clientURL, peers string
	cfg              *supervisor.Setup // in the cluster file
	start            string            // the script
}

func (h *testHost) dataDir() string { return filepath.Join(h.dir, "data") }

// newSite makes hosts m1 and on, with a cluster that serves.
func newSite(t *testing.T, version string, n int, repositories ...string) *site {
	t.Helper()
	s := &site{version: version, dir: t.TempDir()}
	var parts []string
	for i := range n {
		h := s.testHost(t, fmt.Sprintf("m%d", i+1))
		parts = append(parts, h.name+"="+h.peers)
		s.hosts = append(s.hosts, h)
	}
	s.cluster = strings.Join(parts, ",")
	var yaml bytes.Buffer
	yaml.WriteString("cluster: production\n")
	if len(repositories) > 0 {
		fmt.Fprintf(&yaml, "repositories: [%q]\n", strings.Join(repositories, `", "`))
	}
	yaml.WriteString("hosts:\n")
	for _, h := range s.hosts {
		fmt.Fprintf(&yaml, "  - {member: %s, client-urls: [%q], data-dir: %q, kind: command, command: {start: [a], stop: [b]}}\n", h.name, h.clientURL, h.dataDir())
	}
	var err error
	s.config, err = ParseConfig(yaml.Bytes(), filepath.Join(s.dir, "cluster.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.config.file, yaml.Bytes(), 0o600))
	for i, h := range s.hosts {
		s.addHost(t, h, i)
		h.run(t)
	}
	s.waitReady(t, s.hosts...)
	return s
}

// deadSite is one of hosts m1 and on that took the keys which are given back, and died.
func deadSite(t *testing.T, n int) (s *site, want map[string]string) {
	t.Helper()
	s = newSite(t, "3.6", n)
	want = s.fill(t, "a", 20)
	s.killAll()
	return s, want
}

// testHost is one whose ports are no other test's while its member is down.
func (s *site) testHost(t *testing.T, name string) *testHost {
	t.Helper()
	return &testHost{name: name, dir: filepath.Join(s.dir, name), clientURL: "http://" + storetest.FreeAddress(t), peers: "http://" + storetest.FreeAddress(t)}
}

// newHost is one more, without a member, in the place of
// another in the cluster file.
func (s *site) newHost(t *testing.T, name string, place int) *testHost {
	t.Helper()
	h := s.testHost(t, name)
	s.config.Hosts[place] = HostConfig{Member: name, ClientURLs: []string{h.clientURL}}
	s.addHost(t, h, place)
	return h
}

func (s *site) addHost(t *testing.T, h *testHost, place int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(h.dir, 0o700))
	pid, fsync := filepath.Join(h.dir, "pid"), ""
	if !storetest.Soak() {
		fsync = " --unsafe-no-fsync" // who is killed loses nothing by it, and a slow disk no leader
	}
	write := func(name, text string) string {
		path := filepath.Join(h.dir, name)
		require.NoError(t, storetest.WriteProgram(path, []byte("#!/bin/sh\nexport ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH+"\n"+text), 0o700))
		return path
	}
	h.start = write("start", "setsid "+storetest.Binary(t, s.version, "etcd")+" --name="+h.name+" --data-dir="+h.dataDir()+
		" --initial-cluster="+s.cluster+" --listen-peer-urls="+h.peers+" --initial-advertise-peer-urls="+h.peers+
		" --listen-client-urls="+h.clientURL+" --advertise-client-urls="+h.clientURL+fsync+
		" >>"+filepath.Join(h.dir, "log")+" 2>&1 &\necho $! >"+pid+"\n")
	stop := write("stop", "kill -9 $(cat "+pid+")\n") // a lone member takes seconds otherwise
	h.cfg = &s.config.Hosts[place].Setup
	*h.cfg = supervisor.Setup{
		Run: filepath.Join(h.dir, "reach"), Requorum: os.Args[0], StateDir: filepath.Join(h.dir, "state"),
		MemberConfig: supervisor.MemberConfig{
			DataDir: h.dataDir(),
			ServiceConfig: supervisor.ServiceConfig{
				Kind: supervisor.Command, Command: supervisor.CommandMember{Start: []string{h.start}, Stop: []string{stop}},
				StopTimeout: yamlfile.Duration(20 * time.Second), StartTimeout: yamlfile.Duration(20 * time.Second),
			},
		},
	}
	h.cfg.Complete(h.name, &supervisor.Setup{})
	h.control(t)
	t.Cleanup(func() {
		h.end()
		h.kill()
		if data, err := os.ReadFile(filepath.Join(h.dir, "log")); err == nil && t.Failed() {
			t.Logf("the output of %s:\n%s", h.name, data[max(0, len(data)-2000):])
		}
	})
}

// control makes the host reachable: what its command runs is this program, as a host
// process (see TestMain).
func (h *testHost) control(t *testing.T) {
	t.Helper()
	h.reach(t, `echo $$ >>`+filepath.Join(h.dir, "processes")+`
REQUORUM_TEST_HOST=1 exec "$@"
`)
}

// reach writes the command that reaches the host.
func (h *testHost) reach(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(h.dir, "reach")
	require.NoError(t, storetest.WriteProgram(path+".new", []byte("#!/bin/sh\n"+text), 0o700))
	require.NoError(t, os.Rename(path+".new", path))
}

// end makes the host unreachable, as ssh would say it, and kills its host processes.
func (h *testHost) end() {
	path := filepath.Join(h.dir, "reach")
	if err := storetest.WriteProgram(path+".new", []byte("#!/bin/sh\necho 'ssh: connect to host "+h.name+" port 22: No route to host' >&2\nexit 255\n"), 0o700); err == nil {
		_ = os.Rename(path+".new", path)
	}
	data, _ := os.ReadFile(filepath.Join(h.dir, "processes"))
	for text := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(text); err == nil && pid > 1 {
			if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && bytes.Contains(env, []byte("REQUORUM_TEST_HOST=1")) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// run starts the host's etcd as an init script would.
func (h *testHost) run(t *testing.T) {
	t.Helper()
	p, err := os.StartProcess(h.start, []string{h.start}, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, nil, nil}})
	if err == nil {
		_, err = p.Wait()
	}
	require.NoError(t, err)
}

// kill is kill -9 of the host's etcd.
func (h *testHost) kill() {
	data, err := os.ReadFile(filepath.Join(h.dir, "pid"))
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid < 2 {
		return
	}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || !strings.HasPrefix(string(name), "etcd") {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for syscall.Kill(pid, 0) == nil {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// ends reports whether the process that was started last ends by itself.
func (h *testHost) ends() bool {
	data, err := os.ReadFile(filepath.Join(h.dir, "pid"))
	for began := time.Now(); err == nil && time.Since(began) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		var stat []byte
		if stat, err = os.ReadFile("/proc/" + strings.TrimSpace(string(data)) + "/stat"); strings.Contains(string(stat), ") Z ") {
			return true
		}
	}
	return err != nil
}

func (s *site) killAll(hosts ...*testHost) {
	if len(hosts) == 0 {
		hosts = s.hosts
	}
	var all sync.WaitGroup
	for _, h := range hosts {
		all.Go(h.kill)
	}
	all.Wait()
}

func (s *site) client(t *testing.T, hosts ...*testHost) *clientv3.Client {
	t.Helper()
	var urls []string
	for _, h := range hosts {
		urls = append(urls, h.clientURL)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: urls, DialTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// waitReady waits until each of the hosts serves linearizable reads.
func (s *site) waitReady(t *testing.T, hosts ...*testHost) {
	t.Helper()
	for _, h := range hosts {
		c := s.client(t, h)
		storetest.Eventually(t, h.name+" serves", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := c.Get(ctx, "x")
			return err
		})
	}
}

// fill writes keys, and gives what the cluster acknowledged.
func (s *site) fill(t *testing.T, prefix string, n int) map[string]string {
	t.Helper()
	return fill(t, s.client(t, s.hosts...), prefix, n)
}

func (s *site) fillAt(t *testing.T, prefix string, hosts ...*testHost) map[string]string {
	t.Helper()
	return fill(t, s.client(t, hosts...), prefix, 5)
}

func fill(t *testing.T, c *clientv3.Client, prefix string, n int) map[string]string {
	t.Helper()
	all := map[string]string{}
	for i := range n {
		k, v := fmt.Sprintf("%s/%04d", prefix, i), fmt.Sprintf("value %d of %s", i, prefix)
		// A new leader may be being elected.
		storetest.Eventually(t, k+" is written", func() error { _, err := c.Put(t.Context(), k, v); return err })
		all[k] = v
	}
	return all
}

// again makes a restored site's old cluster serve and die anew.
func (s *site) again(t *testing.T) {
	t.Helper()
	s.waitReady(t, s.hosts...)
	s.killAll()
}

// check holds what a cluster has against what was acknowledged.
func (s *site) check(t *testing.T, want map[string]string, hosts ...*testHost) {
	t.Helper()
	c := s.client(t, hosts...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := c.Get(ctx, "", clientv3.WithPrefix())
	require.NoError(t, err)
	got := map[string]string{}
	for _, kv := range r.Kvs {
		got[string(kv.Key)] = string(kv.Value)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
}

func (s *site) clusterID(t *testing.T, h *testHost) uint64 {
	t.Helper()
	r, err := s.client(t, h).Status(t.Context(), h.clientURL)
	require.NoError(t, err)
	return r.Header.ClusterId
}

// heard is an Events that answers as it is set to, and keeps what it heard.
type heard struct {
	t      *testing.T
	answer func(Question) (bool, error)

	mu        sync.Mutex
	questions []Question
	steps     []string // "phase host", as they were ended
	notes     []string
	begun     func(Phase, string) // hears the beginning of each step
	waits     func(Phase, string) // hears what is waited for
	noted     func(string)        // hears each note
}

func (e *heard) Begin(p Phase, host string) {
	if e.begun != nil {
		e.begun(p, host)
	}
}

func (e *heard) End(p Phase, host, detail string, _ time.Duration, err error) {
	if err == nil && detail != "built before" {
		e.mu.Lock()
		e.steps = append(e.steps, string(p)+" "+host)
		e.mu.Unlock()
	}
}
func (e *heard) Progress(Phase, string, string, int64, int64) {}
func (e *heard) Waiting(p Phase, text string) {
	if e.waits != nil {
		e.waits(p, text)
	}
}
func (e *heard) Note(text string) {
	e.notes = append(e.notes, text)
	if e.noted != nil {
		e.noted(text)
	}
	e.t.Log(text)
}
func (e *heard) Warn(text string) { e.Note("warning: " + text) }
func (e *heard) Confirm(_ context.Context, q Question) error {
	e.questions = append(e.questions, q)
	if e.answer == nil {
		return nil
	}
	yes, err := e.answer(q)
	if err == nil && !yes {
		err = ErrDeclined
	}
	return err
}

// endAt ends a recovery where a phase begins on a host, or as a whole, on a machine of its
// own, and fails the test where it does not come to that.
func (s *site) endAt(t *testing.T, e *heard, machine string, phase Phase, host string) {
	t.Helper()
	e.endAt(t, phase, host, func(ctx context.Context) error { _, err := Run(ctx, s.onMachine(t, e, machine)); return err })
}

// endAt ends what is done where a phase begins on a host, or as a whole, and fails the test
// where it does not come to that.
func (e *heard) endAt(t *testing.T, phase Phase, host string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fired := false
	e.begun = func(p Phase, h string) {
		if p == phase && h == host {
			fired = true
			cancel()
		}
	}
	defer func() { e.begun = nil }()
	if err := do(ctx); err == nil || !fired {
		t.Fatalf("%s on %q: ended %t, %v", phase, host, fired, err)
	}
}

// onMachine is a request on another machine, which has the cluster file, and nothing else.
func (s *site) onMachine(t *testing.T, e *heard, machine string) Request {
	t.Helper()
	cfg := *s.config
	cfg.file = filepath.Join(s.dir, machine+".yaml")
	require.NoError(t, os.WriteFile(cfg.file, nil, 0o600))
	req := s.request(e)
	req.Config = &cfg
	return req
}

// did reports whether a step was done.
func (e *heard) did(step string) bool { return slices.Contains(e.steps, step) }

func (s *site) request(e *heard) Request {
	r := Request{Config: s.config, Version: "test", CheckBase: replaying.CheckBase, patience: 100 * time.Millisecond, proveTimeout: 2 * time.Minute, election: s.election}
	if e != nil {
		r.Events = e
	}
	return r
}
