package restore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestPlanIsTheSameOnEveryHost: a plan that was written and read builds members
// of one cluster, one by one.
func TestPlanIsTheSameOnEveryHost(t *testing.T) {
	dir := t.TempDir()
	req := three(small(t), dir)
	req.Learners = []string{"m2"}
	first := plan(t, req)
	data, err := first.Marshal()
	require.NoError(t, err)
	for _, name := range []string{"m1", "m2", "m3"} {
		p, err := ParsePlan(data)
		require.NoError(t, err)
		if !reflect.DeepEqual(p, first) {
			t.Fatalf("the plan that was read differs:\n%+v\n%+v", p, first)
		}
		res, err := Execute(t.Context(), p, req.Image, ExecOptions{Only: name})
		require.NoError(t, err)
		if len(res.Members) != 1 || res.Members[0].Name != name || res.InitialCluster != req.InitialCluster {
			t.Errorf("%s: built %+v of %s", name, res.Members, res.InitialCluster)
		}
	}
	dbs := map[string]bool{}
	for _, name := range []string{"m1", "m2", "m3"} {
		b := buckets(t, filepath.Join(dir, name, "member", "snap", "db"))
		dbs[b["meta"]["scheduledCompactRev"]+b["meta"]["confState"]+b["members"][first.member("m2").ID.String()]] = true
	}
	if len(dbs) != 1 {
		t.Errorf("the members are of %d clusters", len(dbs))
	}
	again := plan(t, req)
	if again.ClusterToken == first.ClusterToken || again.ClusterID == first.ClusterID {
		t.Error("two plans have the same token or cluster ID")
	}
}

func TestParsePlanRefuses(t *testing.T) {
	image := small(t)
	p := plan(t, three(fakeImage{Image: image, sum: strings.Repeat("a", 64)}, t.TempDir()))
	data, err := p.Marshal()
	require.NoError(t, err)
	sum := func(data []byte) string {
		t.Helper()
		sum, err := planSum(data)
		require.NoError(t, err)
		return sum
	}
	for _, c := range []struct {
		old, new, want string
		summed         bool // with the sum of what it became
	}{
		{`"format": 1`, `"format": 2`, "format", false},
		{`"format": 1`, `"format": 1, "colour": "red"`, "colour", false},
		{fmt.Sprint(`"new_revision": `, p.Bump.NewRevision), `"new_revision": 7`, "was altered", false},
		{p.Source.DatabaseSHA256, strings.Repeat("0", 64), "was altered", false},
		{p.Members[2].DataDir, p.Members[1].DataDir, "was altered", false},
		{`"sha256": "` + sum(data), `"sha256": "`, "was altered", false},
		{"\n}\n", "\n} {}\n", "follows its end", false},
		{p.ClusterToken, "another", "do not follow", true},
		{p.ClusterID.String(), "00000000000000aa", "do not follow", true},
		{"127.0.0.1:22380", "127.0.0.1:22381", "do not follow", true},
		{p.Members[0].DataDir, "relative", "absolute", true},
	} {
		bad := bytes.Replace(data, []byte(c.old), []byte(c.new), 1)
		if bytes.Equal(bad, data) {
			t.Fatalf("%q is not in the plan", c.old)
		}
		if c.summed {
			bad = bytes.Replace(bad, []byte(sum(data)), []byte(sum(bad)), 1)
		}
		if _, err := ParsePlan(bad); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v, want %q", c.new, c.old, err, c.want)
		}
	}
	// Its layout does not count, and what is printed elsewhere is a plan, too.
	if !bytes.HasSuffix(data, []byte(`"sha256": "`+sum(data)+"\"\n}\n")) {
		t.Errorf("the sum is not the last field:\n%s", data)
	}
	printed, err := json.Marshal(Result{Plan: p})
	require.NoError(t, err)
	var result struct{ Plan json.RawMessage }
	require.NoError(t, json.Unmarshal(printed, &result))
	if again, err := ParsePlan(result.Plan); err != nil || !reflect.DeepEqual(again, p) {
		t.Errorf("%+v %v", again, err)
	}
}

