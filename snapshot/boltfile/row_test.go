package boltfile

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// TestRowLikeEtcd: keys are what etcd writes and reads.
func TestRowLikeEtcd(t *testing.T) {
	for _, r := range []Revision{{}, {1, 0}, {2, 1}, {256, 70000}, {math.MaxInt64, math.MaxInt64}} {
		want := mvcc.RevToBytes(mvcc.Revision{Main: r.Main, Sub: r.Sub}, mvcc.NewRevBytes())
		if got := r.Bytes(); !bytes.Equal(got, want) || len(got) != RowSize {
			t.Errorf("%v is %x, etcd has %x", r, got, want)
		}
		for _, deleted := range []bool{false, true} {
			b := r.Bytes()
			if deleted {
				b = append(b, 't')
			}
			if k, err := ParseRow(b); err != nil || k != (Row{r, deleted}) {
				t.Errorf("%x is read as %v, %v", b, k, err)
			}
			if etcd := mvcc.BytesToBucketKey(b); etcd.Revision != (mvcc.Revision{Main: r.Main, Sub: r.Sub}) || mvcc.IsTombstone(b) != deleted {
				t.Errorf("etcd reads %x as %v", b, etcd)
			}
		}
	}
}

// TestRowRefused: what etcd would panic on, or take for a revision that it never
// wrote, is an error.
func TestRowRefused(t *testing.T) {
	sound := string(Revision{5, 1}.Bytes())
	for _, bad := range []string{
		"", sound[:RowSize-1], sound + "x", sound + "tt", sound[:8] + "-" + sound[9:],
		"\x80" + sound[1:], sound[:9] + "\xff" + sound[10:],
	} {
		if k, err := ParseRow([]byte(bad)); err == nil {
			t.Errorf("%x is read as %v", bad, k)
		}
	}
}

func TestRevisionString(t *testing.T) {
	for want, r := range map[string]Revision{"7": {7, 0}, "7.2": {7, 2}} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Values are read and written as etcd does it, and others are errors: each field once, in
// its order and of its type.
func TestKeyValueLikeEtcd(t *testing.T) {
	want := KeyValue{Key: []byte("key"), Value: []byte("value"), Created: 2, Modified: 3, Version: 4, Lease: 5}
	whole := want.Append(nil, false)
	etcd, err := proto.Marshal(&mvccpb.KeyValue{Key: want.Key, Value: want.Value, CreateRevision: 2, ModRevision: 3, Version: 4, Lease: 5})
	require.NoError(t, err)
	require.Equal(t, etcd, whole)
	require.Len(t, whole, want.Size(false))
	require.Len(t, want.Append(nil, true), want.Size(true))
	got, err := ParseKeyValue(whole)
	require.NoError(t, err)
	require.Equal(t, want, got)
	bytes := func(n protowire.Number) []byte { return appendBytes(nil, n, []byte("x")) }
	number := func(n protowire.Number) []byte { return appendNumber(nil, n, 1) }
	for name, unknown := range map[string][]byte{"bytes": bytes(7), "number": number(7)} {
		if kv, err := ParseKeyValue(append(want.Append(nil, false), unknown...)); err != nil || kv.Unknown != 7 {
			t.Errorf("an unknown field, %s: %+v, %v", name, kv, err)
		}
	}
	wrong := map[string][]byte{
		"a field twice": append(bytes(fieldKey), bytes(fieldKey)...), "a wrong order": append(bytes(fieldValue), bytes(fieldKey)...),
		"a key that is a number": number(fieldKey), "a value that is a number": append(bytes(fieldKey), number(fieldValue)...), "cut off": whole[:len(whole)-1],
		"a fixed number": protowire.AppendFixed64(protowire.AppendTag(nil, fieldVersion, protowire.Fixed64Type), 1),
	}
	for name, n := range map[string]protowire.Number{"created": fieldCreated, "modified": fieldModified, "version": fieldVersion, "lease": fieldLease} {
		wrong[name+" that is bytes"] = append(bytes(fieldKey), bytes(n)...)
	}
	for name, row := range wrong {
		if kv, err := ParseKeyValue(row); err == nil {
			t.Errorf("%s: it was read as %+v", name, kv)
		}
	}
}
