package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/snapshot"
)

// childArgument makes the test binary a restore that kills itself.
const childArgument = "requorum-restore-child"

// childJob is what such a child does, as JSON in its second argument.
type childJob struct {
	Image   string
	Request Request // without its image
	Only    string
	// Recovery is what the plan has of one.
	Recovery json.RawMessage `json:",omitempty"`
	// KillAt is the number of the step before which the child kills itself, from
	// 1 on; KillAfter a time. 0: never.
	KillAt    int
	KillAfter time.Duration
}

func child() {
	wal.SegmentSizeBytes = smallSegment
	var job childJob
	if err := json.Unmarshal([]byte(os.Args[2]), &job); err != nil {
		panic(err)
	}
	if err := job.run(); err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (j childJob) run() error {
	image, err := snapshot.OpenFile(j.Image)
	if err != nil {
		return err
	}
	steps := 0
	opts := ExecOptions{Only: j.Only, step: func(string) {
		if steps++; steps == j.KillAt {
			killSelf()
		}
	}}
	j.Request.Image = image
	plan, err := NewPlan(context.Background(), j.Request)
	if err != nil {
		return err
	}
	plan.Recovery = j.Recovery
	if j.KillAfter > 0 {
		time.AfterFunc(j.KillAfter, killSelf)
	}
	_, err = Execute(context.Background(), plan, image, opts)
	return err
}

func killSelf() {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		panic(err)
	}
	select {}
}
