package rebuilding

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	agent "github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

const (
	run1, run2 = "recovery-1", "recovery-2"
	token      = "recovered-1"
)

// lost is a cluster of three that was killed, with a repository that has a full
// snapshot of it, from before the last writes.
type lost struct {
	c          *storetest.Cluster
	ca         *storetest.Authority
	fill       *storetest.Filled
	repository string
	plan       *recovery.Plan
	findings   *recovery.Findings
}

func lose(t *testing.T, version string) *lost {
	t.Helper()
	// The databases stay as the snapshot left them: all that comes later is in the logs.
	args := []string{"--backend-batch-interval=10m"}
	l := &lost{c: storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: args}), ca: storetest.NewAuthority(t), repository: t.TempDir()}
	l.c.WaitReady(t)
	client := l.c.Client(t)
	if _, err := client.Put(t.Context(), "before", "the snapshot"); err != nil {
		t.Fatal(err)
	}
	place, err := disk.New(l.repository)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	_, err = snapshot.Take(t.Context(), snapshot.Request{Client: storeClient(t, l.c), Sinks: []sinks.Sink{place}, Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	l.fill = l.c.Fill(t, storetest.Load{Keys: 1500, ValueSize: 700, Overwrites: 100, Deletes: 50})
	for i := range l.c.Size() { // all of them have all of it
		if _, err := l.c.Client(t, i).Put(t.Context(), "last", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range l.c.Size() {
		if _, err := l.c.Client(t, i).Get(t.Context(), "last"); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range l.c.Size() {
		all.Go(func() { l.c.Kill(i) })
	}
	all.Wait()
	return l
}

// host is a control process of one member.
type host struct {
	t       *testing.T
	lost    *lost
	cfg     *config.Config
	builder *Builder
	name    string
	client  string // URL of its member
	address string
	end     func()
}

// copied makes a host with a copy of a member's data.
func (l *lost) copied(t *testing.T, i int) *host {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	l.c.CopyData(t, i, dir)
	return l.host(t, i, dir, "")
}

// host makes a host; listen and initialCluster may be empty where its member is not
// started.
func (l *lost) host(t *testing.T, i int, dir, initialCluster string) *host {
	t.Helper()
	m := l.c.Member(i)
	h := &host{t: t, lost: l, name: m.Name, client: m.ClientURL}
	cfg := config.Default()
	cert, key := l.ca.IssueRoles(t, "host-"+m.Name, time.Hour, protocol.Copy.Role())
	cfg.Listen = config.Listen{Address: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: l.ca.CA}
	cfg.StateDir = filepath.Join(t.TempDir(), "state")
	cfg.AuditFile = filepath.Join(cfg.StateDir, "audit.jsonl")
	cfg.Repositories = []string{l.repository}
	cfg.Member = config.Member{Name: m.Name, DataDir: dir, Kind: config.Command, Command: h.command(initialCluster, dir)}
	cfg.Member.StopTimeout, cfg.Member.StartTimeout = agent.Duration(20*time.Second), agent.Duration(20*time.Second)
	h.cfg = cfg
	h.start()
	t.Cleanup(func() { h.end() })
	return h
}

// command starts an etcd as an init script does.
func (h *host) command(initialCluster, dir string) config.CommandMember {
	t := h.t
	t.Helper()
	scripts := t.TempDir()
	pid := filepath.Join(scripts, "pid")
	write := func(name, text string) []string {
		path := filepath.Join(scripts, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\nexport ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH+"\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return []string{path}
	}
	peer := ""
	for part := range strings.SplitSeq(initialCluster, ",") {
		if name, url, _ := strings.Cut(part, "="); name == h.name {
			peer = url
		}
	}
	etcd := fmt.Sprintf("%s --name %s --data-dir %s --listen-client-urls %s --advertise-client-urls %s --listen-peer-urls %s --initial-advertise-peer-urls %s --initial-cluster-state existing",
		storetest.Binary(t, h.lost.c.Version(), "etcd"), h.name, dir, h.client, h.client, peer, peer)
	stop := write("stop", "test -f "+pid+" || exit 0\nkill $(cat "+pid+")\n")
	t.Cleanup(func() {
		if data, err := os.ReadFile(filepath.Join(scripts, "log")); err == nil && t.Failed() {
			t.Logf("the output of %s:\n%s", h.name, data[max(0, len(data)-3000):])
		}
		_ = exec.Command(stop[0]).Run() // it may have ended
	})
	return config.CommandMember{
		Start:  write("start", "setsid "+etcd+" >"+filepath.Join(scripts, "log")+" 2>&1 &\necho $! >"+pid+"\n"),
		Stop:   stop,
		Status: write("status", "test -f "+pid+" && kill -0 $(cat "+pid+") 2>/dev/null && exit 0\nexit 3\n"),
	}
}

func (h *host) start() {
	h.t.Helper()
	h.builder = New(h.cfg, nil)
	h.builder.pieceSize, h.builder.wait, h.builder.stall = 8<<20, 10*time.Millisecond, 3*time.Second
	ctx, cancel := context.WithCancel(context.Background())
	p, err := control.Listen(ctx, h.cfg, h.builder.Hooks(), nil)
	if err != nil {
		cancel()
		h.t.Fatal(err)
	}
	h.address = p.Addr().String()
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx) }()
	h.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
	})
}

func (h *host) operator(run string) *client.Client {
	h.t.Helper()
	var units []string
	for _, v := range protocol.Verbs() {
		units = append(units, v.Role())
	}
	cert, key := h.lost.ca.IssueRoles(h.t, "operator", time.Hour, units...)
	c, err := client.New(client.Options{Address: h.address, Member: h.name, Run: run, CA: h.lost.ca.CA, Cert: cert, Key: key})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Close)
	return c
}

