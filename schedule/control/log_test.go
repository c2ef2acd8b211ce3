package control_test

import (
	"errors"
	"os"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// logOf puts a member's new log in a folder's place: the next start of a member is
// of that cluster.
func logOf(t *testing.T, dir string, cluster uint64) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: proto.Uint64(1), ClusterID: proto.Uint64(cluster)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := wal.Create(zap.NewNop(), dir, metadata)
	if err == nil {
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