// TestOneDirectoryOnEachHost: members that share a path are planned for several
// hosts, each of which builds one.
func TestOneDirectoryOnEachHost(t *testing.T) {
	for _, share := range []string{"data", "wal"} {
		dir := t.TempDir()
		req := three(small(t), dir)
		shared := filepath.Join(dir, "etcd")
		if share == "data" {
			req.DataDir = shared
		} else {
			req.WALDir = shared
		}
		p := plan(t, req)
		ready, err := p.Check(t.Context(), ExecOptions{})
		if err != nil || !p.NeedsOnly() || len(ready.Notes) != 1 || !strings.Contains(ready.Notes[0], "--name") || !strings.Contains(ready.Notes[0], shared) || len(ready.FileSystems) > 0 {
			t.Errorf("%s: %+v %v", share, ready, err)
		}
		var bad *RequestError
		if _, err := Execute(t.Context(), p, req.Image, ExecOptions{}); !errors.As(err, &bad) || !strings.Contains(err.Error(), "--name") {
			t.Errorf("%s: all at once: %v", share, err)
		}
		if got := names(t, dir); got != "" {
			t.Errorf("%s: left %s", share, got)
		}
		if ready, err := p.Check(t.Context(), ExecOptions{Only: "m2"}); err != nil || len(ready.Notes) > 0 || len(ready.Members) != 1 {
			t.Errorf("%s: m2 alone: %+v %v", share, ready, err)
		}
		if res, err := Execute(t.Context(), p, req.Image, ExecOptions{Only: "m2"}); err != nil || len(res.Members) != 1 {
			t.Errorf("%s: m2 alone: %+v %v", share, res, err)
		}
	}
	for what, req := range map[string]Request{"each its own": three(small(t), t.TempDir()), "one member": {
		Image: small(t), InitialCluster: "m1=http://a:1", DataDir: "/x", WALDir: "/y",
	}} {
		if plan(t, req).NeedsOnly() {
			t.Errorf("%s: needs a name", what)
		}
	}
}

func TestPlanForAnotherImage(t *testing.T) {
	path := makeDB(t, dbOptions{keys: 200, valueSize: 300, clusterVersion: "3.5.0"})
	req := three(open(t, path), t.TempDir())
	req.Image = fakeImage{Image: req.Image, sum: strings.Repeat("a", 64)}
	p := plan(t, req)
	for what, image := range map[string]fakeImage{
		"sum":      {Image: req.Image, sum: strings.Repeat("b", 64)},
		"size":     {Image: open(t, makeDB(t, dbOptions{keys: 2000, valueSize: 300}))},
		"revision": {Image: open(t, makeDB(t, dbOptions{keys: 199, valueSize: 300, clusterVersion: "3.5.0"}))},
	} {
		if _, err := Execute(t.Context(), p, image, ExecOptions{}); !errors.Is(err, ErrOtherImage) {
			t.Errorf("another %s: %v, want ErrOtherImage", what, err)
		}
	}
	// An image whose reader does not know its sum is hashed.
	_, err := Execute(t.Context(), p, fakeImage{Image: open(t, otherContent(t, path))}, ExecOptions{})
	require.ErrorContains(t, err, "SHA-256", "another content")
	if got := names(t, filepath.Dir(p.Members[0].DataDir)); got != "" {
		t.Errorf("left %s", got)
	}
}

// otherContent copies a database of makeDB and changes one byte of a value.
func otherContent(t *testing.T, path string) string {
	t.Helper()
	db, err := os.ReadFile(path)
	require.NoError(t, err)
	value := bytes.LastIndex(db, []byte("/key/000100")) + 100
	if value < 100 {
		t.Fatal("no key /key/000100")
	}
	db[value] ^= 1
	other := filepath.Join(t.TempDir(), "db")
	require.NoError(t, os.WriteFile(other, db, 0o600))
	return other
}

