package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// What the kill tests back up: large enough that a backup to S3 is a multipart
// upload of several parts.
const (
	killKeys      = 400
	killValueSize = 64 << 10
)

// TestKilledBackup is the first half of point 4 of what the main job must show,
// and promise 1: `backup` is killed at random moments, to disk and to S3,
// while a client writes. Whatever is listed afterwards restores, whole,
// and the next backup needs no cleaning.
func TestKilledBackup(t *testing.T) {
	t.Parallel()
	c := startPlain(t, "3.7", 1, killKeys, killValueSize)
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
	u := newUser(t, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	storetest.StartWriter(t, c.Client(t), writerPrefix).WaitFor(t, 5)
	leftovers := 0
	for _, place := range []struct{ name, repo, dir string }{
		{"disk", "file://" + u.Path("repo"), u.Path("repo")},
		{"S3", server.URL("backups", "etcd"), filepath.Join(server.Dir, "backups", "etcd")},
	} {
		t.Run(place.name, func(t *testing.T) { leftovers += killBackups(t, u, c, place.repo, place.dir) })
	}
	if storetest.Soak() && leftovers == 0 {
		t.Error("no kill came between an object and its manifest: the moments are wrong")
	}
}

// killBackups kills backups to a repository, whose files are in dir, and returns how
// often an object without a manifest was listed.
func killBackups(t *testing.T, u *user, c *storetest.Cluster, repo, dir string) (leftovers int) {
	start := time.Now()
	u.backup(t, c.Endpoints(), repo)
	whole := time.Since(start)
	checked := map[string]bool{}
	rounds, kills := storetest.Amount(2, 5, 50), 0
	for round := 0; kills < rounds; round++ {
		if round > 4*rounds {
			t.Fatalf("only %d of %d runs were killed before their end: the times are wrong", kills, round)
		}
		command := u.Start(t, backupArgs(c.Endpoints(), repo)...)
		var killed bool
		var when string
		if round%2 == 0 {
			after := rand.N(whole)
			when = fmt.Sprintf("killed after %s of %s", after, whole)
			killed = command.KillAfter(t, after)
		} else { // when the object is there, and the manifest perhaps not yet
			before, after := objects(t, dir), rand.N(20*time.Millisecond)
			when = fmt.Sprintf("killed %s after its object had come", after)
			killed = command.KillOnce(t, func() bool { return objects(t, dir) > before }, after)
		}
		if killed {
			kills++
		}
		leftovers += expectListedRestore(t, u, repo, checked, when)
		start := time.Now()
		u.backup(t, c.Endpoints(), repo)
		whole = (whole + time.Since(start)) / 2 // other work on the machine comes and goes
		expectListedRestore(t, u, repo, checked, "after the next backup")
		if t.Failed() {
			return leftovers
		}
	}
	t.Logf("%d kills; objects without a manifest were listed %d times", kills, leftovers)
	return leftovers
}

// objects counts the stored snapshots that can be seen in a repository's directory.
func objects(t testing.TB, repo string) int {
	found, err := filepath.Glob(filepath.Join(repo, "*", "full", "*", "snapshot.zst"))
	require.NoError(t, err)
	return len(found)
}

// expectListedRestore restores every backup that is listed in a repository and
// was not looked at before, with all checks of ours and of etcdutl. It says how
// many backups are listed as incomplete.
func expectListedRestore(t *testing.T, u *user, repo string, checked map[string]bool, when string) (incomplete int) {
	t.Helper()
	r := u.list(t, repo)
	for _, m := range r.Backups {
		if checked[repo+m.ID] {
			continue
		}
		checked[repo+m.ID] = true
		dir := t.TempDir()
		plain := filepath.Join(dir, "plain.db")
		if e := u.Run(t, "restore", m.ID, "--repo", repo, "--to-snapshot", plain, "--bump-revision", "off"); e.Code != exitOK {
			t.Errorf("%s: a backup is listed that does not restore: %s", when, e)
			continue
		}
		storetest.Etcdutl(t, "3.7", "snapshot", "status", plain)
		storetest.Etcdutl(t, "3.7", "snapshot", "restore", plain, "--data-dir", filepath.Join(dir, "data"))
		require.NoError(t, os.RemoveAll(dir))
	}
	return len(r.Incomplete)
}

// TestKilledRestore is the second half of point 4, and promise 1: `restore` of
// three members is killed at random moments, into nothing and over an old
// cluster's directories. Then real servers are started on what lies there, with
// the flags of a new cluster: they refuse, or they serve everything. A second
// run of the same command succeeds.
func TestKilledRestore(t *testing.T) {
	t.Parallel()
	versions := []string{"3.6", "3.7"}
	u := newUser(t)
	old, repo := "file://"+u.Path("old"), "file://"+u.Path("repo")
	c := startPlain(t, "3.6", 1, killKeys, killValueSize)
	mark := func(value string) {
		_, err := c.Client(t).Put(t.Context(), markKey, value)
		require.NoError(t, err)
	}
	mark("old")
	u.backup(t, c.Endpoints(), old)
	mark("new")
	u.backup(t, c.Endpoints(), repo)
	c.Kill(0)

	dir := filepath.Join(t.TempDir(), "first")
	cluster := storetest.InitialCluster(t, names(3)...)
	restore := func(from, dir string) []string {
		return []string{"restore", "--repo", from, "--initial-cluster", cluster, "--data-dir", dataDirs(dir), "--set-aside"}
	}
	start := time.Now()
	u.Must(t, exitOK, restore(repo, dir)...)
	whole := time.Since(start)

	var seen tally
	rounds, kills := storetest.Amount(2, 5, 50), 0
	for round := 0; kills < rounds; round++ {
		if round > 4*rounds {
			t.Fatalf("only %d of %d runs were killed before their end: the times are wrong", kills, round)
		}
		dir := filepath.Join(t.TempDir(), "data")
		over, late := round%2 == 1, round%4 >= 2
		if over {
			u.Must(t, exitOK, restore(old, dir)...)
		}
		command := u.Start(t, restore(repo, dir)...)
		var killed bool
		var when string
		if late { // when the first member is in its place
			after := rand.N(6 * time.Millisecond)
			when = fmt.Sprintf("killed %s after the first member had come", after)
			killed = command.KillOnce(t, func() bool { return inPlace(t, dir) }, after)
		} else {
			after := rand.N(whole)
			when = fmt.Sprintf("killed after %s of %s", after, whole)
			killed = command.KillAfter(t, after)
		}
		if killed {
			kills++
		}
		when = fmt.Sprintf("%s (%v), over an old cluster: %v", when, killed, over)
		result := expectNoHalf(t, versions[round%len(versions)], dir, cluster, over, when)
		seen[result]++
		if !killed && result != servesNew {
			t.Errorf("%s: it succeeded, and %s", when, result)
		}
		if result != servesNew {
			u.Must(t, exitOK, restore(repo, dir)...)
			if again := expectNoHalf(t, versions[round%len(versions)], dir, cluster, over, "after the second run"); again != servesNew {
				t.Errorf("%s, and run again: %s", when, again)
			}
		}
		if t.Failed() {
			return
		}
		require.NoError(t, os.RemoveAll(dir))
	}
	if storetest.Soak() && (seen[refuses] == 0 || seen[servesOld] == 0) {
		t.Errorf("the moments are wrong: %v", seen)
	}
	t.Logf("after %d kills: %v", kills, seen)
}

// inPlace reports whether a member is where etcd looks for it, blocked: etcd's own
// segments have lower numbers.
func inPlace(t testing.TB, dir string) bool {
	found, err := filepath.Glob(filepath.Join(dir, "*", "member", "wal", "ffffffffffffffff-*.wal"))
	require.NoError(t, err)
	return len(found) > 0
}

// markKey distinguishes the old cluster's data from the new one's.
const markKey = "/mark"

// outcome is what servers made of what a killed restore left.
type outcome int

const (
	nothingThere outcome = iota
	refuses
	servesOld
	servesNew
)

func (v outcome) String() string {
	return [...]string{"nothing is there", "servers refuse to start", "the old cluster serves", "the new cluster serves"}[v]
}

// tally counts outcomes.
type tally [4]int

func (s tally) String() string {
	var parts []string
	for v, n := range s {
		parts = append(parts, fmt.Sprintf("%s: %d", outcome(v), n))
	}
	return strings.Join(parts, ", ")
}

// expectNoHalf starts servers on copies of the members' directories, as an
// operator would who knows nothing of the restore.
func expectNoHalf(t *testing.T, version, dir, initialCluster string, over bool, when string) outcome {
	t.Helper()
	there := 0
	for _, name := range names(3) {
		entries, err := os.ReadDir(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // as before the restore
		}
		require.NoError(t, err)
		there++
		member := false
		for _, e := range entries {
			member = member || e.Name() == "member"
		}
		if !member {
			t.Errorf("%s: %s is there without a member folder: etcd would begin an empty cluster in it: %v", when, name, entries)
		}
	}
	if there == 0 && !over {
		return nothingThere
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", "--sparse=always", dir, copied).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	defer os.RemoveAll(copied)
	var all []*server
	var endpoints []string
	for _, name := range names(3) {
		data := filepath.Join(copied, name)
		if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
			continue // it would begin an empty cluster there, as before the restore
		}
		s := startOnce(t, version, name, data, initialCluster, "new")
		defer s.Kill()
		all = append(all, s)
		endpoints = append(endpoints, s.clientURL)
	}
	client := plainClient(t, endpoints...)
	defer client.Close()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		running := 0
		for _, s := range all {
			if s.Running() {
				running++
			}
		}
		if running < 2 { // of three: no quorum any more
			return refuses
		}
		if v, err := serves(t.Context(), client); err == nil {
			return v
		} else if time.Now().After(deadline) {
			t.Errorf("%s: %d servers run and do not serve: %v\n%s", when, running, err, all[0].log())
			return refuses
		}
	}
}

// serves asks a cluster for all it has. Anything but all is an error that lasts.
func serves(ctx context.Context, client *clientv3.Client) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	mark, err := client.Get(ctx, markKey)
	if err != nil {
		return refuses, err
	}
	n, err := countRandom(ctx, client)
	if err != nil {
		return refuses, err
	}
	if n != killKeys || len(mark.Kvs) != 1 {
		return refuses, fmt.Errorf("a cluster serves a part: %d of %d keys, mark %v", n, killKeys, mark.Kvs)
	}
	if string(mark.Kvs[0].Value) == "old" {
		return servesOld, nil
	}
	return servesNew, nil
}
