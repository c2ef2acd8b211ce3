package walfile

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/wire"
	"github.com/requorum/requorum/walreplay/raftlog"
)

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
func fields(b []byte, do func(wire.Field) error) error {
	for len(b) > 0 {
		f, n := wire.Consume(b)
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
	return &NewerError{What: fmt.Sprintf("%s with field %d", what, field)}
}

// parseEntry reads a raftpb.Entry. Data points into b.
func parseEntry(b []byte) (raftlog.Entry, error) {
	// Nearly all entries are written in the canonical form, which is read faster.
	e, err := raftlog.Parse(b)
	if err == nil && e.Index != 0 && e.Type >= 0 && e.Type <= raftpb.EntryConfChangeV2 {
		return e, nil
	}
	return parseAnyEntry(b)
}

func parseAnyEntry(b []byte) (raftlog.Entry, error) {
	var e raftlog.Entry
	var kind uint64
	err := fields(b, func(f wire.Field) error {
		switch {
		case f.Number == 1 && f.Kind == protowire.VarintType:
			kind = f.Varint
		case f.Number == 2 && f.Kind == protowire.VarintType:
			e.Term = f.Varint
		case f.Number == 3 && f.Kind == protowire.VarintType:
			e.Index = f.Varint
		case f.Number == 4 && f.Kind == protowire.BytesType:
			e.Data = f.Bytes
		default:
			return unknownField("a raft entry", f.Number)
		}
		return nil
	})
	if err != nil {
		return e, fmt.Errorf("a raft entry: %w", err)
	}
	if e.Index == 0 {
		return e, errors.New("a raft entry without an index")
	}
	if kind > uint64(raftpb.EntryConfChangeV2) {
		return e, &NewerError{What: fmt.Sprintf("a raft entry of type %d at index %d", kind, e.Index)}
	}
	e.Type = raftpb.EntryType(kind)
	if len(e.Data) == 0 {
		e.Data = nil
	}
	return e, nil
}

func parseState(b []byte) (hardState, error) {
	var s hardState
	err := fields(b, func(f wire.Field) error {
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
	err := fields(b, func(f wire.Field) error {
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
	err := fields(b, func(f wire.Field) error {
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
		return &NewerError{What: fmt.Sprintf("a record of type %d", kind)}
	}
	return fmt.Errorf("a record of type %d", kind)
}
