package synthetic

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/schedule/child"
	"github.com/requorum/requorum/verify/drill"
)

// makeArgument lets this binary make a synthetic snapshot and be killed: the
// repository's folder and the scratch folder follow.
const makeArgument = "synthetic-to-kill"

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 1 << 20 // saves the 128 MiB that etcd's log takes while it is made
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == drill.MembersCommand:
		err = drill.Members(context.Background(), os.Stdin, os.Stdout)
	case len(os.Args) > 1 && os.Args[1] == childArgument:
		err = child.Serve(context.Background(), os.Stdin, os.Stdout, makeInChild)
	case len(os.Args) > 3 && os.Args[1] == makeArgument:
		err = makeToKill(os.Args[2], os.Args[3])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "requorum: %v\n", err)
		os.Exit(1)
	}
}
