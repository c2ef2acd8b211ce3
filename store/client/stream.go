package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
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
	return c.stream(ctx, e, member)
}

// heldWindow is how much a member may send on a HeldStream before it is read: the
// smallest flow control window that gRPC allows.
const heldWindow = 64 << 10

// HeldStream is Stream on a connection of its own, with a fixed flow control window.
// While Next is not called the member sends no more than that window, and its own
// buffers take about as much again: then it waits, and its read transaction stays open
// until the stream is read to its end or closed, or the member or the connection fails.
// A proxy that stands between may read ahead by more; one that shows itself is an error.
//
// That the connection leads to this member is checked before.
func (c *Client) HeldStream(ctx context.Context, member MemberStatus) (*SnapshotStream, error) {
	if _, err := c.known(member.Endpoint); err != nil {
		return nil, err
	}
	e, err := newEndpoint(member.Endpoint, c.config, c.login, grpc.WithStaticStreamWindowSize(heldWindow), grpc.WithStaticConnWindowSize(heldWindow))
	if err != nil {
		return nil, err
	}
	now := c.status(ctx, e)
	if err = now.Err; err == nil {
		err = sameMember(e, member, now.MemberID, now.ClusterID)
	}
	var s *SnapshotStream
	if err == nil {
		s, err = c.stream(ctx, e, member)
	}
	if err == nil {
		err = s.direct()
	}
	if err != nil {
		return nil, errors.Join(err, e.conn.Close())
	}
	context.AfterFunc(s.ctx, func() { e.conn.Close() }) //nolint:errcheck // each end of the stream ends its context, and comes first
	return s, nil
}

// direct fails where a header of the answer is a proxy's: Envoy and nginx, which may read
// hundreds of MiB ahead, add one.
func (s *SnapshotStream) direct() error {
	headers, err := s.rpc.Header()
	for name, values := range headers {
		if name == "server" || name == "via" || strings.HasPrefix(name, "x-envoy-") {
			err = fmt.Errorf("%s: a proxy stands between, which answers with the header %s: %s; name the member's own address", s.member, name, strings.Join(values, ", "))
		}
	}
	if err != nil {
		s.cancel(nil)
	}
	return err
}

func (c *Client) stream(ctx context.Context, e *endpoint, member MemberStatus) (*SnapshotStream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &SnapshotStream{member: member, endpoint: e, cancel: cancel, ctx: ctx, stall: c.config.StallTimeout, enough: enoughBytes(c.config)}
	s.watchdog = time.AfterFunc(s.stall, func() { cancel(ErrStalled) })
	// The first message is awaited here, since only it shows a login that
	// has to be renewed or a missing permission.
	err := c.call(ctx, e, "starting a snapshot stream", func(ctx context.Context) (err error) {
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
			return nil, s.failed(s.broken(err))
		}
	}
	part := s.piece.blob[s.next]
	s.next++
	s.received += int64(len(part))
	return part, nil
}

// broken explains the error of a stream that was under way.
func (s *SnapshotStream) broken(err error) error {
	said := rpctypes.ErrorDesc(err)
	err = s.endpoint.explain("reading the snapshot stream", rpctypes.Error(err))
	if at := (*EndpointError)(nil); errors.Is(err, ErrUnreachable) && errors.As(err, &at) {
		// Not for want of a right address: it was connected.
		at.Cause, at.NextStep = "the connection broke, or the member ended: "+said, ""
	}
	return err
}

