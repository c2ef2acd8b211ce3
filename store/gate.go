package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gate stands in front of an embedded member's clients, so that it can be
// closed quickly. etcd's own Close waits seconds for watches and other streams
// to end by themselves; and a server that is stopped under a running request
// may panic, which here would be our process.
type gate struct {
	streams context.Context // ends when the gate closes
	unary   context.Context // ends when requests had time to finish
	shut    context.CancelFunc
	abort   context.CancelFunc

	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

var errGateClosed = errors.New("the member is shutting down")

func newGate() *gate {
	g := &gate{}
	g.streams, g.shut = context.WithCancel(context.Background())
	g.unary, g.abort = context.WithCancel(context.Background())
	return g
}

func (g *gate) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, leave, err := g.enter(ctx, g.unary)
			if err != nil {
				return nil, err
			}
			defer leave()
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			ctx, leave, err := g.enter(stream.Context(), g.streams)
			if err != nil {
				return err
			}
			defer leave()
			return next(srv, &gatedStream{ServerStream: stream, ctx: ctx})
		}),
	}
}

// enter lets a call in, with a context that also ends with until.
func (g *gate) enter(ctx, until context.Context) (context.Context, func(), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, status.Error(codes.Unavailable, errGateClosed.Error())
	}
	g.inside.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(until, func() { cancel(errGateClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		g.inside.Done()
	}, nil
}

// close lets nobody in any more, ends the streams, and gives requests grace to
// finish. It reports whether all are out after at most twice that.
func (g *gate) close(grace time.Duration) bool {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.shut()
	empty := make(chan struct{})
	go func() {
		g.inside.Wait()
		close(empty)
	}()
	for range 2 {
		select {
		case <-empty:
			g.abort()
			return true
		case <-time.After(grace):
			g.abort()
		}
	}
	return false
}

type gatedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context ends with the gate.
func (s *gatedStream) Context() context.Context { return s.ctx }
