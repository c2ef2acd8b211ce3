package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// onDisk is a verifier's configuration with a repository in a folder.
func onDisk(dir, address, more string) string {
	text := strings.Replace(verifier, "file:///nowhere", "file://"+filepath.Join(dir, "repo"), 1)
	text = strings.Replace(text, `"127.0.0.1:0"`, fmt.Sprintf("%q", address), 1)
	text = strings.Replace(text, "resources: {", fmt.Sprintf("resources: {scratch-dir: %q, ", filepath.Join(dir, "scratch")), 1)
	return text + more
}

// get is the answer at a path; code 0 where there is none.
func get(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(data)
}

// eventually waits for longer than a configuration may take to end (Grace) before the
// next one holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	within(t, 2*Grace, what, is)
}

// start runs an agent; stop ends it and gives Run's error.
func start(t *testing.T, text string, log *lines, set ...func(*Agent)) (a *Agent, stop func() error) {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(log, nil))
	a, err := New(t.Context(), parse(t, text), Options{Tool: "test", Logger: logger, Program: storetest.Requorum(t)})
	must(t, err)
	for _, f := range set {
		f(a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var ended bool
	var last error
	stop = func() error {
		cancel()
		if !ended {
			last, ended = <-done, true
		}
		return last
	}
	t.Cleanup(func() { _ = stop() })
	return a, stop
}

// A key that is revoked while the agent runs is believed no longer, though nobody sends a
// signal. A file that cannot be read leaves what was trusted, and is a problem until it
// is mended.
func TestTrustIsLookedAt(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, data []byte) { t.Helper(); must(t, safedir.Replace(file(name), data)) }
	var trust []byte
	for _, name := range []string{"mine", "stolen"} {
		private, public, err := signing.NewKey()
		must(t, err)
		write(name, private)
		write(name+".pub", public)
		trust = append(append(trust, name+" "...), public...)
	}
	write("trust", trust)
	write("revoked", nil)
	stolen, err := signing.Read(file("stolen"), "", nil)
	must(t, err)
	place, err := disk.New(file("repo"))
	must(t, err)
	defer place.Close()
	thief, err := repository.Init(t.Context(), repository.WithKeys(place, stolen), time.Now())
	must(t, err)
	id := repository.TimelineID{ClusterID: 1, N: 1}
	must(t, thief.OpenTimeline(t.Context(), repository.Timeline{ID: id}))

	text := strings.Replace(onDisk(dir, storetest.FreeAddress(t), ""), fmt.Sprintf("%q", "file://"+file("repo")),
		fmt.Sprintf("file://%s, signing-key-file: %s, trust-file: %s, revoked-keys-files: [%s]", file("repo"), file("mine"), file("trust"), file("revoked")), 1)
	a, _ := start(t, text, &lines{}, func(a *Agent) { a.trustEvery = 10 * time.Millisecond })
	believes := func() bool {
		r, err := repository.Open(t.Context(), a.session().sink)
		if err != nil {
			return !errors.Is(err, os.ErrClosed) // between two configurations
		}
		_, err = r.Timeline(t.Context(), id)
		return !errors.Is(err, repository.ErrUnsigned)
	}
	refused := func() bool {
		return slices.ContainsFunc(a.Status().Problems, func(p web.Problem) bool {
			return p.Kind == web.KindConfig && strings.Contains(p.Text, file("revoked"))
		})
	}
	if !believes() || refused() {
		t.Fatal("what a trusted key signed is not believed")
	}
	write("revoked", []byte("what is this\n"))
	eventually(t, "a file that cannot be read is a problem", refused)
	if !believes() {
		t.Error("nothing was revoked yet")
	}
	stolenKey, err := os.ReadFile(file("stolen.pub"))
	must(t, err)
	write("revoked", stolenKey)
	eventually(t, "the stolen key is believed no longer", func() bool { return !believes() && !refused() })
}

