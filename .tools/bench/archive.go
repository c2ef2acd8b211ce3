package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/segment"
)

// archiveRounds is how often each setting is measured, in turn.
const archiveRounds = 3

// archivePace is how clients put while an archiver is watched. At the beginning
// connections are made, and an archiver takes its first full snapshot.
var archivePace = pace{rate: 5000, over: 15 * time.Second, warm: 3 * time.Second}

// archived is what was measured of one setting, over all rounds.
type archived struct {
	name     string
	latency  []time.Duration // of clients' puts, sorted
	durable  []time.Duration // from the acknowledgement until it is in the repository, sorted
	cpu      time.Duration   // of the archiver
	over     time.Duration   // that it ran
	rss      int64
	segments int
}

// archives measures what an archiver costs, and how far behind it is.
func (b *bench) archives(ctx context.Context, r *report) error {
	r.archives = []archived{{name: "no archiver"}, {name: "archiver to disk, 1 s"}, {name: "archiver to S3, 1 s"}}
	for round := range archiveRounds {
		order := []int{0, 1, 2}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			if err := b.archive(ctx, &r.archives[i], i, round); err != nil {
				return fmt.Errorf("%s: %w", r.archives[i].name, err)
			}
		}
	}
	for i := range r.archives {
		slices.Sort(r.archives[i].latency)
		slices.Sort(r.archives[i].durable)
	}
	return nil
}

// archive is one run of one setting: 0 none, 1 to disk, 2 to S3.
func (b *bench) archive(ctx context.Context, a *archived, setting, round int) (err error) {
	dir := b.path(fmt.Sprintf("archive-%d-%d", setting, round))
	m, err := newMember("archived", filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	server, err := b.startMember(ctx, m, initialCluster(m))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop(), os.RemoveAll(dir)) }()
	prefix := fmt.Sprintf("archive-%d", round)
	repo, objects := "file://"+filepath.Join(dir, "repo"), filepath.Join(dir, "repo")
	if setting == 2 {
		repo = "s3://" + s3Bucket + "/" + prefix + "?region=us-east-1&path-style=true&endpoint=" + b.s3Endpoint
		objects = b.path(s3Objects, s3Bucket, prefix)
	}
	syscall.Sync()
	if setting == 0 {
		w, err := write(ctx, archivePace, nil, m.clientURL)
		if err == nil {
			a.latency = append(a.latency, w.latencies()...)
			b.logWrites(a, round, w)
		}
		return err
	}
	archiver, err := b.startArchiver(m, repo, dir)
	if err != nil {
		return err
	}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	arrivals := make(chan map[string]time.Time)
	go func() { arrivals <- watchSegments(watched, objects) }()
	w, err := write(ctx, archivePace, nil, m.clientURL)
	if err != nil {
		return errors.Join(err, archiver.end(a))
	}
	time.Sleep(3 * time.Second) // the last ones are archived, too
	stop()
	seen := <-arrivals
	if err := archiver.end(a); err != nil {
		return err
	}
	a.latency = append(a.latency, w.latencies()...)
	b.logWrites(a, round, w)
	return a.lag(ctx, objects, seen, w)
}

func (b *bench) logWrites(a *archived, round int, w *writes) {
	sorted := w.latencies()
	b.log.Info("wrote", "setting", a.name, "round", round, "median", quantile(sorted, 0.5).Round(time.Microsecond), "p99", quantile(sorted, 0.99).Round(time.Microsecond))
}

// archiver is one that runs.
type archiver struct {
	cmd     *exec.Cmd
	log     *os.File
	started time.Time
}

func (b *bench) startArchiver(m member, repo, dir string) (*archiver, error) {
	log, err := os.Create(filepath.Join(dir, "archiver.log"))
	if err != nil {
		return nil, err
	}
	a := &archiver{log: log, started: time.Now()}
	file := filepath.Join(dir, "agent.yaml")
	err = os.WriteFile(file, fmt.Appendf(nil, `
etcd: {endpoints: [%q]}
member: {data-dir: %q}
repository: {url: %q}
archive: {interval: 1s, spool-dir: %q}
jobs: none
listen: {address: "127.0.0.1:0"}
`, m.clientURL, m.dataDir, repo, filepath.Join(dir, "spool")), 0o600)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	a.cmd = exec.Command(b.requorum(), "agent", "--config", file) //nolint:noctx // ended by end
	a.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, b.s3Env()...)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	return a, a.cmd.Start()
}

// end stops it, and adds what it took.
func (r *archiver) end(a *archived) error {
	rss, _, err := memoryOf(r.cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("the archiver has ended: %w: %s", r.cmd.Wait(), r.said())
	}
	a.rss = max(a.rss, rss)
	r.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // Wait says
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("the archiver: %w: %s", err, r.said())
	}
	a.over += time.Since(r.started)
	a.cpu += r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()
	return r.log.Close()
}

func (r *archiver) said() string {
	data, err := os.ReadFile(r.log.Name())
	if err != nil {
		return err.Error()
	}
	return lastLines(string(data), 5)
}

// watchEvery is how exactly it is known when a segment came.
const watchEvery = 5 * time.Millisecond

// watchSegments notes when each segment was there first.
func watchSegments(ctx context.Context, root string) map[string]time.Time {
	seen := map[string]time.Time{}
	for {
		found, err := filepath.Glob(filepath.Join(root, "*", "l0", "*"))
		if now := time.Now(); err == nil {
			for _, path := range found {
				if _, known := seen[path]; !known {
					seen[path] = now
				}
			}
		}
		select {
		case <-ctx.Done():
			return seen
		case <-time.After(watchEvery):
		}
	}
}

// lag measures how long after its acknowledgement each put was in the
// repository. All of them have to be there.
func (a *archived) lag(ctx context.Context, root string, seen map[string]time.Time, w *writes) error {
	sink, err := disk.New(root)
	if err != nil {
		return err
	}
	defer sink.Close()
	repo, err := repository.Open(ctx, sink)
	if err != nil {
		return err
	}
	at := make([]time.Time, len(w.acked))
	for path, came := range seen {
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		_, batch, err := segment.Read(ctx, repo, filepath.ToSlash(name))
		if err != nil {
			return err
		}
		for _, e := range batch.Entries {
			var r pb.InternalRaftRequest
			if len(e.Data) == 0 || proto.Unmarshal(e.Data, &r) != nil || r.Put == nil {
				continue
			}
			if n, ok := timedNumber(r.Put.Key); ok && (at[n].IsZero() || came.Before(at[n])) {
				at[n] = came
			}
		}
		a.segments++
	}
	for n := range at {
		if at[n].IsZero() {
			return fmt.Errorf("put %d of %d was acknowledged and is in no segment three seconds after the last one", n, len(at))
		}
		if n >= w.counted() {
			a.durable = append(a.durable, max(0, at[n].Sub(w.began.Add(w.acked[n]))))
		}
	}
	return nil
}
