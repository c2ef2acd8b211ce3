package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
)

// undisturbedTries is how often agents are watched that should have nothing to
// do: what their schedule begins meanwhile is not counted, and comes once.
const undisturbedTries = 3

// Paces of clients beside agents: what three members on two slow cores take without
// queues. While jobs are under way it is as long as they take.
var (
	quietPace = pace{rate: 400, over: 14 * time.Second, warm: 2 * time.Second}
	busyPace  = pace{rate: 400, over: 20 * time.Minute, warm: 2 * time.Second}
)

// What agents do meanwhile, in the order of the table.
const (
	noAgents = iota
	noJob
	fullJob
	structureJob
	checksumJob
	replayJob
	besideKinds
)

var besideNames = [besideKinds]string{
	"no agents", "three agents, no job under way", "the same, a full snapshot under way",
	"the same, its structure verified", "the same, checksums verified", "the same, the log replayed",
}

// beside is what was measured of a cluster while agents did one thing.
type beside struct {
	name    string
	latency [][]time.Duration // of clients' puts in each round, sorted
	spent   []spent           // in each round
}

// agentPeak is the most memory that a process has had.
type agentPeak struct {
	name     string
	database int64
	limit    int64
	of       string // what is limited
	peak     peak
}

// ofAgents measures agents beside a cluster of three, and then the memory that
// one needs beside a larger member, where that is asked for.
func (o *options) ofAgents(ctx context.Context, b *bench, r *report) error {
	if err := b.besideCluster(ctx, r, o.mebibytes<<20, o.agentRounds); err != nil {
		return err
	}
	if o.largest == 0 {
		return nil
	}
	return b.besideLarge(ctx, r, int64(o.largest))
}

