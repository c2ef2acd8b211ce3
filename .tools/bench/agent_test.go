package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
)

// A program's name may have spaces and brackets in it.
func TestCPUField(t *testing.T) {
	got, err := cpuField("42 (a) 1 (b) S 1 42 42 0 -1 4194560 100 0 0 0 123 45 6 7 20 0 1 0 100")
	if want := 1680 * time.Millisecond; err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "42 (a) S 1", "42 (a) S 1 42 42 0 -1 4194560 100 0 0 0 x 45 6 7"} {
		if _, err := cpuField(bad); err == nil {
			t.Errorf("%q was taken for a line about a process", bad)
		}
	}
}

// What the kernel says of this process is what it took.
func TestOwnCPU(t *testing.T) {
	before, err := cpuOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		now, err := cpuOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now >= before+5*clockTick {
			return
		}
	}
	t.Error("ten seconds of reckoning took less than 50 ms of processor time")
}

// What was spent is the difference of the moments nearest to the stretch, and of
// children only those count that began in it.
func TestSpentBetween(t *testing.T) {
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	w := &watcher{children: map[int]*childProcess{
		1: {first: at(1), cpu: 5 * time.Second, peak: peak{100, 50}},
		2: {first: at(3), cpu: 2 * time.Second, peak: peak{30, 20}},
		3: {first: at(4), cpu: 1 * time.Second, peak: peak{20, 25}},
	}}
	for s := range 6 {
		n := time.Duration(s) * time.Second
		w.moments = append(w.moments, moment{at: at(s), etcd: 10 * n, agents: []time.Duration{n, 3 * n, 2 * n}})
	}
	got, err := w.between(at(2).Add(-100*time.Millisecond), at(4).Add(100*time.Millisecond))
	want := spent{over: 2 * time.Second, agents: 12 * time.Second, busiest: 6 * time.Second, etcd: 20 * time.Second, children: 3 * time.Second, childPeak: peak{30, 25}}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got, err := w.between(at(-5), at(50)); err != nil || got.over != 5*time.Second {
		t.Errorf("beyond what was watched: %+v, %v", got, err)
	}
	if _, err := (&watcher{}).between(at(0), at(1)); err == nil {
		t.Error("nothing was watched, and something was spent")
	}
}

// Puts count by when they were due, and the warm beginning doesn't.
func TestLatenciesBetween(t *testing.T) {
	w := &writes{pace: pace{rate: 10, over: 2 * time.Second, warm: time.Second}, began: time.Now()}
	for n := range 20 {
		due := w.pace.due(n)
		w.due, w.acked = append(w.due, due), append(w.acked, due+time.Duration(100-n)*time.Millisecond)
	}
	if got := w.latencies(); len(got) != 10 || got[0] != 81*time.Millisecond || got[9] != 90*time.Millisecond {
		t.Errorf("all that count: %v", got)
	}
	got := w.between(w.began.Add(500*time.Millisecond), w.began.Add(1200*time.Millisecond))
	if len(got) != 2 || got[0] != 89*time.Millisecond || got[1] != 90*time.Millisecond {
		t.Errorf("those between: %v", got)
	}
}

// Agents are at rest when they are ready, have nothing to do, and one writes.
func TestUnsettled(t *testing.T) {
	rest := func() []web.Status {
		all := []web.Status{{Agent: "a", Writer: true}, {Agent: "b"}}
		for i := range all {
			all[i].RPO.Known = true
			all[i].Jobs = []job.Status{{Name: "full", Last: &job.Run{}}}
		}
		return all
	}
	if why := unsettled(rest()); why != "" {
		t.Errorf("at rest: %s", why)
	}
	for want, spoil := range map[string]func([]web.Status){
		"b is not ready: no backup": func(all []web.Status) {
			all[1].Problems = []web.Problem{{Severity: web.Critical, Text: "no backup"}}
		},
		"a is at the job full":                  func(all []web.Status) { all[0].Jobs[0].Running = &job.Run{} },
		"b has the job full to do: another one": func(all []web.Status) { all[1].Jobs[0].Waiting = "another one" },
		"b does not know":                       func(all []web.Status) { all[1].RPO.Known = false },
		"0 agents write":                        func(all []web.Status) { all[0].Writer = false },
		"2 agents write":                        func(all []web.Status) { all[1].Writer = true },
	} {
		all := rest()
		spoil(all)
		if why := unsettled(all); !strings.HasPrefix(why, want) {
			t.Errorf("got %q, want %q", why, want)
		}
	}
}

