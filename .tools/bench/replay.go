package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/walreplay"
)

// replayRounds is how often each way to replay a log is measured.
const replayRounds = 3

// clientPuts is how many puts the slow way makes, which the others make all of.
const clientPuts = 15_000

// replayed is what was measured of one log.
type replayed struct {
	load     string
	entries  int // in the log, behind the base
	bytes    int64
	outcomes []outcome // etcd's boot first
	counts   []int     // the entries that each of them applied
}

// replays makes the logs and measures what applies them, each in its own
// processes.
func (b *bench) replays(ctx context.Context, r *report) error {
	for _, load := range logLoads() {
		one, err := b.replay(ctx, load)
		if err != nil {
			return fmt.Errorf("replay of %s: %w", load.name, err)
		}
		r.replays = append(r.replays, *one)
		if err := os.RemoveAll(b.path("log")); err != nil {
			return err
		}
	}
	return nil
}

// logSource is a stopped member with a log, and its database from before it.
type logSource struct {
	member   member
	base     string // the database at the beginning of the log
	wal      string
	revision int64 // at the end
}

// keepLog has a member keep all of its log.
var keepLog = []string{"--snapshot-count", "1000000000", "--max-wals", "0"}

func (b *bench) makeLog(ctx context.Context, load logLoad) (s *logSource, err error) {
	if err := os.MkdirAll(b.path("log"), 0o700); err != nil {
		return nil, err
	}
	s = &logSource{base: b.path("log", "base.db")}
	if s.member, err = newMember("log", b.path("log", "data")); err != nil {
		return nil, err
	}
	s.wal = filepath.Join(s.member.dataDir, "member", "wal")
	flags := append([]string{"--unsafe-no-fsync"}, keepLog...)
	first, err := b.startMember(ctx, s.member, initialCluster(s.member), flags...)
	if err != nil {
		return nil, err
	}
	if err := first.stop(); err != nil {
		return nil, err
	}
	if err := copyFile(s.database(), s.base); err != nil {
		return nil, err
	}
	second, err := b.startMember(ctx, s.member, initialCluster(s.member), flags...)
	if err != nil {
		return nil, err
	}
	s.revision, err = load.fill(ctx, s.member.clientURL)
	return s, errors.Join(err, second.stop())
}

func (s *logSource) database() string { return filepath.Join(s.member.dataDir, "member", "snap", "db") }

func (b *bench) replay(ctx context.Context, load logLoad) (*replayed, error) {
	s, err := b.makeLog(ctx, load)
	if err != nil {
		return nil, err
	}
	r := &replayed{load: load.name}
	if r.bytes, err = bytesUnder(s.wal); err != nil {
		return nil, err
	}
	back := func() error { return copyFile(s.base, s.database()) }
	var result replayResult
	ours := func(engine walreplay.ReplayEngine, sync bool) func(context.Context) (usage, error) {
		return func(ctx context.Context) (usage, error) {
			return b.child(ctx, &result, "replay", string(engine), strconv.FormatBool(sync), s.base, s.wal, b.path("log", "scratch.db"))
		}
	}
	// What it comes to has to be what the member had, or nothing is measured.
	for _, engine := range []walreplay.ReplayEngine{walreplay.EtcdEngine, walreplay.BulkEngine} {
		if _, err := ours(engine, true)(ctx); err != nil {
			return nil, err
		}
		if result.Revision != s.revision {
			return nil, fmt.Errorf("replayed to revision %d by %s, the member had %d", result.Revision, engine, s.revision)
		}
	}
	r.entries = result.Entries
	b.log.Info("made a log", "load", load.name, "entries", r.entries, "bytes", mebibytes(r.bytes))
	// A boot changes the log, by its own election: the next one is another's.
	kept := b.path("log", "kept")
	if err := copyFolder(s.wal, kept); err != nil {
		return nil, err
	}
	boot := func(flags ...string) contestant {
		return contestant{
			prepare: func() error { return errors.Join(back(), copyFolder(kept, s.wal)) },
			run: func(ctx context.Context) (usage, error) {
				return b.boot(ctx, s, append(flags, keepLog...)...)
			},
		}
	}
	all := []contestant{boot(), boot("--unsafe-no-fsync"), {run: ours(walreplay.EtcdEngine, true)}, {run: ours(walreplay.BulkEngine, true)}, {run: ours(walreplay.BulkEngine, false)}}
	for i, name := range []string{
		"etcd's own start on the log", "the same with `--unsafe-no-fsync`",
		"requorum's replay, by etcd's applier", "requorum's replay, in bulk", "the same, not synced, as where it is verified",
	} {
		all[i].name = name
		r.counts = append(r.counts, r.entries)
	}
	if load.puts {
		all = append(all, contestant{name: "the puts by a client, one after the other", rounds: 1, prepare: func() error { return os.RemoveAll(b.path("log", "embedded")) },
			run: func(ctx context.Context) (usage, error) {
				var result replayResult
				u, err := b.child(ctx, &result, "client", kept, b.path("log", "embedded"), fmt.Sprint(clientPuts))
				u.wall = result.Took
				return u, err
			}})
		r.counts = append(r.counts, clientPuts)
	}
	r.outcomes, err = b.contest(ctx, replayRounds, all)
	return r, err
}

// boot starts etcd on a log, and measures until it serves what is at its end.
func (b *bench) boot(ctx context.Context, s *logSource, flags ...string) (usage, error) {
	start := time.Now()
	server, err := b.startMember(ctx, s.member, initialCluster(s.member), flags...)
	if err != nil {
		return usage{}, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.member.clientURL}, DialTimeout: 10 * time.Second})
	if err != nil {
		return usage{}, errors.Join(err, server.stop())
	}
	defer client.Close()
	for {
		now, err := client.Get(ctx, "x")
		if err != nil {
			return usage{}, errors.Join(err, server.stop())
		}
		if now.Header.Revision >= s.revision {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	u := usage{wall: time.Since(start)}
	u.rss, u.anon, err = memoryOf(server.cmd.Process.Pid)
	if err := errors.Join(err, server.stop()); err != nil {
		return usage{}, err
	}
	u.cpu = server.cmd.ProcessState.UserTime() + server.cmd.ProcessState.SystemTime()
	return u, nil
}

// memoryOf is the most that a running process has had, and what of it is not
// mapped from files now.
func memoryOf(pid int) (rss, anon int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return statusField(string(status), "VmHWM:"), statusField(string(status), "RssAnon:"), err
}

// child runs this program again as one of its other commands, which writes what
// it measured into a file.
func (b *bench) child(ctx context.Context, result any, args ...string) (usage, error) {
	self, err := os.Executable()
	if err != nil {
		return usage{}, err
	}
	report := b.path("child.json")
	u, err := measure(ctx, nil, self, append(args, report)...)
	if err != nil {
		return u, err
	}
	data, err := os.ReadFile(report)
	if err != nil {
		return u, err
	}
	return u, json.Unmarshal(data, result)
}