// An agent that trusts keeps how far the repository reached, also over a restart, and says
// when it holds less, until somebody removes what it remembers.
func TestAgentNoticesLess(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	sinktest.WriteKey(t, file("key"))
	keys, err := signing.Read(file("key"), file("key.trust"), nil)
	must(t, err)
	place, err := disk.New(file("repo"))
	must(t, err)
	defer place.Close()
	s := newShelf(t, repository.WithKeys(place, keys))
	s.sink = s.repo.Sink()
	s.log(timelineA, 5, time.Now())
	s.full(timelineA, time.Now())
	s.log(timelineA, 5, time.Now())

	t.Setenv("XDG_STATE_HOME", file("state"))
	text := strings.Replace(onDisk(dir, storetest.FreeAddress(t), ""), fmt.Sprintf("%q", "file://"+file("repo")),
		fmt.Sprintf("file://%s, signing-key-file: %s, trust-file: %s", file("repo"), file("key"), file("key.trust")), 1)
	reached := func(a *Agent, index uint64) func() bool {
		return func() bool {
			r := a.Status().Repository.Ranges
			return len(r) > 0 && r[len(r)-1].LastIndex == index
		}
	}
	less := func(a *Agent) func() bool {
		return func() bool {
			return slices.ContainsFunc(a.Status().Problems, func(p web.Problem) bool {
				return p.Kind == web.KindRepository && p.Severity == web.Critical && strings.Contains(p.Text, "holds less than before: timeline "+timelineA.String()+" reached raft index 10 on") &&
					strings.Contains(p.Text, "ends at raft index 5 now") && strings.Contains(p.Next, "newer copy")
			})
		}
	}
	a, stop := start(t, text, &lines{})
	eventually(t, "all is seen", reached(a, 10))
	if less(a)() {
		t.Error("all is there")
	}
	must(t, stop())
	newest, err := filepath.Glob(file("repo/*/l0/*"))
	must(t, err)
	must(t, os.Remove(newest[len(newest)-1]))
	a, stop = start(t, text, &lines{})
	eventually(t, "it is noticed", less(a))
	must(t, stop())
	seen, err := filepath.Glob(file("state/requorum/seen/*.json"))
	must(t, err)
	if len(seen) != 1 {
		t.Fatalf("remembered: %v", seen)
	}
	must(t, os.Remove(seen[0]))
	a, _ = start(t, text, &lines{})
	eventually(t, "what is left is taken", reached(a, 5))
	if less(a)() {
		t.Error("nothing is remembered")
	}
}

// An accepted configuration takes the place of the old one; a refused one leaves it,
// and is a problem until one is accepted. The port answers throughout.
func TestReload(t *testing.T) {
	dir, address := t.TempDir(), storetest.FreeAddress(t)
	log := &lines{}
	a, stop := start(t, onDisk(dir, address, ""), log)
	name := func(at string) string {
		code, body := get(t, at, "/api/v1/status")
		if code != http.StatusOK {
			return ""
		}
		var s web.Status
		must(t, json.Unmarshal([]byte(body), &s))
		return s.Agent
	}
	refused := func() string {
		for _, p := range a.Status().Problems {
			if p.Kind == web.KindConfig {
				return p.Text
			}
		}
		return ""
	}
	reload := func(text string) { t.Helper(); a.Reload(t.Context(), parse(t, text)) }
	eventually(t, "it answers", func() bool { return name(address) == "v1" })

	gone := make(chan struct{})
	away := 0
	go func() { // all along
		defer close(gone)
		for a.session().cfg.Name != "v3" {
			if code, _ := get(t, address, "/healthz"); code != http.StatusOK {
				away++
			}
			time.Sleep(time.Millisecond)
		}
	}()
	reload(onDisk(dir, address, "retention: {last: 7}\n"))
	reload(strings.Replace(onDisk(dir, address, ""), "v1", "v2", 1))
	eventually(t, "v2 holds", func() bool { return name(address) == "v2" })

	reload(onDisk(dir, storetest.FreeAddress(t), ""))
	eventually(t, "another address is refused", func() bool { return strings.Contains(refused(), "listen.address") })
	reload(onDisk(dir, address, "encryption: {identity-files: [/nowhere/keys]}\n"))
	eventually(t, "a file that is not there is refused", func() bool { return strings.Contains(refused(), "/nowhere/keys") })
	if name(address) != "v2" {
		t.Error("the old one does not go on")
	}
	reload(strings.Replace(onDisk(dir, address, ""), "v1", "v3", 1))
	eventually(t, "v3 holds", func() bool { return name(address) == "v3" && refused() == "" })
	<-gone
	if away > 0 {
		t.Errorf("it did not answer %d times", away)
	}

	require.NoError(t, stop(), "its end")
	if n := log.count("configuration read again"); n != 3 {
		t.Errorf("%d configurations were taken up", n)
	}
}

