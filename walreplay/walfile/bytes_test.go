package walfile

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// segmentBytes makes segments byte by byte, for what etcd would not write.
type segmentBytes struct {
	bytes  []byte
	sum    uint32
	before []int // offsets of the records
}

func newSegment(sum uint32) *segmentBytes { return &segmentBytes{sum: sum} }

func (s *segmentBytes) record(kind int64, data []byte) *segmentBytes {
	s.before = append(s.before, len(s.bytes))
	s.sum = crc32.Update(s.sum, castagnoli, data)
	rec := protowire.AppendVarint([]byte{8}, uint64(kind))
	rec = protowire.AppendVarint(append(rec, 16), uint64(s.sum))
	if data != nil {
		rec = protowire.AppendBytes(append(rec, 26), data)
	}
	head := uint64(len(rec))
	if pad := (8 - len(rec)%8) % 8; pad > 0 {
		head |= uint64(0x80|pad) << 56
		rec = append(rec, make([]byte, pad)...)
	}
	s.bytes = append(binary.LittleEndian.AppendUint64(s.bytes, head), rec...)
	return s
}

func numbers(values ...uint64) []byte {
	var b []byte
	for i, v := range values {
		b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(i+1), protowire.VarintType), v)
	}
	return b
}

func (s *segmentBytes) crc() *segmentBytes { return s.record(wal.CrcType, nil) }

func (s *segmentBytes) metadata(id Identity) *segmentBytes {
	return s.record(wal.MetadataType, numbers(id.MemberID, id.ClusterID))
}

func (s *segmentBytes) entry(index, term uint64, data string) *segmentBytes {
	return s.record(wal.EntryType, raftlog.Entry{Index: index, Term: term, Data: []byte(data)}.Append(nil))
}

func (s *segmentBytes) state(term, commit uint64) *segmentBytes {
	return s.record(wal.StateType, numbers(term, 1, commit))
}

func (s *segmentBytes) snapshot(index, term uint64) *segmentBytes {
	return s.record(wal.SnapshotType, numbers(index, term))
}

func (s *segmentBytes) zeros(n int) *segmentBytes {
	s.bytes = append(s.bytes, make([]byte, n)...)
	return s
}

func write(t testing.TB, dir string, seq, index uint64, b []byte) string {
	t.Helper()
	path := filepath.Join(dir, name{seq, index}.String())
	check(t, os.WriteFile(path, b, 0o600))
	return path
}