func (h *host) setAside(run string) *host {
	h.t.Helper()
	if _, err := h.operator(run).SetAside(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	return h
}

func (h *host) rebuild(plan protocol.RebuildPlan, owners ...*host) (*protocol.Rebuilt, error) {
	return h.operator(run1).RebuildMember(h.t.Context(), plan, sourceAt(owners...))
}

func sourceAt(owners ...*host) protocol.RebuildSource {
	s := protocol.RebuildSource{Owners: map[string]protocol.Location{}}
	for _, o := range owners {
		s.Owners[o.name] = protocol.Location{Address: o.address, Member: o.name, Run: run1}
	}
	return s
}

// leftovers are what a rebuild gathered and did not remove.
func (h *host) leftovers() []string {
	found, err := filepath.Glob(filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+"*"))
	if err != nil {
		h.t.Fatal(err)
	}
	return found
}

// survey surveys the hosts from afar.
func (l *lost) survey(t *testing.T, run string, hosts ...*host) {
	t.Helper()
	var digests []recovery.Digest
	for _, h := range hosts {
		var out bytes.Buffer
		if err := h.operator(run1).Survey(t.Context(), &out, run); err != nil {
			t.Fatal(err)
		}
		digests = append(digests, recovery.Digest{Name: h.name, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(out.Bytes())), nil
		}})
	}
	repo := l.open(t)
	var err error
	if l.findings, err = recovery.Survey(t.Context(), recovery.SurveyRequest{Digests: digests, Repos: []*repository.Repository{repo}}); err != nil {
		t.Fatal(err)
	}
	if l.plan, err = recovery.Decide(l.findings, recovery.DecideRequest{}); err != nil {
		t.Fatal(err)
	}
}

func (l *lost) open(t *testing.T) *repository.Repository {
	t.Helper()
	place, err := disk.New(l.repository)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = place.Close() })
	repo, err := repository.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// lastCommon is the last entry that all survivors have.
func (l *lost) lastCommon() (index, term uint64) {
	for _, s := range l.findings.Survivors {
		if index == 0 || s.Log.LastIndex < index {
			index, term = s.Log.LastIndex, s.Log.LastTerm
		}
	}
	return index, term
}

// from is the way that takes a member's own database and log.
func (l *lost) from(t *testing.T, name string) recovery.Source {
	t.Helper()
	i := slices.IndexFunc(l.findings.Survivors, func(r recovery.Remains) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("%s was not surveyed", name)
	}
	last, term := l.lastCommon()
	db := l.findings.Survivors[i].Databases[0]
	s := recovery.Source{
		Base:  recovery.Base{Owner: name, Path: db.Path, Index: db.Index, Term: db.Term, Revision: db.Revision},
		Index: last, Term: term,
	}
	if db.Index >= last {
		t.Fatalf("nothing of the log of %s is needed: the database is at %d, and the log ends at %d", name, db.Index, last)
	}
	s.Log = []recovery.Piece{{Owner: name, First: db.Index + 1, Last: last}}
	return s
}

// stored is the way that takes the repository's snapshot, and a member's log.
func (l *lost) stored(t *testing.T, name string) recovery.Source {
	t.Helper()
	a := l.findings.Archives[0]
	full := a.Fulls[len(a.Fulls)-1]
	s := l.from(t, name)
	s.Base = recovery.Base{Owner: a.Name, Backup: full.ID, Timeline: a.Timeline, Repository: a.Repository, Index: full.Index, Term: full.Term, Revision: full.Revision}
	s.Log = []recovery.Piece{{Owner: name, First: full.Index + 1, Last: s.Index}}
	return s
}

// planned is a plan to rebuild the cluster of three.
func (l *lost) planned(t *testing.T, source recovery.Source, others ...recovery.Source) protocol.RebuildPlan {
	t.Helper()
	source.Others = others
	members := l.c.InitialCluster()
	id, err := restore.ClusterID(members, token)
	if err != nil {
		t.Fatal(err)
	}
	return protocol.RebuildPlan{
		ID: "plan-1", Old: l.plan.ClusterID, New: id, Source: source, InitialCluster: members, ClusterToken: token,
		Bump: restore.BumpRequest{Mode: restore.BumpOff},
	}
}

// flipping is an address that forwards to another one, and flips a bit of each
// connection after so many bytes.
func flipping(t *testing.T, target string, after int64) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() {
				_, _ = io.CopyN(in, out, after)
				b := make([]byte, 1)
				if _, err := io.ReadFull(out, b); err == nil {
					_, _ = in.Write([]byte{b[0] ^ 1})
				}
				_, _ = io.Copy(in, out)
				_ = in.Close()
			}()
		}
	}()
	return l.Addr().String()
}
