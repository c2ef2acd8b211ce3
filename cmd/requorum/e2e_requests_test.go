package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// longLog is a repository as an agent leaves it: a full snapshot each day, merged
// segments of an hour each but for the last hour and a half, and the small ones of
// the last 24 hours, which are there still.
type longLog struct {
	t        testing.TB
	repo     *repository.Repository
	timeline repository.TimelineID
	days     int
	interval time.Duration // of small segments; one entry each
	begin    time.Time

	merged, small, fulls int
	last                 uint64
}

func (l *longLog) timeOf(index uint64) time.Time {
	return l.begin.Add(time.Duration(index) * l.interval)
}

// entry is the entry of an index: a change of one of a thousand keys. The last
// changes but ten are of the key "gone", which the last deletes.
func (l *longLog) entry(index uint64) raftlog.Entry {
	e := raftlog.Entry{Index: index, Term: 2}
	marshal := func(m proto.Message) {
		data, err := proto.Marshal(m)
		if err != nil {
			l.t.Fatal(err)
		}
		e.Data = data
	}
	request := &etcdserverpb.InternalRaftRequest{Header: &etcdserverpb.RequestHeader{ID: index}}
	switch index {
	case 1:
		id := uint64(1)
		member, err := json.Marshal(map[string]any{"id": id, "peerURLs": []string{"http://127.0.0.1:1"}})
		if err != nil {
			l.t.Fatal(err)
		}
		e.Type = raftpb.EntryConfChange
		marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: &id, Context: member})
		return e
	case 2:
		request.ClusterVersionSet = &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}
	case l.last - 20:
		request.Put = &etcdserverpb.PutRequest{Key: []byte("gone"), Value: []byte("was here")}
	case l.last - 10:
		request.DeleteRange = &etcdserverpb.DeleteRangeRequest{Key: []byte("gone")}
	default:
		request.Put = &etcdserverpb.PutRequest{Key: fmt.Appendf(nil, "/key/%d", index%1000), Value: fmt.Appendf(nil, "value %d", index)}
	}
	marshal(request)
	return e
}

func (l *longLog) make(sink sinks.Sink) {
	l.t.Helper()
	ctx := l.t.Context()
	perHour := uint64(time.Hour / l.interval)
	l.last = uint64(l.days)*24*perHour + perHour/2
	l.begin = time.Now().Add(-time.Duration(l.last) * l.interval).UTC()
	l.timeline = repository.TimelineID{ClusterID: 7, N: 1}
	must := func(err error) {
		l.t.Helper()
		if err != nil {
			l.t.Fatal(err)
		}
	}
	var err error
	l.repo, err = repository.Init(ctx, sink, l.begin)
	must(err)
	_, err = l.repo.EnsureTimeline(ctx, repository.Timeline{ID: l.timeline, Created: l.begin, Reason: "made by a test"})
	must(err)

	path := filepath.Join(l.t.TempDir(), "db")
	must(os.WriteFile(path, nil, 0o600))
	var group errgroup.Group
	group.SetLimit(32)
	put := func(h segment.Header, data []byte, err error) {
		must(err)
		group.Go(func() error { return segment.Put(ctx, sink, h, data) })
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
				eng, err = engine.Open(ctx, path, engine.Options{})
				must(err)
			}
		}
		mark := raftlog.Mark{Index: i, Term: 2, Time: l.timeOf(i), Member: 1, Revision: max(1, int64(i)-1)}
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
	must(group.Wait())
}

// full stores the database as a full snapshot, as if it had been read of a member.
func (l *longLog) full(path string, index uint64) {
	l.t.Helper()
	image, err := snapshot.OpenFile(path)
	if err == nil {
		_, err = snapshot.Store(l.t.Context(), snapshot.StoreRequest{
			Repo: l.repo, Timeline: l.timeline, Image: image, Started: l.timeOf(index), Version: "3.6.0", Tool: "test",
			Now: func() time.Time { return l.timeOf(index) },
		})
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.fulls++
}

// Requests grow with what a command works on, not with what is stored: 30 days of
// log at an interval of a second with -soak, else a day at a minute. They are counted
// before a real S3 server.
func TestRequestsOfALongLog(t *testing.T) {
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "long"}}})
	l := &longLog{t: t, days: short(1, 30), interval: time.Duration(short(60, 1)) * time.Second}
	started := time.Now()
	config, err := s3.ParseURL(server.URL("long", "r"))
	if err != nil {
		t.Fatal(err)
	}
	config.Credentials = server.Credentials()
	config.Retry.For = time.Minute
	sink, err := s3.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	l.make(sink)
	t.Logf("%d entries, %d merged and %d small segments, %d full snapshots in %s", l.last, l.merged, l.small, l.fulls, time.Since(started))

	u := newUser(t, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
		proxy := sinktest.NewFaultProxy(t, server.Endpoint)
		if delay > 0 {
			proxy.Add(sinktest.ProxyFault{Name: "delay", Times: -1, Do: func(w http.ResponseWriter, r *http.Request, p *httputil.ReverseProxy) {
				time.Sleep(delay)
				p.ServeHTTP(w, r)
			}})
		}
		repo := server.URLThrough(proxy.Endpoint, "long", "r")
		// seen are the requests of a command, and the objects whose bodies it has read.
		count := func(what string, limit int, args ...string) ended {
			t.Helper()
			before := len(proxy.Requests())
			e := u.must(t, 0, args...)
			all := proxy.Requests()[before:]
			kinds := map[string]int{}
			for _, r := range all {
				kinds[kindOf(r)]++
			}
			t.Logf("%s, %s more for each request: %d requests %v, %s", what, delay, len(all), kinds, e.took.Round(time.Millisecond))
			figure(t, fmt.Sprintf("requests of %s", what), len(all))
			if len(all) > limit {
				t.Errorf("%s took %d requests, want at most %d", what, len(all), limit)
			}
			return e
		}
		count("list", 100, "list", "--repo", repo)
		target := []string{"restore", "--repo", repo, "--to-snapshot", u.path("new.db"), "--dry-run"}
		count("restore --dry-run", 100, target...)
		count("restore --dry-run --at", 200, append(target, "--at", l.timeOf(l.last-3*uint64(time.Hour/l.interval)).Add(l.interval/4).Format(time.RFC3339Nano), "--at-nearest")...)
		if delay == 0 {
			// What is replayed, to look for the key and then to rebuild: the last hour, of
			// small segments.
			replayed := int(time.Hour / l.interval)
			count("restore --before", 2*replayed+l.fulls+100, "restore", "--repo", repo, "--to-snapshot", u.path("before.db"), "--before", "gone")
			// Each segment that no other replaces, each full snapshot, their verdicts, which
			// are written and looked at, and all names.
			count("verify", l.merged+int(3*time.Hour/2/l.interval)+6*l.fulls+l.small/1000+100, "verify", "all", "--repo", repo, "--level", "checksum")
		}
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
