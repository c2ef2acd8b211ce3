package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// logVersions are the versions of the tests of the log: the oldest and the newest,
// with -short the newest alone; the tests of the single packages have them all.
func logVersions() []string {
	return storetest.Some("3.5", "3.7")
}

// TestLogMixed is points 1 and 2 of what the log must show, and promises 1 and
// 5: under a load of every kind of operation, with a full snapshot in the
// middle, and the three archivers and the S3 server killed in turn every few
// seconds, no gap is left, and the state that the archive gives is what live members
// had hashed, at many revisions, and every row of what they held when they were
// stopped. The same comes from each member's own log.
func TestLogMixed(t *testing.T) {
	if testing.Short() {
		t.Skip("TestLogMatrix compares a mixed load with what members hashed and held, TestLogKilled kills archivers, TestAgentRepositoryAway the server; walreplay/engine has members that come and go")
	}
	if !storetest.Soak() { // that load wants the machine alone
		t.Parallel()
	}
	for _, version := range logVersions() {
		t.Run(version, func(t *testing.T) {
			if !storetest.Soak() {
				t.Parallel()
			}
			mixedLog(t, version)
		})
	}
}

func mixedLog(t *testing.T, version string) {
	observations, ops := short(10, 50), short(4000, 200_000) // ten minutes and more, in all versions
	c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: storetest.MixedArgs()})
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
	u := newUser(t, rootUser(), "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	repo := server.URL("backups", "etcd")
	archivers := u.archiveAll(t, c, repo)
	load := storetest.StartMixed(t, c, storetest.MixedOptions{Ops: ops, Seed: 3, Observations: observations})
	middle := ""
	kills, pause := 0, time.Duration(short(300, 4000))*time.Millisecond
	for next := time.Now().Add(pause); !load.Over(); time.Sleep(10 * time.Millisecond) {
		// Early: on a busy machine much of the load is over when the backup is cut.
		if middle == "" && float64(load.Done()) > 0.2*float64(ops) {
			middle = u.backup(t, c.Endpoints(), repo, "--label", "at=middle").ID
		}
		// Not by time alone: a load may be over before each one's turn has come.
		if time.Now().After(next) || !storetest.Soak() && float64(load.Done()) > float64(kills+1)/8*float64(ops) {
			if victim := kills % (len(archivers) + 1); victim < len(archivers) {
				archivers[victim].restart(t)
			} else {
				server.Kill()
				time.Sleep(pause / 2)
				server.Restart(t)
			}
			kills++
			next = time.Now().Add(pause)
		}
	}
	result := load.Wait(t)
	t.Logf("%d archivers and servers killed; %s", kills, result)
	figure(t, "operations", result.Total())
	figure(t, "archivers killed", kills-kills/4)
	figure(t, "S3 servers killed", kills/4)
	if kills < 4 {
		t.Errorf("%d archivers and servers were killed in %s: not each one", kills, result.Took)
	}

	covered := u.awaitArchived(t, repo, settled(t, c, 0, 1, 2))
	for i := range archivers {
		c.WriteOut(t, i)
	}
	for i, a := range archivers {
		a.stop(t)
		c.Kill(i)
	}
	report := u.list(t, repo)
	expectOneRange(t, report)
	figure(t, "entries archived", covered.LastIndex)

	// From the archive: at each revision that was observed after a full snapshot,
	// from the newest one before it.
	base, wrote := int64(0), ""
	for _, m := range report.Backups {
		if m.ID == middle {
			base, wrote = m.Facts.Revision, m.Source.Version
		}
	}
	compared := 0
	for _, o := range result.Observed {
		if o.Revision < base {
			continue
		}
		compared++
		args := []string{"--repo", repo, "--revision", fmt.Sprint(o.Revision)}
		expectObserved(t, u.rebuild(t, args...), fmt.Sprintf("the archive at revision %d", o.Revision), o)
	}
	if want := short(1, 20); compared < want {
		t.Errorf("%d revisions were compared, want %d: base %d, covered %+v", compared, want, base, covered)
	}
	figure(t, "etcd", wrote)
	figure(t, "hashes of the archive compared", compared+2)
	latest := u.rebuild(t, "--repo", repo, "--latest")
	expectObserved(t, latest, "the end of the archive", result.Final)
	atMiddle := u.rebuild(t, middle, "--repo", repo, "--latest")
	expectObserved(t, atMiddle, "the end of the archive, from the middle", result.Final)
	own := 0
	for i := range c.Size() {
		db := filepath.Join(c.Member(i).DataDir, "member", "snap", "db")
		expectSameBuckets(t, "the archive against "+c.Member(i).Name, latest, db)

		// From the member's own log, without any snapshot.
		end := u.rebuild(t, "--source-version", wrote, "--from-data-dir", c.Member(i).DataDir)
		expectObserved(t, end, "the log of "+c.Member(i).Name, result.Final)
		expectSameBuckets(t, "the log of "+c.Member(i).Name, end, db)
		own++
		for n, o := range result.Observed {
			if !storetest.Soak() && n%len(result.Observed) != i {
				continue // each member at another revision
			}
			own++
			path := u.rebuild(t, "--source-version", wrote, "--from-data-dir", c.Member(i).DataDir, "--revision", strconv.FormatInt(o.Revision, 10))
			expectObserved(t, path, fmt.Sprintf("the log of %s at revision %d", c.Member(i).Name, o.Revision), o)
		}
	}
	figure(t, "hashes of members' logs compared", own)
	figure(t, "databases compared row by row", 2*c.Size())
}
