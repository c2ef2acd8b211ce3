package walfile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// bufferSize is how much is read at once.
const bufferSize = 256 << 10

// chain is the CRC that runs through all segments. It is not known where a log
// is read from its middle, until the first record of a segment shows it.
type chain struct {
	sum   uint32
	known bool
}

// record is one record of a segment.
type record struct {
	kind    int64  // as etcd's wal package numbers them
	data    []byte // points into the reader's buffer
	at, end int64  // offsets of its first byte, and behind its last one
	before  uint32 // the chain before it
}

// reader reads the records of one segment, from a record's beginning on. It
// stops for good at the first one that cannot be read. What it takes for one and
// what not is as etcd's decoder has it, which takes four times as long: it copies
// each record twice.
type reader struct {
	file  io.ReaderAt
	at    int64 // behind the last good record
	size  int64 // where the file ends
	chain chain
	ahead []byte // what was read of the file from at on
	block []byte // ahead is a part of it, and what was given, which is valid until the next record only
}

// errBroken says that a segment does not begin with the CRC that the one before
// it ended with: something between the two is missing.
var errBroken = errors.New("it does not go on where the file before it ends")

func newReader(file io.ReaderAt, from, size int64, c chain) *reader {
	return &reader{file: file, at: from, size: size, chain: c}
}

// next gives the next record; io.EOF at the end of the file, and where zeros
// follow. All other errors are of bytes that are no record, or the file system's.
func (r *reader) next() (record, error) {
	out := record{at: r.at, before: r.chain.sum}
	whole, length, err := r.frame()
	if err != nil {
		return out, err
	}
	rec, err := decodeRecord(whole[frameHead : frameHead+length])
	sum := r.chain.sum
	if err == nil && rec.kind != wal.CrcType {
		if sum = crc32.Update(sum, castagnoli, rec.data); sum != rec.crc {
			err = wal.ErrCRCMismatch
		}
	}
	if err != nil {
		if zeroSector(whole, r.at) {
			err = io.ErrUnexpectedEOF
		}
		return out, err
	}
	r.at, r.ahead = r.at+int64(len(whole)), r.ahead[len(whole):]
	out.kind, out.data, out.end = rec.kind, rec.data, r.at
	if out.at == 0 && out.kind != wal.CrcType {
		return out, errors.New("the file does not begin with a CRC record")
	}
	if out.kind == wal.CrcType {
		if r.chain.known && rec.crc != sum {
			return out, fmt.Errorf("%w: its CRC is %08x, that of the records before it %08x", errBroken, rec.crc, sum)
		}
		sum = rec.crc
		r.chain.known = true
	}
	r.chain.sum = sum
	return out, nil
}

// frame reads the next frame, with head and padding, and says how long the
// record in it is.
func (r *reader) frame() (whole []byte, length int64, err error) {
	have, err := r.fill(frameHead)
	switch {
	case err != nil:
		return nil, 0, err
	case have == 0:
		return nil, 0, io.EOF
	case have < frameHead:
		return nil, 0, io.ErrUnexpectedEOF
	}
	length, padding := frameLength(r.ahead)
	if length == 0 {
		return nil, 0, io.EOF
	}
	if length > r.size-r.at-padding-frameHead { // before so much is asked for
		return nil, 0, io.ErrUnexpectedEOF
	}
	size := int(frameHead + length + padding)
	if have, err = r.fill(size); err == nil && have < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, 0, err
	}
	return r.ahead[:size], length, nil
}

// fill reads until n bytes are ahead, and says how many of them there are: fewer
// where the file ends.
func (r *reader) fill(n int) (int, error) {
	if len(r.ahead) >= n {
		return n, nil
	}
	if len(r.block) < n {
		r.block = make([]byte, max(n, bufferSize))
	}
	have := copy(r.block, r.ahead)
	from := r.at + int64(have)
	want := min(int64(len(r.block)), int64(have)+max(0, r.size-from))
	more, err := r.file.ReadAt(r.block[have:want], from)
	r.ahead = r.block[:have+more]
	if err == io.EOF {
		err = nil
	}
	return min(n, len(r.ahead)), err
}

// decodeRecord reads etcd's walpb.Record, and like protobuf takes its fields in
// any order, with others between them.
func decodeRecord(b []byte) (frame, error) {
	if f, n := parseBody(b); n == len(b) {
		return f, nil
	}
	var f frame
	err := fields(b, func(field boltfile.Field) error {
		switch {
		case field.Number == 1 && field.Kind == protowire.VarintType:
			f.kind = int64(field.Varint)
		case field.Number == 2 && field.Kind == protowire.VarintType:
			f.crc = uint32(field.Varint)
		case field.Number == 3 && field.Kind == protowire.BytesType:
			f.data = field.Bytes
		}
		return nil
	})
	if err != nil {
		return f, errUnparsed // not protobuf's error, which may be io.ErrUnexpectedEOF
	}
	return f, nil
}

var errUnparsed = errors.New("a record is no protobuf message")

// explain puts errors of records in words.
func explain(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("a record is cut off")
	}
	return err
}

// Identity is whose log it is: every segment says so in its second record.
type Identity struct{ ClusterID, MemberID uint64 }

func (i Identity) String() string {
	return fmt.Sprintf("member %x of cluster %x", i.MemberID, i.ClusterID)
}

// Mark is a snapshot that the log records: the state at an index is elsewhere.
type Mark struct{ Index, Term uint64 }

// hardState is what of raft's HardState matters here.
type hardState struct{ term, commit uint64 }

