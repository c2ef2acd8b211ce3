package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// agent is `requorum agent` beside one member, under way.
type agent struct {
	*archiver
	url string // of its port
}

// agents starts an agent beside each member, with intervals so short that what
// happens in days happens in seconds. more is YAML with other keys, for all of them.
func (u *user) agents(t testing.TB, c *storetest.Cluster, repo, more string) []*agent {
	t.Helper()
	var all []*agent
	for i := range c.Size() {
		all = append(all, u.agent(t, c, i, repo, more))
	}
	return all
}

func (u *user) agent(t testing.TB, c *storetest.Cluster, member int, repo string, more ...string) *agent {
	t.Helper()
	m := c.Member(member)
	address := storetest.FreeAddress(t)
	base := fmt.Sprintf(`
name: %s
etcd: {endpoints: [%s]}
member: {data-dir: %s}
repository: {url: %q, retry-for: 2s%s}
archive: {interval: 500ms, takeover: %s, spool-dir: %s}
resources: {scratch-dir: %s}
listen: {address: %s}
`, m.Name, m.ClientURL, m.DataDir, repo, u.keys, cmp.Or(u.takeover, "2s"), u.Path("spool-"+m.Name), u.Path("scratch-"+m.Name), address)
	keys := map[string]any{}
	for _, text := range append([]string{base}, more...) {
		var some map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &some))
		mergeKeys(keys, some)
	}
	text, err := yaml.Marshal(keys)
	require.NoError(t, err)
	file, err := os.CreateTemp(u.Dir, "agent-"+m.Name+"-*.yaml") // beside a member may be several
	require.NoError(t, err)
	_, err = file.Write(text)
	require.NoError(t, errors.Join(err, file.Close()))
	spool := keys["archive"].(map[string]any)["spool-dir"].(string)
	a := &agent{&archiver{user: u, member: m, spool: spool, args: []string{"agent", "--config", file.Name()}}, "http://" + address}
	a.begin(t)
	return a
}

// mergeKeys sets keys of a configuration, in sections too.
func mergeKeys(to, more map[string]any) {
	for key, value := range more {
		section, isSection := value.(map[string]any)
		if before, had := to[key].(map[string]any); isSection && had {
			mergeKeys(before, section)
			continue
		}
		to[key] = value
	}
}

// get asks the agent's port; code 0 where it does not answer.
func (a *agent) get(t testing.TB, path string) (code int, body string) {
	t.Helper()
	resp, err := http.Get(a.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(data)
}

func (a *agent) status(t testing.TB) (s web.Status, ok bool) {
	t.Helper()
	code, body := a.get(t, "/api/v1/status")
	if code != http.StatusOK {
		return s, false
	}
	require.NoError(t, json.Unmarshal([]byte(body), &s), "status of the agent of %s", a.member.Name)
	return s, true
}

// missed is nil where the agent is not ready, and says that the recovery point is missed.
func (a *agent) missed(t testing.TB) error {
	t.Helper()
	code, body := a.get(t, "/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "would be lost") && !strings.Contains(body, "s3://") {
		return fmt.Errorf("the agent of %s is ready: %d %s", a.member.Name, code, body)
	}
	s, _ := a.status(t)
	if !slices.ContainsFunc(s.Problems, func(p web.Problem) bool {
		return p.Kind == web.KindRecoveryPoint && p.Severity == web.Critical
	}) {
		return fmt.Errorf("the agent of %s does not say that the recovery point is missed: %+v", a.member.Name, s.Problems)
	}
	return nil
}

// metric is the value of a metric without labels; NaN-free, false where it is not
// there.
func (a *agent) metric(t testing.TB, name string) (float64, bool) {
	t.Helper()
	_, body := a.get(t, "/metrics")
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v, err == nil
		}
	}
	return 0, false
}

// peak is the most memory that the process has had, in bytes.
func (a *agent) peak(t testing.TB) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.Cmd.Process.Pid))
	if err != nil {
		return 0 // it has just ended
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	return 0
}

// agentMemory is what an agent stays below, its replaying jobs apart.
const agentMemory = 256 << 20

// busyJobs let every job run each minute, but for what needs a host of its own.
const busyJobs = `
jobs:
  full: {schedule: "* * * * *", jitter: 0s, max-log: 8MiB}
  checksum: {schedule: "* * * * *", jitter: 10s}
  replay: {run: lease, schedule: "* * * * *", jitter: 30s}
  prune: {schedule: "* * * * *", jitter: 40s}
  merge: {schedule: "* * * * *", jitter: 50s}
  divergence: {schedule: "*/5 * * * *", jitter: 0s}
retention: {any-point: 2m, last: 3, daily: 0, weekly: 0, monthly: 0, minimum: 2}
`

