package recovertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/store/storetest"
)

// TestRealHosts recovers clusters on hosts with systemd as their first process, units for
// etcd and the agent that start at boot, and Debian's openssh-server, from nothing prepared
// but ssh, the binary and a repository. The power of all hosts is cut under load, and two
// members' data is lost or damaged. In the middle of each recovery but the first a host is
// switched off, reset or rebooted, or its ssh or its cable is cut. The same command, again
// where it has failed, comes to the promised end, and to all that was acknowledged.
func TestRealHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("other tests have hosts that boot at once, and no systemd")
	}
	t.Parallel()
	s := StartMachines(t, "3.7")
	count := &tally{n: map[string]int{}}
	for i := range storetest.Amount(0, 2, 11) {
		if s.disaster(t, i, count); t.Failed() {
			return
		}
	}
	for what, n := range count.n {
		figure(t, what, n)
	}
}

// fault is what happens to a host in the middle of a recovery. Where it lasts, it ends
// before the command is run again.
type fault struct {
	name string
	do   func(t *testing.T, m *Machine)
	end  func(t *testing.T, m *Machine)
}

var faults = []fault{
	{"reset", func(t *testing.T, m *Machine) { m.off(t); m.boot(t) }, nil},
	{"rebooted", func(t *testing.T, m *Machine) { m.reboot(t) }, nil},
	{"ssh cut", func(t *testing.T, m *Machine) {
		if m.cutSSH(t) == 0 {
			t.Errorf("%s had no ssh connection to cut", m.Name)
		}
	}, nil},
	{"cable pulled", func(t *testing.T, m *Machine) { m.LinkDown(t) }, func(t *testing.T, m *Machine) { m.LinkUp(t) }},
	{"switched off", func(t *testing.T, m *Machine) { m.LinkDown(t); m.off(t) }, func(t *testing.T, m *Machine) { m.LinkUp(t); m.boot(t) }},
}

// nameCluster fills in the cluster's name, where the file has its ID.
func (s *Machines) nameCluster(t *testing.T) {
	t.Helper()
	path := filepath.Join(s.Dir, "cluster.yaml")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	named := regexp.MustCompile(`(?m)^cluster: "[0-9a-f]+"`).ReplaceAll(text, []byte("cluster: "+s.Cluster))
	require.NotEqual(t, string(text), string(named))
	require.NoError(t, os.WriteFile(path, named, 0o600))
}

// disaster is one recovery, of the cluster that the one before has made.
func (s *Machines) disaster(t *testing.T, i int, count *tally) {
	prefix := fmt.Sprintf("/disaster/%d/", i)
	c := s.all[(i+2)%3]
	l := LightLoad(t, prefix, During(2*time.Second), s.Strike(t), s.Client(t, s.hosts...), s.Client(t, s.hosts...))
	what, given, want, kept := s.lose(t, i)
	if want == exitUnproven { // the last writes may have been acknowledged without c
		l = s.heldBy(t, l, c)
	}
	for _, m := range s.all {
		m.boot(t)
	}
	end := s.Watch(t, kept...)

	typed, began := 0, time.Now()
	first := s.firstWrite(t, prefix)
	if i == 0 {
		write := []string{"recover", "--write-config", "cluster.yaml", "--repo", s.Repository}
		typed = keystrokes(write)
		s.Must(t, exitOK, write...)
		s.nameCluster(t)
		typed += len(s.Cluster)
	}
	args := append([]string{"recover", "--config", "cluster.yaml", "--yes"}, given...)
	typed += keystrokes(args)
	e := s.disturbed(t, i, args, want, what)
	took := time.Since(began)
	acked := first()
	end()
	var r recovery.Report
	e.Decode(t, &r)
	if r.Proven != (want == exitOK) || len(r.Members) != 3 || len(r.Incomplete) > 0 {
		t.Errorf("proven %t, members %v, incomplete %v", r.Proven, r.Members, r.Incomplete)
	}
	for key, ack := range acked.Acks() {
		l.add(key, ack)
		t.Logf("disaster %d: the first write after %s, the end after %s", i, ack.At.Sub(began), took)
		if i == 0 {
			figure(t, "seconds from nothing prepared to the first write", ack.At.Sub(began).Round(100*time.Millisecond).Seconds())
			figure(t, "keystrokes", typed)
		}
	}
	count.add("recoveries", 1)
	count.add("acknowledged writes", len(l.Acks()))
	s.nothingMissing(t, prefix, l, s.hosts...)
	for _, m := range s.all {
		for _, unit := range []string{"etcd", "requorum-agent", "ssh"} {
			if state := m.try("systemctl", "is-active", unit); !strings.HasPrefix(state, "active\n") {
				t.Errorf("unit %s of %s is %s", unit, m.Name, state)
			}
		}
		m.ssh(t, "systemctl", "enable", "--quiet", "etcd") // of a new disk it was not
	}
	s.waitStored(t, l)
}

