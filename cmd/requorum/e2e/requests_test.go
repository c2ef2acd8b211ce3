package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// longLog is a repository as an agent leaves it: a full snapshot each day, merged
// segments of an hour each but for the last hour and a half, and the small ones of
// the last 24 hours, which are there still.
type longLog struct {
	t        *testing.T
	repo     *repository.Repository
	timeline repository.TimelineID
	days     int
	interval time.Duration // of small segments; one entry each
	begin    time.Time

	objects string // where the server keeps the repository's objects, as plain files
	member  string // the data directory of the member whose log it is, down now

	merged, small, fulls int
	last                 uint64
}

func (l *longLog) perHour() uint64 { return uint64(time.Hour / l.interval) }

// compacts says that an entry is a compaction, as there is one each day.
func (l *longLog) compacts(index uint64) bool { return index%(24*l.perHour()) == 999 }

// revision is the store's after an entry: all but the first two and the compactions
// change a key.
func (l *longLog) revision(index uint64) int64 {
	compactions := (index + 24*l.perHour() - 999) / (24 * l.perHour())
	return max(1, int64(index)-1-int64(compactions))
}

func (l *longLog) timeOf(index uint64) time.Time {
	return l.begin.Add(time.Duration(index) * l.interval)
}

// entry is the entry of an index: a change of one of a thousand keys. The last
// changes but ten are of the key "gone", which the last deletes.
func (l *longLog) entry(index uint64) raftlog.Entry {
	request := logtest.Put(fmt.Sprintf("/key/%d", index%1000), fmt.Sprintf("value %d", index))
	switch {
	case index <= 2:
		return logtest.Begin(l.t)[index-1]
	case index == l.last-20:
		request = logtest.Put("gone", "was here")
	case index == l.last-10:
		request = &etcdserverpb.InternalRaftRequest{DeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte("gone")}}
	case l.compacts(index):
		request = &etcdserverpb.InternalRaftRequest{Compaction: &etcdserverpb.CompactionRequest{Revision: l.revision(index) - 1}}
	}
	return logtest.Entry(l.t, index, request)
}

func (l *longLog) make(sink sinks.Sink) {
	l.t.Helper()
	ctx := l.t.Context()
	perHour := l.perHour()
	l.last = uint64(l.days)*24*perHour + perHour/2
	l.begin = time.Now().Add(-time.Duration(l.last) * l.interval).UTC()
	l.timeline = repository.TimelineID{ClusterID: 7, N: 1}
	must := func(err error) {
		l.t.Helper()
		require.NoError(l.t, err)
	}
	var err error
	l.repo, err = repository.Init(ctx, sink, l.begin)
	must(err)
	_, err = l.repo.EnsureTimeline(ctx, repository.Timeline{ID: l.timeline, Created: l.begin, Reason: "made by a test"})
	must(err)

	path := filepath.Join(l.t.TempDir(), "db")
	must(os.WriteFile(path, nil, 0o600))
	// Past the server, which would take minutes for as many uploads: signed in a copy of the
	// repository, and written as the server's files.
	copied := sinktest.NewMemory()
	marker, err := l.repo.ReadBytes(ctx, repository.MarkerName)
	must(err)
	_, err = sinks.Put(ctx, copied, repository.MarkerName, marker, sinks.CreateOptions{})
	must(err)
	signer, err := repository.Open(ctx, repository.WithKeys(copied, repository.KeysOf(sink)))
	must(err)
	put := func(h segment.Header, data []byte, err error) {
		must(err)
		must(segment.Put(ctx, signer, h, data))
		data, err = sinks.Get(ctx, copied, h.Name(), int64(len(data)))
		must(err)
		must(copied.Delete(ctx, h.Name()))
		file := filepath.Join(l.objects, h.Name())
		if err := os.WriteFile(file, data, 0o600); errors.Is(err, fs.ErrNotExist) {
			must(os.MkdirAll(filepath.Dir(file), 0o700))
			must(os.WriteFile(file, data, 0o600))
		} else {
			must(err)
		}
	}
	var hour segment.Batch
	var sum, hourBefore raftlog.Sum
	merges := l.last - perHour*3/2
	eng, err := engine.Open(ctx, path, engine.Options{})
	must(err)
	for i := uint64(1); i <= l.last; i++ {
		e := l.entry(i)
		if i <= l.last-perHour { // the last full snapshot is an hour old
			must(eng.Apply(e))
			if i == l.last-perHour || i%(24*perHour) == 1000 {
				must(eng.Close())
				l.full(path, i)
				if i == l.last-perHour {
					l.makeMember(path, i)
				}
				eng, err = engine.Open(ctx, path, engine.Options{})
				must(err)
			}
		}
		mark := raftlog.Mark{Index: i, Term: 2, Time: l.timeOf(i), Member: 1, Revision: l.revision(i)}
		meta := segment.Meta{Revision: mark.Revision, Member: 1, Cut: mark.Time}
		before := sum
		sum = sum.Next(e)
		if i+24*perHour > l.last {
			meta := meta
			if meta.Previous = i - 1; i == 1 {
				meta.Previous = 0
			}
			put(segment.Encode(ctx, l.timeline, before, i == 1, segment.Batch{Entries: []raftlog.Entry{e}, Marks: []raftlog.Mark{mark}}, meta, segment.Options{Tool: "test"}))
			l.small++
		}
		if len(hour.Entries) == 0 {
			hourBefore = before
		}
		hour.Entries, hour.Marks = append(hour.Entries, e), append(hour.Marks, mark)
		if i%perHour == 0 && i <= merges {
			put(segment.Encode(ctx, l.timeline, hourBefore, i == perHour, hour, meta, segment.Options{Tool: "test", Level: 1}))
			hour = segment.Batch{}
			l.merged++
		}
	}
	must(eng.Close())
}

