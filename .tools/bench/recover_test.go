package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A report counts where it is of this command, proven, whole, and has the phases.
func TestReadRescue(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := `{"proven":true,"rto_nanoseconds":3000,"began":"2026-01-01T00:00:02Z","phases":[{"phase":"set-aside","nanoseconds":1},` +
		`{"phase":"rebuild","nanoseconds":5},{"phase":"start","nanoseconds":2},{"phase":"prove","nanoseconds":3}]}`
	r := recovery{began: began, ended: 5 * time.Second}
	if err := readRescue([]byte(good), &r); err != nil {
		t.Fatal(err)
	}
	want := []phaseTime{{beforeChange, 2 * time.Second}, {"set-aside", 1}, {"rebuild", 5}, {"start", 2}, {"prove", 3}}
	if r.rto != 3000 || !slices.Equal(r.phases, want) {
		t.Errorf("RTO %d, phases %v, want 3000, %v", r.rto, r.phases, want)
	}
	for _, c := range []struct{ from, to string }{
		{`"proven":true`, `"proven":false`},
		{`"rto_nanoseconds":3000,`, ``},
		{`"proven":true`, `"proven":true,"incomplete":["the full snapshot"]`},
		{`"rebuild"`, `"build"`},
		{`"prove","nanoseconds":3`, `"prove","nanoseconds":"3"`},
		{`00:00:02Z`, `00:00:07Z`},
		{`2026-01-01`, `2025-12-31`},
		{`{"proven"`, `proven"`},
	} {
		bad := strings.Replace(good, c.from, c.to, 1)
		if bad == good {
			t.Fatalf("%q is not there", c.from)
		}
		if err := readRescue([]byte(bad), &recovery{began: began, ended: 5 * time.Second}); err == nil {
			t.Errorf("%q was taken for a recovery", c.to)
		}
	}
}

// A way that promises to lose nothing fails with the first write that is lost, and
// the others' losses are counted.
func TestLossFails(t *testing.T) {
	for _, w := range (&bench{}).ways() {
		ours := strings.HasPrefix(w.name, "`requorum")
		r := recovery{acked: 10}
		if err := w.lost(&r, nil); err != nil || r.lost != 0 {
			t.Errorf("%s: nothing is lost: %v", w.name, err)
		}
		if err := w.lost(&r, []string{"a", "b"}); (err != nil) != ours || r.lost != 2 {
			t.Errorf("%s: two of ten are lost: %v, counted %d", w.name, err, r.lost)
		}
	}
}

// Losses add up over the rounds, memory is the highest, and phases have a line
// where they are reported.
func TestRecoverTables(t *testing.T) {
	second := time.Second
	round := func(factor time.Duration, lost int, phases ...phaseTime) recovery {
		return recovery{serving: serving{factor * second, 2 * factor * second}, ended: 3 * factor * second, peak: peak{int64(factor) << 20, int64(factor) << 19},
			acked: 1000, lost: lost, phases: phases, rto: factor * second}
	}
	ours := []recovery{round(1, 0, phaseTime{"rebuild", 1 * second}, phaseTime{"prove", 50 * time.Millisecond}), round(3, 0, phaseTime{"rebuild", 2 * second})}
	r := &report{crashSize: loaded{Keys: 7, bytes: 5 << 20}, recovered: []recovered{
		{"ours", ours},
		{"by hand", []recovery{round(2, 3), round(2, 4)}},
	}}
	text := r.markdown()
	for _, want := range []string{
		"\n### " + titleRecover + "\n\n5 MiB on disk, 7 keys; 5s of writes before the crash.\n",
		"| ours | 2 | 2.00 s (1.00–3.00) | 4.00 s (2.00–6.00) | 6.00 s (3.00–9.00) | 0 | 2000 | 3 MiB | 2 MiB |\n",
		"| by hand | 2 | 2.00 s | 4.00 s | 6.00 s | 7 | 2000 | 2 MiB | 1 MiB |\n",
		"\n### " + titleRecoverPhases + "\n\n| | rebuild | prove | reported RTO |\n",
		"| ours | 1.50 s | 50.0 ms | 2.00 s (1.00–3.00) |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	columns := 0
	for _, line := range strings.Split(text, "\n") {
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = 0
		case columns == 0:
			columns = strings.Count(line, "|")
		case strings.Count(line, "|") != columns:
			t.Errorf("not as many columns as the head: %s", line)
		}
	}
	for _, title := range []string{titleRecover, titleRecoverPhases} {
		if place("### "+title) == len(tables) {
			t.Errorf("%s has no place in the document", title)
		}
	}
	r = &report{recovered: []recovered{{"by hand", []recovery{round(1, 0)}}}}
	if text := r.markdown(); strings.Contains(text, titleRecoverPhases) {
		t.Errorf("phases that nobody reported:\n%s", text)
	}
}

