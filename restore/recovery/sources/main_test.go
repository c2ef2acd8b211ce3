package sources

import (
	"flag"
	"os"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// The tests wait for elections of real servers more than they compute, so more of
// them run at once than there are processors.
func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 4 << 10 // of the logs that tests write themselves
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "5"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
