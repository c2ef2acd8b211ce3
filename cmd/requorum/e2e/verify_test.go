package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
)

// verify runs the command with --output json, wants its exit code, and that
// nothing but the document is printed where it passed.
func (u *user) verify(t testing.TB, code int, args ...string) verifyReport {
	t.Helper()
	e := u.Must(t, code, append([]string{"verify", "--output", "json"}, args...)...)
	r := decode[verifyReport](t, e)
	const note = "note: nobody's signature was checked: who can write to the repository decides what is read; --trust FILE names whom to believe\n"
	if code == exitOK && e.Stderr != "" && e.Stderr != note {
		t.Errorf("on standard error: %s", e.Stderr)
	}
	return r
}

// TestVerifyEveryVersion: what real servers write under a mixed load passes every
// level, also against a live member. A member's data directory passes while it
// runs, by its log, and when it is stopped, and then not a byte, name or time in it
// changes.
func TestVerifyEveryVersion(t *testing.T) {
	t.Parallel()
	for _, version := range logVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			verifyVersion(t, version)
		})
	}
}

func verifyVersion(t *testing.T, version string) {
	c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: storetest.MixedArgs()})
	u := newUser(t, rootUser(), "XDG_STATE_HOME="+t.TempDir())
	repo, endpoints := u.Path("repo"), strings.Join(c.Endpoints(), ",")
	member := c.Member(0)
	archive := func() {
		u.Must(t, exitOK, "agent", "--once", "--data-dir", member.DataDir, "--endpoints", member.ClientURL, "--repo", repo)
	}
	_, err := c.Client(t).Put(t.Context(), "/first", "x")
	require.NoError(t, err)
	archive() // takes the first full snapshot
	for seed := range uint64(short(1, 3)) {
		storetest.RunMixed(t, c, storetest.MixedOptions{Seed: seed + 1, Ops: storetest.Amount(600, 1500, 20_000)})
		archive()
		u.Must(t, exitOK, "backup", "--endpoints", endpoints, "--repo", repo, "--hashkv")
	}
	for i := range 20 {
		_, err = c.Client(t).Put(t.Context(), fmt.Sprintf("/tail/%d", i), "x")
		require.NoError(t, err)
	}
	archive()

	all := u.verify(t, exitOK, "all", "--repo", repo, "--level", "replay")
	replays := 0
	for _, check := range all.Checks {
		if check.Level == report.Replay && check.Status == report.Passed {
			replays++
		}
	}
	if replays < 3 { // of both backups, and of the log's end
		t.Errorf("%d replays: %+v", replays, all.Checks)
	}
	drilled := u.verify(t, exitOK, "--repo", repo, "--level", "drill")
	last := drilled.Checks[slices.IndexFunc(drilled.Checks, func(c report.Check) bool { return c.Level == report.Drill })]
	if !strings.Contains(last.Compared, "which is what 'requorum restore --latest' gives") || len(last.Phases) < 2 || last.Phases[0].Name != "fetch" {
		t.Errorf("the log after the newest backup is not in its drill: %+v", last)
	}
	u.verify(t, exitOK, "--data-dir", member.DataDir, "--level", "checksum")
	u.verify(t, exitIncomplete, "--data-dir", member.DataDir)
	c.StopAll()
	before := storetest.Fingerprint(t, member.DataDir)
	stopped := u.verify(t, exitOK, "--data-dir", member.DataDir)
	if n := len(stopped.Checks); n < 2 || n > 3 { // with *.snap files, if there are any yet
		t.Errorf("%+v", stopped.Checks)
	}
	if after := storetest.Fingerprint(t, member.DataDir); !maps.Equal(before, after) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
}
