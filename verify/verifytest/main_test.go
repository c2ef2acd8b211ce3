package verifytest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/verify/drill"
)

var update = flag.Bool("update", false, "write the table of faults into docs/verify.md")

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 1 << 20 // saves what etcd's log takes while it is made
	if len(os.Args) > 2 && os.Args[1] == etcdutlArgument {
		askEtcdutl(os.Args[2], os.Args[3:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == drill.MembersCommand {
		if err := drill.Members(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "requorum: %v\n", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // drills mostly wait
		panic(err)
	}
	os.Exit(m.Run())
}
