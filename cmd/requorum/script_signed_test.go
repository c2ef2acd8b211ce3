package main

import (
	"context"
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

// scriptForge ends a timeline as somebody who may add objects can: forge folder timeline
func scriptForge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: forge folder timeline")
	}
	ctx := context.Background()
	sink, err := disk.New(ts.MkAbs(args[0]))
	ts.Check(err)
	repo, err := repository.Open(ctx, sink)
	ts.Check(err)
	id, err := repository.ParseTimelineID(args[1])
	ts.Check(err)
	ts.Check(repo.Supersede(ctx, repository.Superseded{
		Timeline: id, By: repository.TimelineID{ClusterID: 0xbad, N: 1}, Reason: "forged", Created: time.Now(),
	}))
}
