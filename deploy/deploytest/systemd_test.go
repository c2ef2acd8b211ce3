package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule"
	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/store/storetest"
)

// unit are the settings of the agent's unit.
func unit(t testing.TB) map[string][]string {
	t.Helper()
	return settings(t, "requorum-agent.service")
}

// settings are those of a unit, in their order.
func settings(t testing.TB, name string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for line := range strings.Lines(deployed(t, "systemd", name)) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			all[key] = append(all[key], value)
		}
	}
	return all
}

func only(t testing.TB, all map[string][]string, key string) string {
	t.Helper()
	if len(all[key]) != 1 {
		t.Fatalf("%s= stands %d times in the unit", key, len(all[key]))
	}
	return all[key][0]
}

// systemd takes every line of the unit as it is meant, and finds it well confined.
func TestUnitVerify(t *testing.T) {
	_, err := exec.LookPath("systemd-analyze")
	needs(t, err == nil, "systemd-analyze is not installed (apt-get install systemd)")
	path := filepath.Join(t.TempDir(), "requorum-agent.service")
	write(t, path, replaced(t, deployed(t, "systemd", "requorum-agent.service"), "/usr/local/bin/requorum", storetest.Requorum(t)))
	if text := must(t, nil, "systemd-analyze", "verify", "--man=no", path); strings.Contains(text, path) || strings.Contains(text, "requorum") {
		t.Errorf("systemd-analyze verify: %s", text)
	}
	// In tenths: 100 is a service without any bounds. The network is what it needs.
	if e := run(t, nil, "systemd-analyze", "security", "--offline=true", "--threshold=20", path); e.code != 0 {
		t.Errorf("systemd-analyze security: %s", e.text)
	}
}

// The unit's numbers fit those of the program.
func TestUnitNumbers(t *testing.T) {
	u := unit(t)
	seconds, err := strconv.Atoi(only(t, u, "TimeoutStopSec"))
	if err != nil || time.Duration(seconds)*time.Second <= schedule.Grace {
		t.Errorf("TimeoutStopSec=%s, and the agent may take %s", only(t, u, "TimeoutStopSec"), schedule.Grace)
	}
	expectRoom(t, only(t, u, "MemoryMax"))
	for _, key := range []string{"User", "Group"} {
		if only(t, u, key) != "etcd" {
			t.Errorf("%s=%s", key, only(t, u, key))
		}
	}
	// Each secret may be missing.
	for _, key := range u["LoadCredential"] {
		name, _, _ := strings.Cut(key, ":")
		found := false
		for _, fallback := range u["SetCredential"] {
			found = found || fallback == name+`:\n`
		}
		if !found {
			t.Errorf("LoadCredential=%s without a SetCredential=: the service would not start where the file is not there", key)
		}
	}
}

// expectRoom wants a bound of memory that holds the agent and its job's process.
func expectRoom(t testing.TB, bound string) {
	t.Helper()
	mebibytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSuffix(bound, "Mi"), "M"), 10, 64)
	require.NoError(t, err)
	defaults := config.Default()
	if least := int64(256<<20) + int64(defaults.Resources.JobMemory); mebibytes<<20 <= least {
		t.Errorf("a bound of %s, and the agent and its job's process may take %d bytes", bound, least)
	}
}

// The unit's ExecStart with the shipped configuration does what it says beside a
// live member, and the folder that systemd makes is all that it writes to.
func TestUnitRuns(t *testing.T) {
	t.Parallel()
	needs(t, os.Getuid() == 0, "to give up root's capabilities takes root")
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	u := unit(t)
	dir := t.TempDir()
	repo := "file://" + filepath.Join(dir, "repo")
	state := filepath.Join(dir, "state")
	require.NoError(t, os.Mkdir(state, 0o700))
	address := storetest.FreeAddress(t)
	configuration := write(t, filepath.Join(dir, "agent.yaml"), replaced(t, deployed(t, "systemd", "agent.yaml"),
		"'http://127.0.0.1:2379'", c.Endpoints()[0],
		"/var/lib/etcd", c.Member(0).DataDir,
		"s3://BUCKET/PREFIX?region=eu-central-1", repo,
		"/etc/requorum/signing.key", filepath.Join(dir, "signing.key"),
		"/etc/requorum/trust", write(t, filepath.Join(dir, "trust"), signer(t, filepath.Join(dir, "signing.key"))),
		"/var/lib/requorum", state)+"listen: {address: '"+address+"'}\n")
	line := strings.Fields(replaced(t, only(t, u, "ExecStart"), "/usr/local/bin/requorum", storetest.Requorum(t), "/etc/requorum/agent.yaml", configuration))
	// Its credentials are empty where there are none.
	empty := write(t, filepath.Join(dir, "aws"), "\n")
	env := []string{"STATE_DIRECTORY=" + state, "AWS_SHARED_CREDENTIALS_FILE=" + empty}
	expectWorking(t, c, configuration, repo, address, env, append(unprivileged, line...)...)
}
