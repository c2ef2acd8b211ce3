package client

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// However a message is cut into buffers, its piece says what protobuf says.
func TestPieceLikeProtobuf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		want := &pb.SnapshotResponse{
			Header:         &pb.ResponseHeader{ClusterId: rng.Uint64(), Revision: rng.Int64N(1 << 40)},
			RemainingBytes: rng.Uint64N(1 << 40),
			Blob:           make([]byte, rng.IntN(300)),
			Version:        "3.7.0"[:rng.IntN(6)],
		}
		for i := range want.Blob {
			want.Blob[i] = byte(rng.Uint32())
		}
		encoded, err := proto.Marshal(want)
		require.NoError(t, err)
		cut := cutAnywhere(rng, encoded)
		var p piece
		require.NoError(t, newPieceCodec().Unmarshal(cut, &p))
		got := proto.CloneOf(&p.head)
		if got.Blob != nil {
			t.Fatal("the blob was decoded twice")
		}
		got.Blob = bytes.Join(p.blob, nil)
		if len(want.Blob) == 0 {
			got.Blob, want.Blob = nil, nil
		}
		if !proto.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		p.release()

		// A message that ends early is refused, unless it ends between fields.
		short := encoded[:rng.IntN(len(encoded))]
		var plain pb.SnapshotResponse
		plainErr := proto.Unmarshal(short, &plain)
		if err := newPieceCodec().Unmarshal(cutAnywhere(rng, short), &p); (err == nil) != (plainErr == nil) {
			t.Fatalf("%x: a piece says %v, protobuf says %v", short, err, plainErr)
		}
	}
}

func cutAnywhere(rng *rand.Rand, data []byte) mem.BufferSlice {
	var cut mem.BufferSlice
	for len(data) > 0 {
		n := 1 + rng.IntN(len(data))
		cut, data = append(cut, mem.SliceBuffer(data[:n])), data[n:]
	}
	return cut
}

// Bytes from outside: no panic, and nothing that protobuf itself would read
// otherwise.
func FuzzPiece(f *testing.F) {
	good, err := proto.Marshal(&pb.SnapshotResponse{RemainingBytes: 7, Version: "3.7.0", Blob: []byte("blob")})
	require.NoError(f, err)
	f.Add(good, 3)
	f.Add([]byte{0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f}, 1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		cut = min(max(cut, 0), len(data))
		var p piece
		err := newPieceCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data[:cut]), mem.SliceBuffer(data[cut:])}, &p)
		if err != nil {
			return
		}
		var want pb.SnapshotResponse
		if err := proto.Unmarshal(data, &want); err != nil {
			t.Skip() // protobuf is stricter about what is thrown away anyway
		}
		if p.head.RemainingBytes != want.RemainingBytes || p.head.Version != want.Version || !bytes.Equal(join(p.blob), want.Blob) {
			t.Fatalf("got %v and %q, want %v", &p.head, join(p.blob), &want)
		}
	})
}
