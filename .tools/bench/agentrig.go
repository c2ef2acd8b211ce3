package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/schedule/web"
)

const (
	// agentMost is what an agent stays below, the processes of its jobs apart.
	agentMost = 256 << 20
	// jobMemory is the limit of such a process: the default, said once more.
	jobMemory = 1 << 30
	// settleWait is how long agents may take until they are at rest: the first
	// time they take a full snapshot and verify it.
	settleWait = 10 * time.Minute
	// settledFor is how long they have to be at rest, since one that has just
	// seen another one's work may find more to do.
	settledFor = 2 * time.Second
)

// agentRig is a cluster with an agent beside each member, which share a
// repository. The agents are started for each measurement.
type agentRig struct {
	bench   *bench
	prefix  string // of the repository in the bucket
	members []member
	servers []*server
}

// startAgents starts an agent beside each member, and waits until they are at
// rest. They have the default schedule, and replay, which can be asked for only
// where it is on. They are to be stopped beside an error, too.
func (g *agentRig) startAgents(ctx context.Context) ([]*agent, error) {
	all := make([]*agent, len(g.members))
	group, starting := errgroup.WithContext(ctx)
	for i, m := range g.members {
		group.Go(func() (err error) {
			all[i], err = g.startAgent(starting, m)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return all, err
	}
	return all, settle(ctx, all)
}

func (g *agentRig) startAgent(ctx context.Context, m member) (*agent, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	dir := g.bench.path("agents", g.prefix, m.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := dir + "/agent.yaml"
	text := fmt.Sprintf(`name: %s
etcd: {endpoints: [%q]}
member: {data-dir: %q}
repository: {url: %q}
archive: {interval: 1s, spool-dir: %q}
resources: {scratch-dir: %q, job-memory: %d}
listen: {address: "127.0.0.1:%d"}
`, m.name, m.clientURL, m.dataDir,
		"s3://"+s3Bucket+"/"+g.prefix+"?region=us-east-1&path-style=true&endpoint="+g.bench.s3Endpoint,
		dir+"/spool", dir+"/scratch", int64(jobMemory), ports[0])
	if err := os.WriteFile(file, []byte(text+onlyJob("")), 0o600); err != nil {
		return nil, err
	}
	a := &agent{member: m, url: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), file: file, config: text}
	a.server, err = startServer(ctx, "agent-"+g.prefix+"-"+m.name, g.bench.dir, a.url+"/healthz", g.bench.s3Env(), "nice", "-n", "10", g.bench.requorum(), "agent", "--config", file)
	return a, err
}

// settle waits until agents are at rest.
func settle(ctx context.Context, all []*agent) error {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	var why string
	for since := time.Now(); time.Since(since) < settledFor; {
		states, err := statuses(ctx, all)
		if err != nil {
			return err
		}
		if why = unsettled(states); why != "" {
			since = time.Now()
		}
		if err := pause(ctx, askEvery); err != nil {
			return fmt.Errorf("the agents are not at rest after %s: %s: %w", settleWait, why, err)
		}
	}
	return nil
}

func statuses(ctx context.Context, all []*agent) ([]web.Status, error) {
	states := make([]web.Status, len(all))
	for i, a := range all {
		var err error
		if states[i], err = a.status(ctx); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// stopAgents has to find all of them alive, and well until their end.
func stopAgents(all []*agent) error {
	var errs []error
	for _, a := range all {
		if a == nil || a.server == nil {
			continue
		}
		errs = append(errs, a.stop())
		if state := a.cmd.ProcessState; !state.Success() {
			errs = append(errs, fmt.Errorf("%s: %s; its log ends: %s", a.name, state, a.logTail()))
		}
	}
	return errors.Join(errs...)
}

// underLoad writes at a pace and looks at all processes meanwhile. Where there is
// work, it begins when the first puts are left out, and writing ends with it.
func (g *agentRig) underLoad(ctx context.Context, p pace, agents []*agent, work func(context.Context) error) (*writes, *watcher, error) {
	see := &watcher{}
	for _, s := range g.servers {
		see.members = append(see.members, s.cmd.Process.Pid)
	}
	for _, a := range agents {
		see.agents = append(see.agents, a.cmd.Process.Pid)
	}
	var endpoints []string
	for _, m := range g.members {
		endpoints = append(endpoints, m.clientURL)
	}
	group, ctx := errgroup.WithContext(ctx)
	watching, done := context.WithCancel(ctx)
	defer done()
	enough := make(chan struct{})
	var w *writes
	group.Go(func() error { return see.watch(watching) })
	group.Go(func() (err error) {
		defer done()
		w, err = write(ctx, p, enough, endpoints...)
		return err
	})
	if work != nil {
		group.Go(func() error {
			defer close(enough)
			ctx, cancel := context.WithTimeoutCause(ctx, p.over, fmt.Errorf("it took longer than %s", p.over))
			defer cancel()
			if err := pause(ctx, p.warm); err != nil {
				return err
			}
			return work(ctx)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	for i, p := range see.peaks {
		if p.rss >= agentMost {
			return nil, nil, fmt.Errorf("%s took %s, want less than %s", agents[i].name, mebibytes(p.rss), mebibytes(agentMost))
		}
	}
	return w, see, nil
}

// stop ends the members.
func (g *agentRig) stop() error {
	var errs []error
	for _, s := range g.servers {
		errs = append(errs, s.stop())
	}
	return errors.Join(errs...)
}

// names are what an error says of agents.
func names(all []*agent) string {
	var s []string
	for _, a := range all {
		s = append(s, a.member.name)
	}
	return strings.Join(s, ", ")
}