// lose takes the data of two members, while all machines are off: what was done, the options
// that recover is given for it, its exit code, and the hosts whose data is left.
func (s *Machines) lose(t *testing.T, i int) (what string, given []string, code int, kept []*Host) {
	t.Helper()
	a, b, c := s.all[i%3], s.all[(i+1)%3], s.all[(i+2)%3]
	switch i % 3 {
	case 0:
		a.newDisk(t)
		b.damage(t)
		return "a disk lost, a database damaged", []string{"--declare-dead", a.Name}, exitOK, []*Host{b.Host, c.Host}
	case 1:
		a.newDisk(t)
		b.newDisk(t)
		return "two disks lost", []string{"--declare-dead", a.Name + "," + b.Name, "--accept-loss", s.Cluster}, exitUnproven, []*Host{c.Host}
	default:
		a.damage(t)
		b.damage(t)
		return "two databases damaged", nil, exitOK, s.hosts
	}
}

func keystrokes(args []string) int { return len("requorum " + strings.Join(args, " ") + "\n") }

// disturbed runs the command, with a fault at some change of the hosts' state files, and again until it
// gives the exit code.
func (s *Machines) disturbed(t *testing.T, i int, args []string, want int, what string) storetest.Ended {
	t.Helper()
	args = append(args, "--output", "json")
	if i == 0 {
		return s.Must(t, want, args...)
	}
	f, victim, line := faults[(i-1)%len(faults)], s.all[(i+1+i%2)%3], 4+i*5%20 // not who was given a new disk alone
	before := s.Steps(t)
	r := s.Start(t, args...)
	if !s.AtStep(t, r, before+line, func() { f.do(t, victim) }) {
		t.Fatalf("it ended before line %d: %s", line, r.Wait(t))
	}
	e := r.Wait(t)
	t.Logf("disaster %d: %s, %s %s at line %d: exit code %d after %s", i, what, victim.Name, f.name, line, e.Code, e.Took)
	if f.end != nil {
		f.end(t, victim)
	}
	for again := 0; e.Code != want; again++ {
		if again == 3 || !strings.Contains(e.Stderr, victim.Name) || !strings.Contains(e.Stderr, "Run the same command again") {
			t.Fatalf("%s was %s, exit code %d wanted: %s", victim.Name, f.name, want, e)
		}
		t.Logf("run again: %s", e.Stderr)
		e = s.Run(t, args...)
	}
	return e
}

// firstWrite writes until a cluster acknowledges one; ended gives that.
func (s *Machines) firstWrite(t *testing.T, prefix string) (ended func() *Load) {
	t.Helper()
	c := s.Client(t, s.hosts...)
	l := &Load{acks: map[string]Ack{}}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for k := 0; ctx.Err() == nil; k++ {
			key := fmt.Sprintf("%sfirst/%d", prefix, k)
			once, done := context.WithTimeout(ctx, time.Second)
			resp, err := c.Put(once, key, "first")
			done()
			if err == nil {
				l.add(key, Ack{"first", resp.Header.Revision, time.Now()})
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	return func() *Load {
		time.AfterFunc(2*time.Minute, cancel)
		writing.Wait()
		cancel()
		if len(l.Acks()) == 0 {
			t.Error("no write was acknowledged")
		}
		return l
	}
}

// heldBy are the acknowledged writes that a member's log or the archive holds.
func (s *Machines) heldBy(t *testing.T, l *Load, m *Machine) *Load {
	t.Helper()
	held := within(l, m.log(t))
	archived := s.Archived(t).LastRevision
	for key, a := range l.Acks() {
		if a.Revision <= archived {
			held.add(key, a)
		}
	}
	return held
}

// damage makes the keys in the database of a machine that is off unreadable. Its raft index
// stays readable: without it, the log would not count.
func (m *Machine) damage(t *testing.T) {
	t.Helper()
	flipPage(t, filepath.Join(m.DataDir, "member", "snap", "db"))
}

// newDisk sets a machine up anew that is off: etcd is installed, and not enabled yet.
func (m *Machine) newDisk(t *testing.T) {
	t.Helper()
	m.DiskLost(t)
	m.emptyDataDir(t)
	m.enable(t, "etcd", false)
	require.NoError(t, os.RemoveAll(m.disk("var/lib/requorum")))
}

// reboot is an orderly one. systemd-nspawn leaves the second half of it to who started it.
func (m *Machine) reboot(t *testing.T) {
	t.Helper()
	m.try("systemctl", "reboot") // the connection may end before the answer
	select {
	case <-m.nspawn.Done():
		m.boot(t)
	case <-time.After(90 * time.Second):
		t.Errorf("%s does not shut down: %s", m.Name, storetest.Tail(m.nspawn.Log, 30))
	}
}
