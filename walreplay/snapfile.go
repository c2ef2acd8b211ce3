package walreplay

import (
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdserver/api/snap/snappb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/store/safedir"
)

// largestSnap is more than a .snap file has, which without etcd 2's keys is little
// more than the members: it is in memory three times.
const largestSnap = 64 << 20

// castagnoli is the table of etcd's CRC.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CheckSnapFile reads a raft snapshot file (TERM-INDEX.snap) and returns its size and how it
// differs from a file that etcd wrote whole; the fault is empty if it does not. The error is
// why the file could not be read. etcd's own reader renames files that it finds broken.
func CheckSnapFile(path string) (size int64, fault string, err error) {
	data, err := safedir.ReadFile(path, largestSnap)
	if err != nil {
		return 0, "", err
	}
	return int64(len(data)), snapFault(strings.TrimSuffix(filepath.Base(path), ".snap"), data), nil
}

func snapFault(name string, data []byte) string {
	var outer snappb.Snapshot
	var inner raftpb.Snapshot
	if err := proto.Unmarshal(data, &outer); err != nil {
		return fmt.Sprintf("it cannot be decoded: %v", err)
	}
	if len(outer.GetData()) == 0 || outer.GetCrc() == 0 {
		return "there is nothing in it"
	}
	if got := crc32.Checksum(outer.GetData(), castagnoli); got != outer.GetCrc() {
		return fmt.Sprintf("the CRC of its bytes is %08x, and %08x is in it", got, outer.GetCrc())
	}
	if err := proto.Unmarshal(outer.GetData(), &inner); err != nil {
		return fmt.Sprintf("the snapshot in it cannot be decoded: %v", err)
	}
	m := inner.GetMetadata()
	if want := fmt.Sprintf("%016x-%016x", m.GetTerm(), m.GetIndex()); want != name {
		return fmt.Sprintf("it is of term %d, index %d, which makes its name %s.snap: it was moved or copied here", m.GetTerm(), m.GetIndex(), want)
	}
	return ""
}