// A job that ended before doesn't disturb; one under way, or that ended since, does.
func TestJobSince(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		job  job.Status
		want bool
	}{
		{job.Status{Name: "merge"}, false},
		{job.Status{Name: "merge", Last: &job.Run{Finished: now.Add(-time.Second)}}, false},
		{job.Status{Name: "merge", Last: &job.Run{Finished: now.Add(time.Second)}}, true},
		{job.Status{Name: "merge", Running: &job.Run{}}, true},
	} {
		if name, was := jobSince(&web.Status{Jobs: []job.Status{c.job}}, now); was != c.want || was && name != "merge" {
			t.Errorf("%+v: %q, %v", c.job, name, was)
		}
	}
}

// Ratios are of the same round; of few puts no slowest hundredth is shown.
func TestAgentTables(t *testing.T) {
	round := func(n int, d time.Duration) []time.Duration {
		all := make([]time.Duration, n)
		for i := range all {
			all[i] = d
		}
		return all
	}
	ms := time.Millisecond
	second := spent{over: 10 * time.Second, agents: time.Second, busiest: 500 * ms, etcd: 5 * time.Second, children: 2 * time.Second}
	r := &report{besideSize: loaded{Keys: 7, bytes: 5 << 20}, beside: []beside{
		{name: "none", latency: [][]time.Duration{round(2000, 1*ms), round(2000, 2*ms)}, spent: []spent{second, second}},
		{name: "idle", latency: [][]time.Duration{round(2000, 2*ms), round(2000, 2*ms)}, spent: []spent{second, second}},
		{name: "brief", latency: [][]time.Duration{round(10, 3*ms), round(2000, 2*ms)}, spent: []spent{second, second}},
	}, agentPeaks: []agentPeak{{name: "an agent", database: 1 << 30, limit: agentMost, of: "all of it", peak: peak{100 << 20, 90 << 20}}}}
	var b strings.Builder
	r.writeAgents(&b)
	for _, want := range []string{
		"\n### " + titleAgents + "\n\n5 MiB on disk, 7 keys, 400 puts of 256 B a second.\n",
		"| none | 2 | 4000 | 2.0 ms | 2.0 ms | 1.00× | 1.00× |  |  |  | 50.0 % of a core | |\n",
		"| idle | 2 | 4000 | 2.0 ms | 2.0 ms | 1.50× (1.00–2.00) | 1.50× (1.00–2.00) | 10.0 % of a core | 5.0 % of a core | 20.0 % of a core | 50.0 % of a core | 20.0 % |\n",
		"| brief | 2 | 2010 | 2.0 ms | 2.0 ms | 2.00× (1.00–3.00) | too few puts |",
		"\n### " + titleAgentMemory + "\n",
		"| an agent | 1024 MiB | 100 MiB | 90 MiB | 256 MiB | all of it |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	for _, line := range strings.Split(b.String(), "\n") {
		if strings.HasPrefix(line, "| idle") && strings.Count(line, "|") != strings.Count(strings.Split(b.String(), "\n")[5], "|") {
			t.Errorf("not as many columns as the head: %s", line)
		}
	}
	for _, title := range []string{titleAgents, titleAgentMemory} {
		if place("### "+title) == len(tables) {
			t.Errorf("%s has no place in the document", title)
		}
	}
}

func TestByteSize(t *testing.T) {
	var s byteSize
	if err := s.Set("8GiB"); err != nil || s != 8<<30 || s.String() != "8.0 GiB" {
		t.Errorf("%d %q %v", s, s.String(), err)
	}
	if err := s.Set("much"); err == nil {
		t.Error("an amount without a number was accepted")
	}
}
