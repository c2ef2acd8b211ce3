package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/requorum/requorum/store/storetest"
)

// startWriters starts clients that write at the same time, each one put after the other.
func startWriters(t *testing.T, c *storetest.Cluster) []*storetest.Writer {
	t.Helper()
	var all []*storetest.Writer
	for i := range short(3, 8) {
		all = append(all, storetest.StartWriter(t, c.Client(t), fmt.Sprintf("%s%d/", writerPrefix, i)))
	}
	for _, w := range all {
		w.WaitFor(t, 5)
	}
	return all
}

// acknowledged stops writers and gives what was acknowledged to all of them.
func acknowledged(all []*storetest.Writer) []storetest.Ack {
	var acks []storetest.Ack
	for _, w := range all {
		acks = append(acks, w.Stop()...)
	}
	return acks
}

// TestLogKilled is the second half of point 3 of what the log must show
// (TestAgentRepositoryAway is the first), and promise 2: under load a member is killed, an
// archiver, both at once, all of them. The archive has no gap, and with the members' logs
// every write that was acknowledged.
func TestLogKilled(t *testing.T) {
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.6", Members: 3})
	u := newUser(t)
	repo := "file://" + u.Path("repo")
	archivers := u.archiveAll(t, c, repo)
	writers := startWriters(t, c)
	killed := map[string]int{}
	for kill := range short(5, 60) {
		time.Sleep(time.Duration(short(300, 1500)) * time.Millisecond)
		victim := kill % 3
		if what := kill / 3 % 3; what != 1 {
			c.Kill(victim)
			killed["member"]++
			if what == 2 || kill%2 == 0 {
				archivers[victim].restart(t)
				killed["archiver"]++
			}
			c.Restart(t, victim)
			c.WaitReady(t)
		} else {
			archivers[victim].restart(t)
			killed["archiver"]++
		}
	}
	for i := range archivers {
		if !archivers[i].Running() {
			t.Errorf("the archiver of %s has ended", c.Member(i).Name)
		}
	}
	u.awaitArchived(t, repo, applied(t, c, 0))
	expectOneRange(t, u.list(t, repo))

	// The last moment: everything is killed at once, under load.
	for i := range archivers {
		c.Kill(i)
		archivers[i].Kill()
	}
	acks := acknowledged(writers)
	figure(t, "members killed", killed["member"]+c.Size())
	figure(t, "archivers killed", killed["archiver"]+c.Size())
	figure(t, "acknowledged writes", len(acks))
	report := u.list(t, repo)
	expectOneRange(t, report)
	// The survivor with the longest log has all that was acknowledged: two of the
	// three wrote each entry, and the newest of their logs is the one to take.
	best := ""
	var furthest int64
	for i := range c.Size() {
		path := u.rebuild(t, "--from-data-dir", c.Member(i).DataDir)
		if h := hashOf(t, path); h.Revision > furthest {
			best, furthest = path, h.Revision
		}
	}
	expectAcks(t, best, "the longest log of a member", acks)
	// What is archived is a part of it.
	archived := u.rebuild(t, "--repo", repo, "--latest")
	end := hashOf(t, archived)
	if end.Revision > furthest {
		t.Errorf("archived up to revision %d, the longest log reaches %d", end.Revision, furthest)
	}
	var early []storetest.Ack
	for _, a := range acks {
		if a.Revision <= end.Revision {
			early = append(early, a)
		}
	}
	expectAcks(t, archived, "the archive", early)
}
