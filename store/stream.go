package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// Errors of reading from a chosen member, wrapped with its name.
var (
	// ErrStalled says that a snapshot stream brought no byte for StallTimeout, or
	// fewer than MinStreamRate asks for.
	ErrStalled = errors.New("the snapshot stream stalled")
	// ErrBehind says that a member did not reach the barrier in time.
	ErrBehind = errors.New("the member lags behind the cluster")
)

// SnapshotStream is one Maintenance.Snapshot stream of one member. The member
// holds a read transaction open for as long as it lives: its database grows,
// and a Defragment freezes the member. It is used by one goroutine at a time,
// except that Close may come from any.
//
// Bytes come from the transport only as they are asked for; beyond its flow
// control window (at most 16 MiB) nothing is read ahead.
type SnapshotStream struct {
	member    MemberStatus
	endpoint  *endpoint
	rpc       grpc.ClientStream
	cancel    context.CancelCauseFunc
	ctx       context.Context
	stall     time.Duration
	enough    int64         // bytes that stall has to bring
	waited    time.Duration // for bytes, since there were enough the last time
	fresh     int64         // bytes since then
	watchdog  *time.Timer   // of what is left of stall
	piece     piece         // the message that Next is in; Stream awaits the first
	next      int           // the part of its blob that Next returns next
	received  int64
	remaining int64
	version   string
}

// Stream starts a snapshot of exactly this member. The stream ends with ctx.
// With authentication on it needs the root role.
//
// The answer carries no identity: what the snapshot holds (its
// consistent_index) is to be held against the barrier.
func (c *Client) Stream(ctx context.Context, member MemberStatus) (*SnapshotStream, error) {
	e, err := c.known(member.Endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &SnapshotStream{member: member, endpoint: e, cancel: cancel, ctx: ctx, stall: c.config.StallTimeout, enough: enoughBytes(c.config)}
	s.watchdog = time.AfterFunc(s.stall, func() { cancel(ErrStalled) })
	// The first message is awaited here, since only it tells of a login that
	// has to be renewed or of a missing permission.
	err = c.call(ctx, e, "starting a snapshot stream", func(ctx context.Context) (err error) {
		if s.rpc, err = e.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, pb.Maintenance_Snapshot_FullMethodName, grpc.ForceCodecV2(newPieceCodec())); err != nil {
			return err
		}
		if err := s.rpc.SendMsg(&pb.SnapshotRequest{}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := s.rpc.CloseSend(); err != nil {
			return err
		}
		return s.receive()
	})
	s.watchdog.Stop()
	if err != nil {
		return nil, s.failed(err)
	}
	return s, nil
}

// Next is the next piece, in order; it stays valid until Next is called again.
// The last bytes, after the database's own (a multiple of 512), are their
// SHA-256. io.EOF is the end as the member declared it: an early end is
// io.ErrUnexpectedEOF.
func (s *SnapshotStream) Next() ([]byte, error) {
	for s.next == len(s.piece.blob) {
		s.piece.release()
		s.next = 0
		err := s.await()
		if errors.Is(err, io.EOF) {
			return nil, s.ended()
		}
		if err != nil {
			return nil, s.failed(s.endpoint.explain("reading the snapshot stream", rpctypes.Error(err)))
		}
	}
	part := s.piece.blob[s.next]
	s.next++
	s.received += int64(len(part))
	return part, nil
}

// enoughBytes is what a stream has to bring in a StallTimeout of waiting.
func enoughBytes(c ClientConfig) int64 {
	return max(1, int64(c.StallTimeout.Seconds()*float64(c.MinStreamRate)))
}

// await is receive, no longer than the stream may be waited for. Only waiting
// counts: while the reader is busy the member is not asked for anything.
func (s *SnapshotStream) await() error {
	began := time.Now()
	s.watchdog.Reset(s.stall - s.waited)
	err := s.receive()
	s.watchdog.Stop()
	s.waited += time.Since(began)
	for _, part := range s.piece.blob {
		s.fresh += int64(len(part))
	}
	if s.fresh >= s.enough {
		s.waited, s.fresh = 0, 0
	}
	return err
}

// receive waits for the next message.
func (s *SnapshotStream) receive() error {
	if err := s.rpc.RecvMsg(&s.piece); err != nil {
		return err
	}
	s.remaining = int64(s.piece.head.RemainingBytes)
	s.version = s.piece.head.Version
	return nil
}

func (s *SnapshotStream) ended() error {
	s.cancel(nil)
	if s.remaining == 0 {
		return io.EOF
	}
	return fmt.Errorf("%s: the snapshot stream ended after %d bytes with %d to come: %w", s.member, s.received, s.remaining, io.ErrUnexpectedEOF)
}

// failed names the member and says how far the stream came.
func (s *SnapshotStream) failed(err error) error {
	if errors.Is(context.Cause(s.ctx), ErrStalled) {
		err = fmt.Errorf("%w: %d bytes in %s of waiting, where %d are the least; the member is overloaded or unreachable, try again or name another endpoint", ErrStalled, s.fresh, s.stall, s.enough)
	} else if s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	s.cancel(nil)
	return fmt.Errorf("%s: snapshot stream, %d bytes received: %w", s.member, s.received, err)
}

// Received is how many bytes Next has returned.
func (s *SnapshotStream) Received() int64 { return s.received }

// Remaining is how many bytes of the database are still to come, by the
// member's last word; the hash after it is not counted. 0 before the first
// Next.
func (s *SnapshotStream) Remaining() int64 { return s.remaining }

// StorageVersion is what the member wrote beside its last piece; empty before
// 3.6.
func (s *SnapshotStream) StorageVersion() string { return s.version }

// Member is the one that the stream comes from.
func (s *SnapshotStream) Member() MemberStatus { return s.member }

// Close ends the stream at once and frees the member's read transaction. It
// may be called at any time and more than once.
func (s *SnapshotStream) Close() error {
	s.watchdog.Stop()
	s.cancel(context.Canceled)
	return nil
}
