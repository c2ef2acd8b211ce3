package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// TestWrites: of the API server's transactions the keys are those of the success.
func TestWrites(t *testing.T) {
	put := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
	}
	remove := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("d")}}}
	look := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("r")}}}
	nested := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: []*pb.RequestOp{put("n")}}}}
	for _, c := range []struct {
		request *pb.InternalRaftRequest
		want    []string
	}{
		{&pb.InternalRaftRequest{ID: 1, Put: &pb.PutRequest{Key: []byte("p")}}, []string{"p"}},
		{&pb.InternalRaftRequest{ID: 1, DeleteRange: &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte("b")}}, []string{"a"}},
		{&pb.InternalRaftRequest{ID: 1, Txn: &pb.TxnRequest{Success: []*pb.RequestOp{put("s"), remove, look, nested}, Failure: []*pb.RequestOp{put("f")}}}, []string{"s", "d", "n"}},
		{&pb.InternalRaftRequest{ID: 1, LeaseGrant: &pb.LeaseGrantRequest{ID: 2, TTL: 3}}, nil},
	} {
		data, err := proto.Marshal(c.request)
		require.NoError(t, err)
		var got []string
		Writes(raftlog.Entry{Type: raftpb.EntryNormal, Index: 1, Term: 1, Data: data}, func(key []byte) { got = append(got, string(key)) })
		require.Equal(t, c.want, got)
	}
}