// makeMember writes the member's directory: its database is of an entry, from where its
// log goes on to the last one.
func (l *longLog) makeMember(database string, index uint64) {
	l.t.Helper()
	must := func(err error) {
		l.t.Helper()
		require.NoError(l.t, err)
	}
	l.member = l.t.TempDir()
	folder := filepath.Join(l.member, "member", "snap")
	must(os.MkdirAll(folder, 0o700))
	data, err := os.ReadFile(database)
	must(err)
	must(os.WriteFile(filepath.Join(folder, "db"), data, 0o600))
	id, term, conf := uint64(1), uint64(2), &raftpb.ConfState{Voters: []uint64{1}}
	meta, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: &id, ClusterID: &l.timeline.ClusterID})
	must(err)
	log, err := wal.Create(zap.NewNop(), filepath.Join(l.member, "member", "wal"), meta)
	must(err)
	must(snap.New(zap.NewNop(), folder).SaveSnap(&raftpb.Snapshot{
		Data:     []byte("{}"), // 3.7 takes the members from the database
		Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: conf},
	}))
	must(log.SaveSnapshot(&walpb.Snapshot{Index: &index, Term: &term, ConfState: conf}))
	var entries []*raftpb.Entry
	for i := index + 1; i <= l.last; i++ {
		entries = append(entries, l.entry(i).Raft())
	}
	must(log.Save(&raftpb.HardState{Term: &term, Vote: &id, Commit: &l.last}, entries))
	must(log.Close())
}

// full stores the database as a full snapshot, as if it had been read of a member.
func (l *longLog) full(path string, index uint64) {
	l.t.Helper()
	image, err := snapshot.OpenFile(path)
	require.NoError(l.t, err)
	logtest.Full(l.t, l.repo, image, logtest.Stored{Timeline: l.timeline, Started: l.timeOf(index)})
	l.fulls++
}

// Requests grow with what is worked on, not with what is stored: 30 days of log at an
// interval of a second in a soak, else a day at a minute; all is signed, and trusted keys
// are asked for. They are counted before a real S3 server.
func TestRequestsOfALongLog(t *testing.T) {
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "long"}}})
	l := &longLog{t: t, days: short(1, 30), interval: time.Duration(short(60, 1)) * time.Second, objects: filepath.Join(server.Dir, "long", "r")}
	started := time.Now()
	config, err := s3.ParseURL(server.URL("long", "r"))
	require.NoError(t, err)
	config.Credentials = server.Credentials()
	config.Retry.For = time.Minute
	sink, err := s3.Open(t.Context(), config)
	require.NoError(t, err)
	defer sink.Close()
	u := newUser(t, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	sinktest.WriteKey(t, u.Path("key"))
	u.keys = fmt.Sprintf(", signing-key-file: %s, trust-file: %s", u.Path("key"), u.Path("key.trust"))
	keys, err := signing.Read(u.Path("key"), u.Path("key.trust"), nil)
	require.NoError(t, err)
	l.make(repository.WithKeys(sink, keys))
	t.Logf("%d entries, %d merged and %d small segments, %d full snapshots in %s", l.last, l.merged, l.small, l.fulls, time.Since(started))

	for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
		proxy := sinktest.NewFaultProxy(t, server.Endpoint)
		if delay > 0 {
			proxy.Add(sinktest.ProxyFault{Name: "delay", Times: -1, Do: func(w http.ResponseWriter, r *http.Request, p *httputil.ReverseProxy) {
				time.Sleep(delay)
				p.ServeHTTP(w, r)
			}})
		}
		repo := server.URLThrough(proxy.Endpoint, "long", "r")
		count := func(what string, limit int, args ...string) {
			t.Helper()
			before := len(proxy.Requests())
			took := u.Must(t, 0, args...).Took
			l.counted(what, proxy.Requests()[before:], delay, took, limit)
		}
		if delay == 0 {
			count("list, no signature checked", 100, "list", "--repo", repo)
			u.Env = append(u.Env, "REQUORUM_SIGNING_KEY="+u.Path("key"), "REQUORUM_TRUST="+u.Path("key.trust"))
		}
		count("list", 100, "list", "--repo", repo)
		if delay == 0 {
			before := len(proxy.Requests())
			took := u.Must(t, exitFailed, "doctor", "--repo", repo, "--endpoints", storetest.FreeAddress(t)).Took
			l.counted("doctor", proxy.Requests()[before:], delay, took, 20)
		}
		target := []string{"restore", "--repo", repo, "--to-snapshot", u.Path("new.db"), "--dry-run"}
		count("restore --dry-run", 100, target...)
		count("restore --dry-run --at", 200, append(target, "--at", l.timeOf(l.last-3*uint64(time.Hour/l.interval)).Add(l.interval/4).Format(time.RFC3339Nano), "--at-nearest")...)
		if delay == 0 {
			// What is replayed, to look for the key and then to rebuild: the last hour, of
			// small segments, each of which is fetched once.
			replayed := int(time.Hour / l.interval)
			count("restore --before", replayed+l.fulls+100, "restore", "--repo", repo, "--to-snapshot", u.Path("before.db"), "--before", "gone")
			// Each segment that no other replaces, each full snapshot, their verdicts, which
			// are written and looked at, and all names.
			count("verify", l.merged+int(3*time.Hour/2/l.interval)+6*l.fulls+l.small/1000+100, "verify", "all", "--repo", repo, "--level", "checksum")
		}
		if delay > 0 {
			l.startAgent(u, repo, proxy, delay) // the last: it writes
		}
	}
}

