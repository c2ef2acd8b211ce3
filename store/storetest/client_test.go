package storetest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/requorum/requorum/store/client"
)

// refusing is a member that answers puts with these errors, one after the other.
type refusing struct {
	pb.UnimplementedKVServer
	with  []error
	asked int
}

func (r *refusing) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	r.asked++
	if r.asked <= len(r.with) {
		return nil, r.with[r.asked-1]
	}
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 2}}, nil
}

// What passes is waited for, unless the caller has little time; what does not is the
// caller's.
func TestAskAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		with  []error
		bound time.Duration
		want  error
		asked int
	}{
		{"passing", []error{rpctypes.ErrGRPCLeaderChanged, rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrGRPCTimeoutDueToLeaderFail}, time.Minute, nil, 4},
		{"little time", []error{rpctypes.ErrGRPCLeaderChanged}, 10 * time.Second, rpctypes.ErrLeaderChanged, 1},
		{"lasting", []error{rpctypes.ErrGRPCNoSpace}, time.Minute, rpctypes.ErrNoSpace, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			member, server := &refusing{with: c.with}, grpc.NewServer()
			pb.RegisterKVServer(server, member)
			go func() { _ = server.Serve(l) }()
			defer server.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), c.bound)
			defer cancel()
			_, err = newClient(t, client.Config{Endpoints: []string{l.Addr().String()}}).Put(ctx, "k", "v")
			if !errors.Is(err, c.want) || member.asked != c.asked {
				t.Errorf("asked %d times, want %d: %v", member.asked, c.asked, err)
			}
		})
	}
}
