package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/snapshot"
)

// smallSegment saves the 128 MiB that etcd's log takes while it is made.
const smallSegment = 1 << 20

// drillArgument makes the test binary do a drill, for somebody to kill.
const drillArgument = "drill-of-a-test"

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = smallSegment
	if len(os.Args) > 1 && os.Args[1] == MembersCommand {
		if err := Members(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "requorum: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == drillArgument {
		if err := drillToKill(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var err error
	if savedDir, err = os.MkdirTemp("", "requorum-drill-"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(savedDir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// drillToKill does a drill that stops for ever when it begins to serve.
func drillToKill(path, dir string) error {
	image, err := snapshot.OpenFile(path)
	if err != nil {
		return err
	}
	check, err := Drill(context.Background(), image, DrillOptions{ScratchDir: dir, Members: 1, Progress: func(phase string, _, _ int64) {
		if phase == PhaseServe {
			fmt.Fprintln(os.Stdout, "serving")
			select {}
		}
	}})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(check)
}
