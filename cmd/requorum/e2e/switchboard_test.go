package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// switchboard is a gRPC server that forwards each call, byte by byte, to the
// member that choose names.
type switchboard struct {
	url    string
	choose func(method string) string
	calls  chan []string // the methods called so far; one slice goes round
	// tamper may change the n-th message of an answer, from 0, or end the answer
	// before it with io.EOF (as if it were whole) or another error. Nil: nothing.
	tamper func(method string, n int, message []byte) ([]byte, error)
}

func startSwitch(t testing.TB, choose func(method string) string) *switchboard {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &switchboard{url: "http://" + l.Addr().String(), choose: choose, calls: make(chan []string, 1)}
	s.calls <- nil
	server := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(s.forward))
	go server.Serve(l) // it ends with Stop
	t.Cleanup(server.Stop)
	return s
}

func (s *switchboard) count(suffix string) int {
	calls := <-s.calls
	defer func() { s.calls <- calls }()
	n := 0
	for _, c := range calls {
		if strings.HasSuffix(c, suffix) {
			n++
		}
	}
	return n
}

func (s *switchboard) forward(_ any, caller grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(caller) // there always is one
	calls := <-s.calls
	to := s.choose(method)
	s.calls <- append(calls, method)
	conn, err := grpc.NewClient(strings.TrimPrefix(to, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(caller.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	called, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodecV2(bytesCodec{}))
	if err != nil {
		return err
	}
	go func() {
		for {
			var message []byte
			if err := caller.RecvMsg(&message); err != nil {
				called.CloseSend() // the answer says why
				return
			}
			if called.SendMsg(&message) != nil {
				return // the answer says why
			}
		}
	}()
	for n := 0; ; n++ {
		var message []byte
		err := called.RecvMsg(&message)
		if err == nil && s.tamper != nil {
			message, err = s.tamper(method, n, message)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := caller.SendMsg(&message); err != nil {
			return err
		}
	}
}

// bytesCodec hands messages on as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (bytesCodec) Name() string { return "proto" }
