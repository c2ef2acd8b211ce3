package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
)

// TestAgentsFromTheFirstBackupOn begins with an empty repository, and goes on after a
// restore. No agent says that it is ready before there is a backup. The one that holds
// the identity proves each full snapshot, whoever took it. After a restore all are ready
// soon after the new cluster's first full snapshot: that another agent took it is seen.
func TestAgentsFromTheFirstBackupOn(t *testing.T) {
	if testing.Short() {
		t.Skip("the rules are tested beside the agent's code")
	}
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	c.Fill(t, storetest.Load{Keys: 200})
	u := newUser(t)
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	identity := u.Path("identity.txt")
	require.NoError(t, os.WriteFile(identity, []byte(key.String()+"\n"), 0o600))
	repo := "file://" + u.Path("repo")
	backups := func() []string {
		all, err := filepath.Glob(u.Path("repo", "*", "full", "*", "manifest.json"))
		require.NoError(t, err)
		return all
	}
	// start starts an agent beside each member. The last one, which proves, begins when
	// another one has taken a snapshot.
	start := func(c *storetest.Cluster) (all []*agent) {
		before := len(backups())
		for i := range c.Size() {
			keys, run := fmt.Sprintf("recipients: [%s]", key.Recipient()), "off"
			if i == c.Size()-1 {
				keys, run = keys+fmt.Sprintf(", identity-files: [%q]", identity), "here"
				storetest.Eventually(t, "an agent without an identity has taken a snapshot", func() error {
					for _, a := range all {
						if code, body := a.get(t, "/readyz"); code == http.StatusOK && len(backups()) == 0 {
							t.Fatalf("the agent of %s is ready, and there is no backup: %s", a.member.Name, body)
						}
					}
					if len(backups()) == before {
						return errors.New("there is none")
					}
					return nil
				})
			}
			all = append(all, u.agent(t, c, i, repo, fmt.Sprintf("encryption: {%s}\njobs: {structure: {run: %s}, merge: {run: %s}}\n", keys, run, run)))
		}
		return all
	}
	proved := func() error {
		l := u.list(t, repo)
		if slices.ContainsFunc(l.Backups, func(b listedBackup) bool { return b.Proved == nil || !b.Proved.Level.Includes(report.Structure) }) {
			return fmt.Errorf("a backup is not proved: %+v", l.Backups)
		}
		return nil
	}
	ready := func(all []*agent) func() error {
		return func() error {
			for _, a := range all {
				if code, body := a.get(t, "/readyz"); code != http.StatusOK {
					return fmt.Errorf("the agent of %s: %s", a.member.Name, body)
				}
			}
			return nil
		}
	}
	old := start(c)
	storetest.Eventually(t, "each backup is proved", proved)
	storetest.Eventually(t, "all agents are ready", ready(old))
	for _, a := range old {
		a.stop(t)
	}
	c.StopAll()

	initialCluster := storetest.InitialCluster(t, names(3)...)
	e := u.Must(t, exitOK, "restore", "--repo", repo, "--identity", identity, "--initial-cluster", initialCluster, "--data-dir", dataDirs(u.Path("new")), "--output", "json")
	restored := startRestored(t, "3.7", decode[restoreReport](t, e))
	again := start(restored)
	began := time.Now()
	storetest.Eventually(t, "all agents are ready after a restore", ready(again))
	figure(t, "seconds until ready after a restore", int(time.Since(began).Seconds()))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("a full snapshot was there, and only after %s all agents were ready", took)
	}
	storetest.Eventually(t, "each backup is proved", proved)
}
