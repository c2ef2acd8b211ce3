package e2e

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
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
// ended, that it branched, that its first backup and its log were pruned: forge folder timeline
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
		repo.RecordPrunedLog(ctx, repository.PrunedLog{Timeline: id, Index: 1 << 40, Reason: "forged", Created: now}),
	))
}