// enoughBytes is what a stream has to bring in a StallTimeout of waiting.
func enoughBytes(c Config) int64 {
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

// Remaining is how many bytes of the database are still to come, by the
// member's last word; the hash after it is not counted. 0 before the first
// Next.
func (s *SnapshotStream) Remaining() int64 { return s.remaining }

// Size is that of the member's database, by its last word, without the hash that
// follows it. Before the last message it is the same after each call of Next.
func (s *SnapshotStream) Size() int64 {
	size := s.received + s.remaining
	for _, part := range s.piece.blob[s.next:] {
		size += int64(len(part))
	}
	return size
}

// Member is the one that the stream comes from.
func (s *SnapshotStream) Member() MemberStatus { return s.member }

// Close ends the stream at once and frees the member's read transaction. It
// may be called at any time and more than once.
func (s *SnapshotStream) Close() error {
	s.watchdog.Stop()
	s.cancel(context.Canceled)
	return nil
}

// blobField is the number of SnapshotResponse's field blob.
const blobField = 3

// piece is one SnapshotResponse whose blob was left where the transport put
// it: the ordinary codec gathers and copies it, with buffers that are cleared
// before, which took a seventh of a whole backup's processor time.
type piece struct {
	head    pb.SnapshotResponse // without its blob
	blob    [][]byte            // in order; point into buffers
	buffers mem.BufferSlice
}

// release gives the buffers back.
func (p *piece) release() {
	p.buffers.Free()
	p.buffers, p.blob = nil, p.blob[:0]
}

// pieceCodec decodes into a piece, and everything else as protobuf ever was.
type pieceCodec struct{ encoding.CodecV2 }

func newPieceCodec() pieceCodec { return pieceCodec{encoding.GetCodecV2("proto")} }

// Unmarshal implements encoding.CodecV2.
func (c pieceCodec) Unmarshal(data mem.BufferSlice, v any) error {
	p, ok := v.(*piece)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	head, err := p.split(data)
	if err == nil {
		p.head.Reset()
		err = proto.Unmarshal(head, &p.head)
	}
	if err != nil {
		p.blob = p.blob[:0]
		return fmt.Errorf("decode a piece of the snapshot: %w", err)
	}
	data.Ref()
	p.buffers = slices.Clone(data) // gRPC may use the slice itself again
	return nil
}

// split finds the blob, and returns the message without it.
func (p *piece) split(data mem.BufferSlice) (head []byte, err error) {
	r := &wireReader{data: data}
	for {
		tag, err := r.uvarint()
		if err == io.EOF {
			return head, nil
		}
		if err != nil {
			return nil, err
		}
		number, kind := protowire.DecodeTag(tag)
		switch {
		case kind == protowire.BytesType && number == blobField:
			p.blob, err = r.bytes(p.blob[:0])
		case kind == protowire.BytesType:
			var parts [][]byte
			if parts, err = r.bytes(nil); err == nil {
				head = protowire.AppendTag(head, number, kind)
				head = protowire.AppendBytes(head, join(parts))
			}
		case kind == protowire.VarintType:
			var value uint64
			if value, err = r.uvarint(); err == nil {
				head = protowire.AppendTag(head, number, kind)
				head = protowire.AppendVarint(head, value)
			}
		default:
			err = fmt.Errorf("field %d has an unknown kind %d", number, kind)
		}
		if err != nil {
			return nil, unexpected(err)
		}
	}
}

func join(parts [][]byte) []byte {
	var all []byte
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// wireReader reads a message that lies in several buffers.
type wireReader struct {
	data mem.BufferSlice
	at   int // offset in the first of data
}

// rest is what is left of the first buffer that is not read to its end; empty
// at the end of the message.
func (r *wireReader) rest() []byte {
	for len(r.data) > 0 {
		if b := r.data[0].ReadOnlyData()[r.at:]; len(b) > 0 {
			return b
		}
		r.data, r.at = r.data[1:], 0
	}
	return nil
}

// uvarint fails with io.EOF only where nothing is left.
func (r *wireReader) uvarint() (value uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		b := r.rest()
		if len(b) == 0 {
			if shift > 0 {
				return 0, io.ErrUnexpectedEOF
			}
			return 0, io.EOF
		}
		r.at++
		value |= uint64(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			return value, nil
		}
	}
	return 0, errors.New("a number has more than 64 bits")
}

// bytes appends a field's bytes to parts, without copying them.
func (r *wireReader) bytes(parts [][]byte) ([][]byte, error) {
	left, err := r.uvarint()
	if err != nil {
		return nil, unexpected(err)
	}
	for left > 0 {
		b := r.rest()
		if len(b) == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		if uint64(len(b)) > left {
			b = b[:left]
		}
		parts = append(parts, b)
		r.at += len(b)
		left -= uint64(len(b))
	}
	return parts, nil
}
