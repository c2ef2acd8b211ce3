package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
)

// scriptSSHKey makes a key that signs, and a file that trusts it: sshkey name. They are
// name and name.trust.
func scriptSSHKey(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sshkey name")
	}
	private, public, err := signing.NewKey()
	ts.Check(err)
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path, private, 0o600))
	ts.Check(os.WriteFile(path+".trust", append([]byte("ops@example.com "), public...), 0o600))
	ts.Check(os.WriteFile(path+".pub", public, 0o600))
}

// scriptForge writes what somebody who may add objects can against a timeline: that it has
// ended, that it branched, that its first backup was pruned: forge folder timeline
func scriptForge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: forge folder timeline")
	}
	ctx, now := context.Background(), time.Now()
	sink, err := disk.New(ts.MkAbs(args[0]))
	ts.Check(err)
	repo, err := repository.Open(ctx, sink)
	ts.Check(err)
	id, err := repository.ParseTimelineID(args[1])
	ts.Check(err)
	fulls, err := repo.Fulls(ctx, id)
	ts.Check(err)
	branch := repository.TimelineID{ClusterID: id.ClusterID, N: id.N + 1}
	for _, t := range []repository.TimelineID{id, branch} {
		ts.Check(repo.Supersede(ctx, repository.Superseded{Timeline: t, By: repository.TimelineID{ClusterID: 0xbad, N: 1}, Reason: "forged", Created: now}))
	}
	ts.Check(errors.Join(
		repo.OpenTimeline(ctx, repository.Timeline{ID: branch, Parent: &repository.Branch{Timeline: id, RaftIndex: 1}, Reason: "forged", Created: now.Add(time.Hour)}),
		repo.RecordPruned(ctx, repository.Pruned{Timeline: id, Backup: fulls[0].ID, Reason: "forged", Created: now}),
	))
}

// scriptPlant puts the one full snapshot of a repository n times into a timeline of
// another one, with manifests that say they are of that timeline and n days in a row, the
// last one today: plant from to timeline n
func scriptPlant(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: plant from to timeline n")
	}
	ctx := context.Background()
	found, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*", "full", "*", "manifest.json"))
	ts.Check(err)
	if len(found) != 1 {
		ts.Fatalf("%d full snapshots in %s", len(found), args[0])
	}
	data, err := os.ReadFile(found[0])
	ts.Check(err)
	var m snapshot.Manifest
	ts.Check(repository.Unseal(data, &m))
	object, err := os.ReadFile(filepath.Join(ts.MkAbs(args[0]), m.Object.Name))
	ts.Check(err)
	sink, err := disk.New(ts.MkAbs(args[1]))
	ts.Check(err)
	repo, err := repository.Open(ctx, sink)
	ts.Check(err)
	m.Timeline, err = repository.ParseTimelineID(args[2])
	ts.Check(err)
	m.Source.ClusterID = snapshot.ID(m.Timeline.ClusterID)
	n, err := strconv.Atoi(args[3])
	ts.Check(err)
	for i := range n {
		m.Started = time.Now().AddDate(0, 0, -i).UTC().Truncate(time.Second)
		m.Finished = m.Started
		m.ID = m.Started.Format("20060102T150405Z-") + fmt.Sprintf("%06x", i)
		m.Object.Name = repository.SnapshotName(m.Timeline, m.ID, 1, m.Object.Encrypted())
		_, err := sinks.Put(ctx, sink, m.Object.Name, object, sinks.CreateOptions{})
		ts.Check(errors.Join(err, repo.WriteDocument(ctx, repository.ManifestName(m.Timeline, m.ID), m)))
	}
}

// scriptJunk writes what is no document under the names of 64 marks that a timeline has
// ended, of 100 timelines and of 500 backups: junk folder timeline
func scriptJunk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: junk folder timeline")
	}
	sink, err := disk.New(ts.MkAbs(args[0]))
	ts.Check(err)
	id, err := repository.ParseTimelineID(args[1])
	ts.Check(err)
	var names []string
	for n := range 64 {
		names = append(names, repository.SupersededName(id, n+1))
	}
	for n := range 100 {
		names = append(names, repository.TimelineName(repository.TimelineID{ClusterID: id.ClusterID, N: id.N + 1 + n}))
	}
	for n := range 500 {
		names = append(names, repository.ManifestName(id, fmt.Sprintf("20990101T000000Z-%06x", n)))
	}
	for _, name := range names {
		_, err := sinks.Put(context.Background(), sink, name, []byte("junk"), sinks.CreateOptions{})
		ts.Check(err)
	}
}
