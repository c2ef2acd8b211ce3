package client_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/requorum/requorum/store/client"
)

// longAnswers is no member: what it answers has no end that memory could hold.
type longAnswers struct {
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedClusterServer
}

func (longAnswers) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{ClusterId: 1, MemberId: 1}, Version: strings.Repeat("3", 65<<20)}, nil
}

func (longAnswers) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{Header: &pb.ResponseHeader{ClusterId: 1, MemberId: 1}, Members: []*pb.Member{{ID: 1, Name: strings.Repeat("m", 65<<20)}}}, nil
}

// lagging is a member that has applied no login before it was asked three times.
type lagging struct {
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedAuthServer
	asked int
}

func (*lagging) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return &pb.AuthenticateResponse{Token: "token"}, nil
}

func (l *lagging) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	if l.asked++; l.asked <= 3 {
		return nil, rpctypes.ErrGRPCInvalidAuthToken
	}
	return &pb.StatusResponse{Header: &pb.ResponseHeader{ClusterId: 1, MemberId: 1}}, nil
}

// A member that learns of a login a little later than others is no stranger.
func TestLoginThatIsNotAppliedYet(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, member := grpc.NewServer(), &lagging{}
	pb.RegisterMaintenanceServer(server, member)
	pb.RegisterAuthServer(server, member)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	cli := dial(t, client.Config{Endpoints: []string{"http://" + l.Addr().String()}, User: "u", Password: "p"})
	if s := survey(t, cli); s.Members[0].Err != nil {
		t.Error(s.Members[0].Err)
	}
}

// What a server answers is bounded, whatever it is.
func TestLongAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	pb.RegisterMaintenanceServer(server, longAnswers{})
	pb.RegisterClusterServer(server, longAnswers{})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	_, err = dial(t, client.Config{Endpoints: []string{"http://" + l.Addr().String()}, CommandTimeout: time.Minute}).Survey(t.Context())
	if err == nil || !strings.Contains(err.Error(), "received message larger than max") {
		t.Errorf("%.300v", err)
	}
}