// What cannot be begun is an error at once: an address that is in use, a file that
// is not there.
func TestRunRefused(t *testing.T) {
	dir := t.TempDir()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	_, stop := start(t, onDisk(dir, taken.Addr().String(), ""), &lines{})
	time.Sleep(50 * time.Millisecond)
	require.ErrorContains(t, stop(), "listen.address")
	_, err = New(t.Context(), parse(t, onDisk(dir, "127.0.0.1:0", "encryption: {identity-files: [/nowhere/key]}\n")), Options{})
	require.ErrorContains(t, err, "/nowhere/key")
}

// The end of the context while a configuration is being taken up is a clean end.
func TestEndWhileReloading(t *testing.T) {
	dir, address := t.TempDir(), storetest.FreeAddress(t)
	for range 5 {
		a, stop := start(t, onDisk(dir, address, ""), &lines{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		next := parse(t, onDisk(dir, address, "retention: {last: 7}\n"))
		go a.Reload(ctx, next)
		time.Sleep(5 * time.Millisecond)
		require.NoError(t, stop())
		cancel()
	}
}

// Each agent of a repository shows the others: by the marks of their archivers, the
// records of jobs.
func TestAgentsOfARepository(t *testing.T) {
	now := time.Now()
	s := newShelf(t, memory())
	s.log(timelineA, 5, now.Add(-time.Hour))
	s.full(timelineA, now.Add(-time.Hour))
	sign := func(member uint64, ago time.Duration, a *repository.Agent) {
		must(t, segment.Heartbeat{Timeline: timelineA, Mark: raftlog.Mark{Index: 5, Term: 2, Time: now.Add(-ago), Member: member}, Agent: a}.Write(t.Context(), s.repo))
	}
	sign(1, time.Minute, nil) // of an older version
	sign(2, 2*time.Hour, &repository.Agent{Name: "m2", Role: "writer"})
	sign(2, time.Minute, &repository.Agent{Name: "m2", Host: "h2", Tool: "requorum 2", Role: "follower", Jobs: []string{"full"}, Keeps: "last 1"})
	sign(3, 48*time.Hour, &repository.Agent{Name: "m3"})
	session := termOn(t, beside, s.sink)
	session.seen.agents = s.inventory().agents(t.Context())
	st := &web.Status{Time: now, Jobs: []job.Status{
		{Name: jobDrill, LastSuccess: &job.Run{Agent: "v1", Finished: now.Add(-time.Hour)}, LastFailure: &job.Run{Agent: "m2", Finished: now.Add(-time.Hour)}},
	}}
	session.describeAgents(st, session.seen)
	var got []string
	for _, a := range st.Agents {
		got = append(got, fmt.Sprint(a.Name, " ", a.Role, " ", a.Jobs, " ", a.Self, " ", now.Sub(a.Seen).Round(time.Minute)))
	}
	require.Equal(t, []string{"m1  [] true 0s", "m2 follower [full] false 1m0s", "v1  [] false 1h0m0s"}, got)
	require.Equal(t, "h2", st.Agents[1].Host)
	noNull(t, st.Agents)
	session.describeProblems(st, session.seen)
	require.True(t, slices.ContainsFunc(st.Problems, func(p web.Problem) bool {
		return p.Kind == web.KindRetention && strings.Contains(p.Text, "agent m2 has another retention (last 1) than this one (any-point 168h0m0s, ")
	}), "%+v", st.Problems)
}
