package walfile

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"

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

// fields calls f for each field of a message. Numbers come in number, bytes in
// data, which points into b.
func fields(b []byte, f func(field protowire.Number, kind protowire.Type, number uint64, data []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var number uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := f(field, kind, number, data); err != nil {
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
	err := fields(b, func(field protowire.Number, wire protowire.Type, number uint64, data []byte) error {
		switch {
		case field == 1 && wire == protowire.VarintType:
			kind = number
		case field == 2 && wire == protowire.VarintType:
			e.Term = number
		case field == 3 && wire == protowire.VarintType:
			e.Index = number
		case field == 4 && wire == protowire.BytesType:
			e.Data = data
		default:
			return unknownField("a raft entry", field)
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
	err := fields(b, func(field protowire.Number, _ protowire.Type, number uint64, _ []byte) error {
		switch field {
		case 1:
			s.term = number
		case 2: // the vote
		case 3:
			s.commit = number
		default:
			return unknownField("a raft hard state", field)
		}
		return nil
	})
	return s, err
}

func parseMark(b []byte) (Mark, error) {
	var m Mark
	err := fields(b, func(field protowire.Number, _ protowire.Type, number uint64, _ []byte) error {
		switch field {
		case 1:
			m.Index = number
		case 2:
			m.Term = number
		case 3: // the membership at the snapshot
		default:
			return unknownField("a snapshot record", field)
		}
		return nil
	})
	return m, err
}

func parseIdentity(b []byte) (Identity, error) {
	var i Identity
	err := fields(b, func(field protowire.Number, _ protowire.Type, number uint64, _ []byte) error {
		switch field {
		case 1:
			i.MemberID = number
		case 2:
			i.ClusterID = number
		default:
			return unknownField("a metadata record", field)
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
