package deploytest

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule"
	"github.com/requorum/requorum/store/storetest"
)

// docs/agent.md, "etcd with authentication on": a user without any role archives; a
// full snapshot is refused to it and given to one with the role root, without a
// data directory.
func TestAuthRoles(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.6", Auth: true})
	client := c.Client(t)
	for user, role := range map[string]string{"archiver": "", "backup": "root"} {
		_, err := client.UserAdd(t.Context(), user, user+"-password")
		require.NoError(t, err)
		if role != "" {
			_, err = client.UserGrantRole(t.Context(), user, role)
			require.NoError(t, err)
		}
	}
	dir := t.TempDir()
	repo := "file://" + filepath.Join(dir, "repo")
	start := func(user, more string) *agent {
		t.Helper()
		address := storetest.FreeAddress(t)
		secret := write(t, filepath.Join(dir, user), user+"-password\n")
		path := write(t, filepath.Join(dir, user+".yaml"), "name: "+user+
			"\netcd: {endpoints: ['"+c.Endpoints()[0]+"'], user: "+user+", password-file: "+secret+"}"+
			"\nrepository: {url: '"+repo+"'}"+
			"\nlisten: {address: '"+address+"'}\n"+more)
		return startAgent(t, []string{"STATE_DIRECTORY=" + filepath.Join(dir, "state-"+user), "TMPDIR=" + dir}, address, storetest.Requorum(t), "agent", "--config", path)
	}
	archiver := start("archiver", "member: {data-dir: "+c.Member(0).DataDir+"}\njobs: {full: {run: off}, divergence: {run: off}}\n")
	if e := run(t, nil, storetest.Requorum(t), "backup", "--endpoints", c.Endpoints()[0], "--user", "archiver:archiver-password", "--repo", repo); e.code == 0 || !strings.Contains(e.text, "root") {
		t.Errorf("a snapshot without the role root: exit code %d\n%s", e.code, e.text)
	}
	full := start("backup", "jobs: {full: {run: here, "+eachMinute+"}}\n")
	eventually(t, "the cluster reached", func() bool {
		_, body := full.get(t.Context(), "/api/v1/status")
		return strings.Contains(body, `"revision"`)
	})
	eventually(t, "a full snapshot", func() bool { return strings.Contains(full.log.String(), "msg=done job=full") })
	put, err := client.Put(t.Context(), "/deployed", "yes")
	require.NoError(t, err)
	eventually(t, "what was written archived", func() bool {
		var status struct {
			Archive struct {
				Revision int64 `json:"archived_revision"`
			} `json:"archive"`
		}
		_, body := archiver.get(t.Context(), "/api/v1/status")
		return json.Unmarshal([]byte(body), &status) == nil && status.Archive.Revision >= put.Header.Revision
	})
	archiver.stop(t, schedule.Grace)
	expectRestored(t, nil, repo)
}