// TestAgentsAmongKills is point 1 of what the agent must show, and promises 1, 2
// and 4 of the design: under load agents, members and the S3 server are killed and
// come back. At the end there is one timeline without a gap, no job was done
// twice, and every write that was acknowledged can be restored.
func TestAgentsAmongKills(t *testing.T) {
	if !storetest.Soak() { // that load wants the machine alone
		t.Parallel()
	}
	if testing.Short() {
		t.Skip("TestLogKilled kills members and archivers, TestAgentRepositoryAway the server; schedule/job has agents that come and go")
	}
	for _, version := range storetest.Some("3.6", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel() // much of it waits
			agentsAmongKills(t, version)
		})
	}
}

func agentsAmongKills(t *testing.T, version string) {
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
	repo := server.URL("backups", "etcd")
	c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
	u := newUser(t, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	u.takeover = "10s" // an agent is killed as often, and a gap is given up after four of these
	agents := u.agents(t, c, repo, busyJobs)
	storetest.Eventually(t, "there is a full snapshot", func() error {
		for _, a := range agents {
			if s, ok := a.status(t); ok && len(s.Repository.Backups) > 0 {
				return nil
			}
		}
		return fmt.Errorf("none is listed")
	})
	var writers []*storetest.Writer
	for i := range short(8, 48) {
		writers = append(writers, storetest.StartWriter(t, c.Client(t), fmt.Sprintf("%s%d/", writerPrefix, i)))
	}
	var most int64
	killed := map[string]int{}
	began := time.Now()
	end := began.Add(time.Duration(short(60, 600)) * time.Second)
	for time.Now().Before(end) {
		time.Sleep(time.Duration(1000+rand.IntN(2000)) * time.Millisecond)
		for _, a := range agents {
			most = max(most, a.peak(t))
		}
		victim := rand.IntN(3)
		switch what := []string{"agent", "agent", "member", "server"}[rand.IntN(4)]; what {
		case "agent":
			agents[victim].restart(t)
			killed[what]++
		case "member":
			c.Kill(victim)
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
			c.Restart(t, victim)
			killed[what]++
		case "server":
			server.Kill()
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
			server.Restart(t)
			killed[what]++
		}
	}
	took := time.Since(began)
	c.WaitReady(t)
	acks := acknowledged(writers)
	for what, n := range killed {
		figure(t, what+"s killed", n)
	}
	figure(t, "acknowledged writes", len(acks))
	figure(t, "writes a second", int(float64(len(acks))/took.Seconds()))
	figure(t, "MiB of an agent at most", most>>20)
	if most > agentMemory {
		t.Errorf("an agent took %d MiB, want %d at most", most>>20, agentMemory>>20)
	}
	u.awaitArchived(t, repo, applied(t, c, c.Leader(t)))
	expectOneRange(t, u.list(t, repo))
	expectAcks(t, u.rebuild(t, "--repo", repo, "--latest"), "the archive", acks)
	expectNoSlotTwice(t, u, repo)
	u.backup(t, c.Endpoints(), repo) // so that there is one before it to replay from, however short the run was
	u.Must(t, exitOK, "verify", "--repo", repo, "--level", "replay")
	for _, a := range agents {
		a.stop(t)
	}
	expectPruned(t, u, server, repo)
}

// expectPruned: what busyJobs' retention does not keep was pruned, but for what became
// due in the two minutes since the job may have run last. Where kills kept it from running
// until more than a third were due, it waits for an operator's number.
func expectPruned(t testing.TB, u *user, server *sinktest.S3Server, repo string) {
	t.Helper()
	prune := []string{"prune", "--repo", repo, "--keep-any-point", "2m", "--keep-last", "3", "--keep-minimum", "2", "--output", "json"}
	planned := func() *retention.Plan {
		return decode[pruneReport](t, u.Must(t, exitOK, append(prune, "--dry-run")...)).Plan
	}
	plan := planned()
	figure(t, "full snapshots confirmed", plan.Confirm)
	if plan.Confirm > 0 {
		u.Must(t, exitOK, append(prune, "--confirm", fmt.Sprint(plan.Confirm))...)
		plan = planned()
	}
	var backups, pruned int
	for _, b := range u.list(t, repo).Backups {
		backups++
		if b.Pinned != nil {
			t.Errorf("backup %s is pinned", b.ID)
		}
	}
	for _, name := range server.Versions(t, "backups", "etcd/pruned/") {
		if strings.Contains(name, "Z-") { // a backup's record, not that of a log
			pruned++
		}
	}
	figure(t, "full snapshots", backups)
	figure(t, "full snapshots pruned", pruned)
	if len(plan.Delete) > 6 { // two a minute, and one on the edge
		t.Errorf("%d of %d full snapshots should have been pruned: %+v", len(plan.Delete), backups, plan.Delete)
	}
	if storetest.Soak() && pruned == 0 {
		t.Error("nothing was pruned")
	}
}

// expectNoSlotTwice: a slot of a job has made one full snapshot at most.
func expectNoSlotTwice(t testing.TB, u *user, repo string) {
	t.Helper()
	made := map[string][]string{}
	for _, b := range u.list(t, repo).Backups {
		slot := b.Labels["slot"]
		if slot == "" {
			t.Errorf("backup %s has no slot", b.ID)
		}
		made[slot] = append(made[slot], b.ID)
	}
	for slot, ids := range made {
		if len(ids) > 1 {
			t.Errorf("slot %s has %d full snapshots: %v", slot, len(ids), ids)
		}
	}
}

// TestAgentRepositoryAway is point 3 of what the agent must show, the first half of point
// 3 of what the log must show, and promises 2 and 4: the repository is away under load.
// Segments wait in the spools; up to when everything can be restored stands still, the
// agent is not ready and says why. Afterwards all is caught up, nothing that was
// acknowledged is missing, and no gap is left.
func TestAgentRepositoryAway(t *testing.T) {
	t.Parallel() // much of it waits
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
	repo := server.URL("backups", "etcd")
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	u := newUser(t, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	agents := u.agents(t, c, repo, "objectives: {recovery-point: 5s}\n")
	ready := func(a *agent) error {
		if code, body := a.get(t, "/readyz"); code != http.StatusOK {
			return fmt.Errorf("the agent of %s: %d %s", a.member.Name, code, body)
		}
		if s, ok := a.status(t); !ok || !s.RPO.Known {
			return fmt.Errorf("the agent of %s: %+v", a.member.Name, s.RPO)
		}
		return nil
	}
	allReady := func() error {
		for _, a := range agents {
			if err := ready(a); err != nil {
				return err
			}
		}
		return nil
	}
	storetest.Eventually(t, "all agents are ready", allReady)
	writers := startWriters(t, c)

	const until = "requorum_recoverable_until_timestamp_seconds"
	away := time.Duration(storetest.Amount(10, 20, 300)) * time.Second
	before := time.Now()
	server.Kill()
	var first []float64
	for _, a := range agents {
		// By then what was under way when the server was killed has ended.
		storetest.Eventually(t, "the agent of "+a.member.Name+" says that the recovery point is missed", func() error { return a.missed(t) })
		v, ok := a.metric(t, until)
		if !ok {
			t.Fatalf("%s is not among the metrics of the agent of %s", until, a.member.Name)
		}
		first = append(first, v)
	}
	time.Sleep(max(away-time.Since(before), 3*time.Second)) // in which nothing may go on
	for i, a := range agents {
		v, _ := a.metric(t, until)
		if v != first[i] {
			t.Errorf("the agent of %s: %s went on by %.1f s while the repository was away", a.member.Name, until, v-first[i])
		}
		if lost := float64(time.Now().UnixMilli())/1000 - v; lost < 0.8*away.Seconds() {
			t.Errorf("the agent of %s: an alert on %s would see %.1f s after %s", a.member.Name, until, lost, away)
		}
		require.NoError(t, a.missed(t), "after %s away", away)
	}
	storetest.Eventually(t, "segments wait in the spools", func() error {
		if len(spooled(t, agents)) == 0 {
			return errors.New("none does")
		}
		return nil
	})
	server.Restart(t)
	back := time.Now()
	storetest.Eventually(t, "all agents are ready again", allReady)
	figure(t, "seconds away", away.Seconds())
	figure(t, "seconds until ready again", int(time.Since(back).Seconds()))
	acks := acknowledged(writers)
	figure(t, "acknowledged writes", len(acks))
	u.awaitArchived(t, repo, applied(t, c, 0))
	expectOneRange(t, u.list(t, repo))
	expectAcks(t, u.rebuild(t, "--repo", repo, "--latest"), "the archive", acks)
	storetest.Eventually(t, "the spools are empty", func() error {
		if left := spooled(t, agents); len(left) > 0 {
			return fmt.Errorf("left in them: %v", left)
		}
		return nil
	})
	for _, a := range agents {
		a.stop(t)
	}
}

// spooled are the segments in the agents' spools.
func spooled(t *testing.T, agents []*agent) []string {
	t.Helper()
	var all []string
	for _, a := range agents {
		for _, name := range tree(t, a.spool) {
			if strings.Contains(name, "/l0/") {
				all = append(all, a.member.Name+": "+name)
			}
		}
	}
	return all
}