func TestRequestRefuses(t *testing.T) {
	image := small(t)
	for _, c := range []struct {
		change func(*Request)
		want   string
	}{
		{func(r *Request) { r.Image = nil }, "image"},
		{func(r *Request) { r.InitialCluster = "" }, "members"},
		{func(r *Request) { r.InitialCluster = "m1" }, "m1=http://10.0.0.1:2380"},
		{func(r *Request) { r.InitialCluster = "http://a:1" }, "m1=http://10.0.0.1:2380"},
		{func(r *Request) { r.InitialCluster = "=http://a:1" }, "m1=http://10.0.0.1:2380"},
		{func(r *Request) { r.InitialCluster = "," }, "m1=http://10.0.0.1:2380"},
		{func(r *Request) { r.InitialCluster = "m1=127.0.0.1:1" }, "http:// or https://, such as m1=https://127.0.0.1:1"},
		{func(r *Request) { r.InitialCluster = "m1=http://a" }, "write m1=http://a:2380"},
		{func(r *Request) { r.InitialCluster = "m1=ftp://a:1" }, "m1=http://10.0.0.1:2380"},
		{func(r *Request) { r.DataDir = "/x/{nam}" }, "--data-dir /x/{nam}: only {name}"},
		{func(r *Request) { r.WALDir = "/x/{name}/{member}" }, "{member} does not"},
		{func(r *Request) { r.TargetVersion = "newest" }, "such as 3.6"},
		{func(r *Request) { r.Bump, r.HighestKnownRevision = BumpRequest{Mode: BumpOff}, 1<<40 }, "--bump-revision auto"},
		{func(r *Request) { r.Bump, r.HighestKnownRevision = BumpRequest{Mode: BumpBy, Amount: 9}, 1<<40 }, "--bump-revision auto"},
		{func(r *Request) { r.InitialCluster = "m1=http://a:1,m2=http://a:1" }, "share"},
		{func(r *Request) { r.DataDir = "" }, "data directory"},
		{func(r *Request) { r.Engine = "magic" }, "engine"},
		{func(r *Request) { r.Learners = []string{"m9"} }, "m9"},
		{func(r *Request) { r.Learners = []string{"m1", "m2", "m3"} }, "voter"},
		{func(r *Request) { r.Only = "m1" }, "token"},
		{func(r *Request) { r.Only, r.ClusterToken = "m1", "t" }, "bump"},
		{func(r *Request) { r.Only, r.ClusterToken, r.Bump.Mode = "m9", "t", BumpOff }, "m9"},
		{func(r *Request) { r.InitialCluster = "../x=http://a:1" }, "../x"},
	} {
		req := three(image, t.TempDir())
		c.change(&req)
		var bad *RequestError
		if _, err := NewPlan(t.Context(), req); !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want a RequestError with %q", err, c.want)
		}
	}
	req := three(image, t.TempDir())
	var bad *RequestError
	if _, err := Execute(t.Context(), plan(t, req), image, ExecOptions{Only: "m9"}); !errors.As(err, &bad) || !strings.Contains(err.Error(), "m9") {
		t.Errorf("an unknown --name: %v, want a RequestError", err)
	}
	learner := req
	learner.Engine, learner.Learners = EngineEtcdutl, []string{"m1"}
	_, err := NewPlan(t.Context(), learner)
	require.ErrorIs(t, err, ErrCannot, "etcdutl and a learner")
	req.Only, req.ClusterToken, req.Bump = "m1", "t", BumpRequest{Mode: BumpBy, Amount: 1000}
	_, err = NewPlan(t.Context(), req)
	require.NoError(t, err, "one member with token and bump")
	alarmed := three(open(t, makeDB(t, dbOptions{keys: 1, alarms: []*etcdserverpb.AlarmMember{{MemberID: 1, Alarm: etcdserverpb.AlarmType_CORRUPT}}})), t.TempDir())
	alarmed.Engine = EngineEtcdutl
	_, err = NewPlan(t.Context(), alarmed)
	require.ErrorIs(t, err, ErrCannot, "etcdutl and an alarm")
}

func TestNotes(t *testing.T) {
	req := three(open(t, makeDB(t, dbOptions{keys: 1, clusterVersion: "3.6.0", storageVersion: "3.6.0", alarms: []*etcdserverpb.AlarmMember{
		{MemberID: 1, Alarm: etcdserverpb.AlarmType_CORRUPT}, {MemberID: 1, Alarm: etcdserverpb.AlarmType_NOSPACE},
	}})), t.TempDir())
	req.Learners = []string{"m3"}
	notes := strings.Join(plan(t, req).Notes, "\n")
	for _, want := range []string{"etcd 3.6", "2 voters tolerate 0 failures", "m3 will be learners", "CORRUPT", "NOSPACE", "no checksum"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	if _, err := os.Stat(filepath.Dir(req.DataDir)); err != nil || names(t, filepath.Dir(req.DataDir)) != "" {
		t.Errorf("planning touched the data directory: %v", err)
	}
}
