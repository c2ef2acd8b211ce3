package deploytest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule"
	"github.com/requorum/requorum/store/storetest"
)

// agent is one that was started as a unit or a pod starts it.
type agent struct {
	cmd  *exec.Cmd
	log  *storetest.Output
	url  string
	done chan struct{}
}

// startAgent runs a command line until the test ends; "agent" is at address.
func startAgent(t testing.TB, env []string, address string, line ...string) *agent {
	t.Helper()
	a := &agent{cmd: exec.Command(line[0], line[1:]...), log: &storetest.Output{}, url: "http://" + address, done: make(chan struct{})}
	a.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	require.NoError(t, a.cmd.Start())
	go func() {
		defer close(a.done)
		_ = a.cmd.Wait() // its exit code is looked at
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // it may have ended
		<-a.done
		if t.Failed() {
			t.Logf("the agent wrote:\n%s", a.log)
		}
	})
	return a
}

// get is a route's status and body; 0 where nobody answers.
func (a *agent) get(ctx context.Context, route string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+route, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// ready says that the agent is, and that everything up to a time can be restored.
func (a *agent) ready(ctx context.Context, until time.Time) bool {
	var status struct {
		RPO struct {
			Known bool      `json:"known"`
			Until time.Time `json:"until"`
		} `json:"rpo"`
	}
	_, body := a.get(ctx, "/api/v1/status")
	if json.Unmarshal([]byte(body), &status) != nil || !status.RPO.Known || status.RPO.Until.Before(until) {
		return false
	}
	code, _ := a.get(ctx, "/readyz")
	return code == http.StatusOK
}

// eachMinute is the timing of a job that a test waits for.
const eachMinute = `schedule: "* * * * *", jitter: 0s`

// stop is what systemd and the kubelet do.
func (a *agent) stop(t testing.TB, within time.Duration) {
	t.Helper()
	start := time.Now()
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	<-a.done
	if code := a.cmd.ProcessState.ExitCode(); code != 0 || time.Since(start) > within {
		t.Errorf("SIGTERM: exit code %d after %s", code, time.Since(start))
	}
}

// unprivileged takes from a command all that root has beyond its number.
var unprivileged = []string{"setpriv", "--no-new-privs", "--bounding-set", "-all", "--inh-caps", "-all"}

// expectWorking starts an agent with a configuration of deploy/ beside a live
// member and expects what the unit and the pods rely on: it becomes ready, probes
// are answered, SIGHUP is heeded, a faulty configuration is refused, SIGTERM ends
// it in time, and what it did can be restored.
func expectWorking(t *testing.T, c *storetest.Cluster, config, repo, address string, env []string, line ...string) {
	t.Helper()
	a := startAgent(t, env, address, line...)
	eventually(t, "ready, with a point to restore", func() bool { return a.ready(t.Context(), time.Time{}) })
	if code, body := a.get(t.Context(), "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	_, err := c.Client(t).Put(t.Context(), "/deployed", "yes")
	require.NoError(t, err)
	written := time.Now()

	good, err := os.ReadFile(config)
	require.NoError(t, err)
	write(t, config, string(good)+"\nunknown: true\n")
	hangUp(t, a)
	eventually(t, "a faulty configuration refused", func() bool { return strings.Contains(a.log.String(), "the old one goes on") })
	if e := run(t, env, line[0], line[1:]...); e.code != 2 {
		t.Errorf("a faulty configuration ends with %d, and systemd goes by 2:\n%s", e.code, e.text)
	}
	write(t, config, string(good))
	hangUp(t, a)
	eventually(t, "the configuration read again", func() bool { return strings.Contains(a.log.String(), "configuration read again") })
	eventually(t, "ready again, with what was written", func() bool { return a.ready(t.Context(), written) })
	a.stop(t, schedule.Grace)
	expectRestored(t, env, repo)
}

func hangUp(t testing.TB, a *agent) {
	t.Helper()
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGHUP))
}

// expectRestored restores the end of the archive, and looks for what was written last.
func expectRestored(t *testing.T, env []string, repo string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "restored.db")
	must(t, env, storetest.Requorum(t), "restore", "--repo", repo, "--latest", "--to-snapshot", file)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	if !bytes.Contains(data, []byte("/deployed")) {
		t.Error("what was written last is not in what was restored")
	}
}
