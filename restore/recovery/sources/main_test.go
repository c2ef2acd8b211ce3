package sources

import (
	"os"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 4 << 10 // of the logs that tests write themselves
	os.Exit(m.Run())
}
