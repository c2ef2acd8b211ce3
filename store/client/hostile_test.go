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
	"google.golang.org/grpc/metadata"

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

// behindProxy answers as a member does behind Envoy.
type behindProxy struct {
	pb.UnimplementedMaintenanceServer
}

func (behindProxy) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{ClusterId: 1, MemberId: 1}, Version: "3.7.0"}, nil
}

func (behindProxy) Snapshot(_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer) error {
	if err := stream.SendHeader(metadata.Pairs("server", "envoy")); err != nil {
		return err
	}
	return stream.Send(&pb.SnapshotResponse{RemainingBytes: 1 << 30, Blob: make([]byte, 32<<10)})
}

// A proxy may read any amount ahead, and what is held then is not the member's stream.
func TestHeldStreamBehindProxy(t *testing.T) {
	t.Parallel()
	server := grpc.NewServer()
	pb.RegisterMaintenanceServer(server, behindProxy{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)
	cli, err := client.Dial(t.Context(), client.Config{Endpoints: []string{"http://" + l.Addr().String()}})
	require.NoError(t, err)
	t.Cleanup(func() { cli.Close() })
	member := client.MemberStatus{Endpoint: cli.Endpoints()[0], ClusterID: 1, MemberID: 1}
	_, err = cli.HeldStream(t.Context(), member)
	require.ErrorContains(t, err, "a proxy stands between, which answers with the header server: envoy")
	stream, err := cli.Stream(t.Context(), member)
	require.NoError(t, err)
	require.NoError(t, stream.Close())
}
