package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// fitTimeout is how long a member may take to answer what takes a healthy one a
// millisecond. One that takes longer has other things to do.
const fitTimeout = time.Second

// Unfit asks a member, and all others how far they are, whether anything large is to
// be read from it now, and says why not; empty where it can be burdened. It takes a
// second at most, and as good as nothing where all are well. A member that does not
// answer is unfit, which is no error; the error is for the end of ctx, and for a member
// of another client. Of member the endpoint is enough: it is then about whoever answers
// there.
//
// A member is catching up when it lacks FarBehind entries of what another one has
// applied. Etcd 3.6 and 3.7 do not move the applied index when they load a leader's
// snapshot, only with the next entry: on a cluster where nothing is written such a
// member counts as behind until then, and no barrier is seen to be applied by it
// either. With authentication on, a user who may not read keys does not see a
// defragmentation by etcd from 3.6 on.
func (c *Client) Unfit(ctx context.Context, member MemberStatus) (why string, err error) {
	e, err := c.known(member.Endpoint)
	if err != nil {
		return "", err
	}
	bounded, cancel := context.WithTimeout(ctx, fitTimeout)
	defer cancel()
	var (
		status     MemberStatus
		read, dial error // of its database, and of its address
		others     []MemberStatus
		wg         sync.WaitGroup
	)
	wg.Go(func() { status = c.status(bounded, e) })
	wg.Go(func() { read = c.readNothing(bounded, e) })
	wg.Go(func() { dial = dialEndpoint(bounded, e) })
	wg.Go(func() {
		others = c.askAll(bounded, slices.DeleteFunc(c.all(), func(o *endpoint) bool { return o == e }))
	})
	wg.Wait()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s: asking whether it is fit: %w", member, context.Cause(ctx))
	}
	if status.Err == nil && member.MemberID != 0 {
		status.Err = sameMember(e, member, status.MemberID, status.ClusterID)
	}
	reached := status.RaftIndex
	for _, o := range others {
		if o.Err == nil && o.ClusterID == status.ClusterID {
			reached = max(reached, o.AppliedIndex)
		}
	}
	// The plainest reason first.
	switch {
	case dial == nil && errors.Is(status.Err, ErrTimeout):
		why = fmt.Sprintf("it takes connections and answers nothing within %s: it is frozen, overloaded or being defragmented", fitTimeout)
	case status.Err != nil:
		why = "it does not answer: " + status.Err.Error()
	case errors.Is(read, ErrTimeout):
		why = fmt.Sprintf("its database does not answer within %s: it is being defragmented, or its disk hangs", fitTimeout)
	case status.AppliedIndex+FarBehind <= reached:
		why = fmt.Sprintf("it is catching up: it lacks %d entries of what the cluster has applied", reached-status.AppliedIndex)
	}
	return why, nil
}

// readNothing reads one key that cannot be there from the member's own database,
// without the quorum. What is refused was not read, and says nothing.
func (c *Client) readNothing(ctx context.Context, e *endpoint) error {
	return c.call(ctx, e, "reading one key", func(ctx context.Context) error {
		_, err := e.kv.Range(ctx, &pb.RangeRequest{Key: []byte{0}, KeysOnly: true, Serializable: true})
		return err
	})
}

// dialEndpoint reports whether anything listens at the address.
func dialEndpoint(ctx context.Context, e *endpoint) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, e.at.network, e.at.addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
