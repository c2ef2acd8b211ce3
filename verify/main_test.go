package verify_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/verify/serve"
)

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 1 << 20 // saves the 128 MiB that etcd's log takes while it is made
	if len(os.Args) > 1 && os.Args[1] == serve.MembersCommand {
		if err := serve.Members(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "requorum: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 3 && os.Args[1] == memoryArgument {
		if err := verifyAndMeasure(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