// The messages are decoded by hand, since a log has millions of them. gogo (up
// to raft 3.6) and protobuf (from 3.7 on) write the same fields, but not the
// same bytes: the one leaves out empty data, the other zeros.

// fields calls do for each field of a message.
func fields(b []byte, do func(boltfile.Field) error) error {
	for len(b) > 0 {
		f, n := boltfile.ConsumeField(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

func unknownField(what string, field protowire.Number) error {
	return newer("", "%s with field %d", what, field)
}

// parseEntry reads a raftpb.Entry. Data points into b.
func parseEntry(b []byte) (raftlog.Entry, error) {
	var e raftlog.Entry
	var kind uint64
	for len(b) > 0 {
		f, n := boltfile.ConsumeField(b)
		switch {
		case n < 0:
			return e, fmt.Errorf("a raft entry: %w", protowire.ParseError(n))
		case f.Number == 1 && f.Kind == protowire.VarintType:
			kind = f.Varint
		case f.Number == 2 && f.Kind == protowire.VarintType:
			e.Term = f.Varint
		case f.Number == 3 && f.Kind == protowire.VarintType:
			e.Index = f.Varint
		case f.Number == 4 && f.Kind == protowire.BytesType:
			e.Data = f.Bytes
		default:
			return e, fmt.Errorf("a raft entry: %w", unknownField("a raft entry", f.Number))
		}
		b = b[n:]
	}
	if e.Index == 0 {
		return e, errors.New("a raft entry without an index")
	}
	if kind > uint64(raftpb.EntryConfChange) { // etcd makes no others
		return e, newer("", "a raft entry of type %d at index %d", kind, e.Index)
	}
	e.Type = raftpb.EntryType(kind)
	if len(e.Data) == 0 {
		e.Data = nil
	}
	return e, nil
}

func parseState(b []byte) (hardState, error) {
	var s hardState
	err := fields(b, func(f boltfile.Field) error {
		switch f.Number {
		case 1:
			s.term = f.Varint
		case 2: // the vote
		case 3:
			s.commit = f.Varint
		default:
			return unknownField("a raft hard state", f.Number)
		}
		return nil
	})
	return s, err
}

func parseMark(b []byte) (Mark, error) {
	var m Mark
	err := fields(b, func(f boltfile.Field) error {
		switch f.Number {
		case 1:
			m.Index = f.Varint
		case 2:
			m.Term = f.Varint
		case 3: // the membership at the snapshot
		default:
			return unknownField("a snapshot record", f.Number)
		}
		return nil
	})
	return m, err
}

func parseIdentity(b []byte) (Identity, error) {
	var i Identity
	err := fields(b, func(f boltfile.Field) error {
		switch f.Number {
		case 1:
			i.MemberID = f.Varint
		case 2:
			i.ClusterID = f.Varint
		default:
			return unknownField("a metadata record", f.Number)
		}
		return nil
	})
	return i, err
}

// unknownKind is the error for a record that none of the others is. Its CRC was
// right, so somebody wrote it on purpose.
func unknownKind(kind int64) error {
	if kind > wal.SnapshotType {
		return newer("", "a record of type %d", kind)
	}
	return fmt.Errorf("a record of type %d", kind)
}

// known is the newest etcd whose logs are known, as a cluster names it.
func known() *semver.Version {
	v := semver.New(version.Version)
	return &semver.Version{Major: v.Major, Minor: v.Minor}
}

func knownRelease() string { return version.Cluster(version.Version) }

// Where entries set the cluster's version: a request of its own since etcd 3.6,
// before that a v2 request, by itself or in field 2.
const (
	fieldVersionSet protowire.Number = 1300
	fieldV2         protowire.Number = 2
	fieldV2Path     protowire.Number = 3
	fieldV2Value    protowire.Number = 4
	pathVersion                      = "/0/version"
)

// refuseNewer refuses the entry with which a cluster becomes newer than what is
// known here: no entry of a new kind can come before it.
func refuseNewer(e raftlog.Entry) error {
	if e.Type != raftpb.EntryNormal || len(e.Data) == 0 {
		return nil
	}
	set := clusterVersion(e.Data, 1)
	if set == "" {
		return nil
	}
	v, err := semver.NewVersion(set)
	// What is no version is for whoever applies it to say.
	if newest := known(); err == nil && newest.LessThan(semver.Version{Major: v.Major, Minor: v.Minor}) {
		return newer(v.String(), "the log from raft index %d on", e.Index)
	}
	return nil
}

// clusterVersion is the version that a request sets, or empty. It is in the way
// of every entry, so it takes the fields apart itself.
func clusterVersion(b []byte, depth int) string {
	var path, value []byte
	for len(b) > 0 {
		f, n := boltfile.ConsumeField(b)
		if n < 0 {
			return ""
		}
		b = b[n:]
		if f.Kind != protowire.BytesType {
			continue
		}
		data := f.Bytes
		switch f.Number {
		case fieldVersionSet:
			if _, _, n := protowire.ConsumeTag(data); n > 0 {
				if v, m := protowire.ConsumeString(data[n:]); m >= 0 {
					return v
				}
			}
		case fieldV2:
			if depth > 0 && len(data) > len(pathVersion) {
				if v := clusterVersion(data, depth-1); v != "" {
					return v
				}
			}
		case fieldV2Path:
			path = data
		case fieldV2Value:
			value = data
		default:
		}
	}
	if string(path) == pathVersion {
		return string(value)
	}
	return ""
}