// besideCluster measures three agents beside three members of etcd.
func (b *bench) besideCluster(ctx context.Context, r *report, size int64, rounds int) (err error) {
	g := &agentRig{bench: b, prefix: "agents"}
	if r.besideSize, err = b.makeBackup(ctx, size); err != nil {
		return err
	}
	g.members, g.servers, err = b.startRestored(ctx, oneRepo)
	defer func() {
		err = errors.Join(err, g.stop(), os.RemoveAll(b.path(restoreFolder)), b.removeAgents(g.prefix))
	}()
	if err != nil {
		return err
	}
	// The first time they take a full snapshot: everything is warm then, and a replay has
	// where to begin.
	agents, err := g.startAgents(ctx)
	if err := errors.Join(err, stopAgents(agents)); err != nil {
		return err
	}
	for _, name := range besideNames {
		r.beside = append(r.beside, beside{name: name})
	}
	peaks := newAgentPeaks(r.besideSize.bytes)
	settings := []func(context.Context, []beside, *agentPeaks) error{g.without, g.quiet, g.busy}
	began := time.Now()
	for round := range rounds {
		if round > 0 && time.Since(began) > longest {
			b.log.Warn("no more rounds: it takes too long", "of", rounds, "counted", round)
			break
		}
		for _, measure := range settings {
			if err := measure(ctx, r.beside, peaks); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		slices.Reverse(settings)
	}
	r.agentPeaks = append(r.agentPeaks, peaks.all()...)
	return nil
}

// besideLarge measures the memory of one agent beside one member. Nothing is
// replayed: how much that takes depends on the number of keys, and it may be more
// than the limit.
func (b *bench) besideLarge(ctx context.Context, r *report, size int64) (err error) {
	var s source
	if s.member, err = newMember("large", b.path("large")); err != nil {
		return err
	}
	g := &agentRig{bench: b, prefix: "large", members: []member{s.member}}
	defer func() {
		err = errors.Join(err, s.server.stop(), os.RemoveAll(s.member.dataDir), b.removeAgents(g.prefix))
	}()
	if err := b.grow(ctx, &s, size, seed+300); err != nil {
		return err
	}
	g.servers = []*server{s.server}
	peaks := newAgentPeaks(s.loaded.bytes)
	if err := g.busy(ctx, make([]beside, replayJob), peaks); err != nil {
		return err
	}
	r.agentPeaks = append(r.agentPeaks, peaks.all()...)
	return nil
}

// makeBackup loads a member, backs it up, and removes it.
func (b *bench) makeBackup(ctx context.Context, size int64) (_ loaded, err error) {
	var s source
	if s.member, err = newMember("agents", b.path("agents-source")); err != nil {
		return loaded{}, err
	}
	defer func() { err = errors.Join(err, s.server.stop(), os.RemoveAll(s.member.dataDir)) }()
	if err := errors.Join(b.grow(ctx, &s, size, seed+100), os.RemoveAll(b.path(oneRepo))); err != nil {
		return loaded{}, err
	}
	_, err = output(ctx, b.requorum(), "backup", "--endpoints", s.member.clientURL, "--repo", "file://"+b.path(oneRepo))
	return s.loaded, err
}

func (b *bench) removeAgents(prefix string) error {
	return errors.Join(os.RemoveAll(b.path("agents", prefix)), os.RemoveAll(b.path(s3Objects, s3Bucket, prefix)))
}

// without is the cluster alone.
func (g *agentRig) without(ctx context.Context, rows []beside, _ *agentPeaks) error {
	w, see, err := g.underLoad(ctx, quietPace, nil, nil)
	if err != nil {
		return err
	}
	return g.add(&rows[noAgents], w, see, w.began.Add(w.pace.warm), time.Now())
}

// quiet is with agents that archive, and have no job to do.
func (g *agentRig) quiet(ctx context.Context, rows []beside, peaks *agentPeaks) (err error) {
	agents, err := g.startAgents(ctx)
	defer func() { err = errors.Join(err, stopAgents(agents)) }()
	if err != nil {
		return err
	}
	for range undisturbedTries {
		began := time.Now()
		w, see, err := g.underLoad(ctx, quietPace, agents, nil)
		if err != nil {
			return err
		}
		states, err := statuses(ctx, agents)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(states, func(s web.Status) bool { _, was := jobSince(&s, began); return was }); i >= 0 {
			g.bench.log.Warn("once more: a job of the schedule came between", "agent", states[i].Agent)
			if err := settle(ctx, agents); err != nil {
				return err
			}
			continue
		}
		for _, p := range see.peaks {
			peaks.raise(noJob, p)
		}
		return g.add(&rows[noJob], w, see, w.began.Add(w.pace.warm), time.Now())
	}
	return fmt.Errorf("agents %s had jobs to do %d times in turn", names(agents), undisturbedTries)
}

// busy is with agents that do one job after the other, those that there is a row
// for.
func (g *agentRig) busy(ctx context.Context, rows []beside, peaks *agentPeaks) (err error) {
	agents, err := g.startAgents(ctx)
	defer func() { err = errors.Join(err, stopAgents(agents)) }()
	if err != nil {
		return err
	}
	runs := map[int]job.Run{}
	w, see, err := g.underLoad(ctx, busyPace, agents, func(ctx context.Context) error { return doJobs(ctx, agents, runs, len(rows)) })
	if err != nil {
		return err
	}
	for _, p := range see.peaks {
		peaks.raise(fullJob, p)
	}
	for kind := fullJob; kind < len(rows); kind++ {
		if err := g.add(&rows[kind], w, see, runs[kind].Started, runs[kind].Finished); err != nil {
			return err
		}
		if kind > fullJob {
			s, err := see.between(runs[kind].Started, runs[kind].Finished)
			if err != nil {
				return err
			}
			if s.childPeak.rss == 0 {
				return fmt.Errorf("no process of the job %s was seen", jobNames[kind])
			}
			peaks.raise(kind, s.childPeak)
		}
	}
	return nil
}

var jobNames = map[int]string{fullJob: "full", structureJob: "structure", checksumJob: "checksum", replayJob: "replay"}

// doJobs has each job below end done once.
func doJobs(ctx context.Context, agents []*agent, runs map[int]job.Run, end int) error {
	first := agents[0]
	for kind := fullJob; kind < end; kind++ {
		got, err := first.do(ctx, jobNames[kind])
		if err == nil && !got.OK {
			err = fmt.Errorf("%s failed: %s", jobNames[kind], got.Text)
		}
		if err != nil {
			return err
		}
		runs[kind] = got
	}
	return nil
}

// add takes what was measured in a stretch of time as one round of a row.
func (g *agentRig) add(row *beside, w *writes, see *watcher, from, to time.Time) error {
	s, err := see.between(from, to)
	if err != nil {
		return err
	}
	latency := w.between(from, to)
	if len(latency) == 0 {
		return errors.New("no put was due meanwhile")
	}
	row.latency, row.spent = append(row.latency, latency), append(row.spent, s)
	g.bench.log.Info("beside agents", "what", row.name, "over", s.over.Round(10*time.Millisecond), "puts", len(latency),
		"median", quantile(latency, 0.5).Round(time.Microsecond), "p99", quantile(latency, 0.99).Round(time.Microsecond),
		"agents", s.agents, "children", s.children, "etcd", s.etcd, "child", mebibytes(s.childPeak.rss))
	return nil
}

// agentPeaks are those of one size of the database, by what was done.
type agentPeaks struct {
	database int64
	by       [besideKinds]peak
}

func newAgentPeaks(database int64) *agentPeaks { return &agentPeaks{database: database} }

func (p *agentPeaks) raise(kind int, to peak) {
	p.by[kind] = peak{max(p.by[kind].rss, to.rss), max(p.by[kind].anon, to.anon)}
}

// all are those that were measured, the agent's own first.
func (p *agentPeaks) all() []agentPeak {
	all := []agentPeak{
		noJob:        {name: "an agent, no job under way", limit: agentMost, of: "all of it"},
		fullJob:      {name: "an agent, a full snapshot and all jobs below", limit: agentMost, of: "all of it"},
		structureJob: {name: "its process that verifies the structure", limit: jobMemory, of: "without mapped files"},
		checksumJob:  {name: "its process that verifies checksums", limit: jobMemory, of: "without mapped files"},
		replayJob:    {name: "its process that replays the log", limit: jobMemory, of: "without mapped files"},
	}
	for i := range all {
		all[i].database, all[i].peak = p.database, p.by[i]
	}
	return slices.DeleteFunc(all, func(one agentPeak) bool { return one.peak.rss == 0 })
}
