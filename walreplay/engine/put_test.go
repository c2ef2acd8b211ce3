package engine

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Promise 2 holds for puts that protobuf does not read, too: what parsePut takes
// is what protobuf finds, with nothing beside it.
func TestPromise2PlainPuts(t *testing.T) {
	marshal := func(r *pb.InternalRaftRequest) []byte {
		b, err := proto.Marshal(r)
		require.NoError(t, err)
		return b
	}
	with := func(change func(*pb.InternalRaftRequest)) []byte {
		r := &pb.InternalRaftRequest{
			Header: &pb.RequestHeader{ID: 7, AuthRevision: 3},
			Put:    &pb.PutRequest{Key: []byte("key"), Value: []byte("value"), Lease: -5},
		}
		change(r)
		return marshal(r)
	}
	same := with(func(*pb.InternalRaftRequest) {})
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 19, protowire.VarintType), 1)
	for name, c := range map[string]struct {
		data  []byte
		plain bool
	}{
		"plain":          {same, true},
		"no lease":       {with(func(r *pb.InternalRaftRequest) { r.Put.Lease = 0 }), true},
		"no value":       {with(func(r *pb.InternalRaftRequest) { r.Put.Value = nil }), true},
		"an ID only":     {with(func(r *pb.InternalRaftRequest) { r.Header, r.ID = nil, 4 }), true},
		"nothing in it":  {with(func(r *pb.InternalRaftRequest) { r.Put = &pb.PutRequest{} }), true},
		"no header":      {with(func(r *pb.InternalRaftRequest) { r.Header = nil }), false},
		"a user":         {with(func(r *pb.InternalRaftRequest) { r.Header.Username = "u" }), false},
		"previous key":   {with(func(r *pb.InternalRaftRequest) { r.Put.PrevKv = true }), false},
		"ignored value":  {with(func(r *pb.InternalRaftRequest) { r.Put.IgnoreValue = true }), false},
		"ignored lease":  {with(func(r *pb.InternalRaftRequest) { r.Put.IgnoreLease = true }), false},
		"another kind":   {marshal(&pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 7}, Range: &pb.RangeRequest{}}), false},
		"two requests":   {with(func(r *pb.InternalRaftRequest) { r.Range = &pb.RangeRequest{} }), false},
		"two puts":       {bytes.Repeat(same, 2), false},
		"unknown inside": {with(func(r *pb.InternalRaftRequest) { r.Put.ProtoReflect().SetUnknown(unknown) }), false},
		"unknown":        {with(func(r *pb.InternalRaftRequest) { r.ProtoReflect().SetUnknown(unknown) }), false},
		"cut off":        {same[:len(same)-1], false},
		"empty":          {nil, false},
	} {
		if _, plain := parsePut(c.data); plain != c.plain {
			t.Errorf("%s: taken for a plain put: %v", name, plain)
		}
		comparePut(t, c.data)
	}
	plain := 0
	for _, e := range generate(t, 5, 3000) {
		if comparePut(t, e.Data) {
			plain++
		}
	}
	if plain == 0 {
		t.Error("no entry is a plain put")
	}
}

// comparePut reports whether data is a plain put, and fails when protobuf reads
// another one.
func comparePut(t *testing.T, data []byte) bool {
	t.Helper()
	p, plain := parsePut(data)
	if !plain {
		return false
	}
	r := &pb.InternalRaftRequest{}
	if err := proto.Unmarshal(data, r); err != nil {
		t.Fatalf("%x is taken for a plain put: %v", data, err)
	}
	if r.Header == nil && r.ID == 0 || known(r) != nil {
		t.Errorf("%x is taken for a plain put", data)
	}
	want := &pb.InternalRaftRequest{Header: r.Header, ID: r.ID, Put: &pb.PutRequest{Key: p.key, Value: p.value, Lease: p.lease}}
	if !proto.Equal(r, want) || r.Header.GetUsername() != "" {
		t.Errorf("%x is read as %v, protobuf reads %v", data, want, r)
	}
	return true
}

func FuzzParsePut(f *testing.F) {
	for _, e := range generate(f, 3, 200) {
		f.Add(e.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { comparePut(t, data) })
}