// A cluster is whole when all its members vote and answer, which may be long after
// the first write.
func TestAwait(t *testing.T) {
	var puts, lists, asked atomic.Int64
	members := []string{
		`{"name":"m1"}`,
		`{"name":"m1"},{"peerURLs":["x"]}`,
		`{"name":"m1"},{"name":"m2","isLearner":true}`,
		`{"name":"m1"},{"name":"m2"}`,
	}
	one := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/v3/kv/put":
			if puts.Add(1) < 3 {
				http.Error(w, "no leader", http.StatusServiceUnavailable)
			}
		case "/v3/cluster/member/list":
			n := min(int(lists.Add(1)), len(members))
			fmt.Fprintf(w, `{"members":[%s]}`, members[n-1])
		case "/health":
		default:
			http.NotFound(w, req)
		}
	}))
	defer one.Close()
	two := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/health" || asked.Add(1) < 2 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		}
	}))
	defer two.Close()
	s, err := await(t.Context(), time.Now(), []string{one.URL, two.URL})
	if err != nil {
		t.Fatal(err)
	}
	if s.write < 2*probeEvery || s.whole < s.write+4*probeEvery || puts.Load() != 3 || lists.Load() != 5 || asked.Load() != 2 {
		t.Errorf("%+v after %d puts, %d lists, and %d times asked", s, puts.Load(), lists.Load(), asked.Load())
	}
}

// Processes of etcd are found by their data directory, and no others.
func TestRunningOn(t *testing.T) {
	dir := t.TempDir()
	start := func(name, dir string) *exec.Cmd {
		cmd := &exec.Cmd{Path: "/bin/sh", Args: []string{name, "-c", "read x; true", "--data-dir", dir}}
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		})
		return cmd
	}
	ours := start("etcd", dir)
	start("etcd", dir+"2")
	start("other", dir)
	pids, err := runningOn(dir, "/nowhere")
	if err != nil || !slices.Equal(pids, []int{ours.Process.Pid}) {
		t.Fatalf("found %v, %v, want %d", pids, err, ours.Process.Pid)
	}
	if err := kill(pids...); err != nil || alive(pids[0]) {
		t.Errorf("it was not killed: %v", err)
	}
	if pids, err := runningOn(dir); err != nil || len(pids) > 0 {
		t.Errorf("it is found when it has ended: %v, %v", pids, err)
	}
}

// The memory of processes is that of what they have started, too.
func TestWatchTree(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	alone := watchTree(os.Getpid(), ended)
	if alone.rss <= 0 || alone.anon <= 0 || alone.anon > alone.rss {
		t.Errorf("this process has %+v", alone)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read x; true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child := watchTree(cmd.Process.Pid, ended)
	var tree peak
	tree.addTree(os.Getpid())
	if child.rss <= 0 || tree.rss <= child.rss {
		t.Errorf("a child has %+v, and with it this process %+v", child, tree)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if gone := watchTree(cmd.Process.Pid, ended); gone != (peak{}) {
		t.Errorf("one that has ended has %+v", gone)
	}
}

// The scripts are whole.
func TestScripts(t *testing.T) {
	for _, script := range []string{restoreScript, forceScript} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", "-c", script).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}