// startAgent starts the member and an agent beside it, and counts its requests until it
// is ready and has archived what was written since.
func (l *longLog) startAgent(u *user, repo string, proxy *sinktest.FaultProxy, delay time.Duration) {
	t := l.t
	t.Helper()
	c := storetest.StartFromDataDirs(t, "3.7", map[string]string{"m1": l.member}, storetest.InitialCluster(t, "m1"))
	putSome(t, c, "/since/", 10)
	// Jobs that are due are work of their own, of which each reads what it works on.
	var off []string
	for _, job := range []string{"full", "checksum", "structure", "replay", "drill", "prune", "merge", "divergence"} {
		off = append(off, job+": {run: off}")
	}
	before, started := len(proxy.Requests()), time.Now()
	a := u.agent(t, c, 0, repo, "jobs: {"+strings.Join(off, ", ")+"}\n")
	written := applied(t, c, 0)
	// Each full snapshot's manifest and verdict, the log's verdict, and the headers of the
	// newest segments; and what it asks each second while it waits and follows.
	const newest, asksASecond = 16, 20
	storetest.Eventually(t, "the agent is ready and follows the log", func() error {
		code, body := a.get(t, "/readyz")
		s, ok := a.status(t)
		if code != http.StatusOK || !ok || s.Archive == nil || s.Archive.Archived < written {
			return fmt.Errorf("%d %s, %+v", code, body, s.Archive)
		}
		return nil
	})
	took, requests := time.Since(started), proxy.Requests()[before:]
	figure(t, "requests of an agent's start", len(requests)) // not counted without a delay
	merged := 0
	for _, r := range requests {
		if kindOf(r) == "GET merged" {
			merged++
		}
	}
	if merged > newest {
		t.Errorf("an agent's start read %d merged segments of %d", merged, l.merged)
	}
	l.counted("an agent's start", requests, delay, took, 2*l.fulls+1+newest+100+int(asksASecond*took.Seconds()))
	a.stop(t)
}

// counted holds what something asked the server against a limit.
func (l *longLog) counted(what string, requests []string, delay, took time.Duration, limit int) {
	l.t.Helper()
	kinds := map[string]int{}
	for _, r := range requests {
		kinds[kindOf(r)]++
	}
	l.t.Logf("%s, %s more for each request: %d requests %v, %s", what, delay, len(requests), kinds, took.Round(time.Millisecond))
	what = strings.ReplaceAll(what, "--", "")
	if delay > 0 {
		figure(l.t, fmt.Sprintf("%s with %s more for each request", what, delay), took.Round(10*time.Millisecond))
	} else {
		figure(l.t, "requests of "+what, len(requests))
	}
	if len(requests) > limit {
		l.t.Errorf("%s took %d requests, want at most %d, from the first:\n%s", what, len(requests), limit, strings.Join(requests[:min(len(requests), 300)], "\n"))
	}
}

func kindOf(request string) string {
	method, uri, _ := strings.Cut(request, " ")
	switch {
	case strings.Contains(uri, "list-type=2"):
		return "list"
	case strings.Contains(uri, "/l0/"):
		return method + " small"
	case strings.Contains(uri, "/l1/"):
		return method + " merged"
	case strings.Contains(uri, "/full/"):
		return method + " full"
	}
	return method
}
