package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// FitnessTimeout is how long a member may take to answer what takes a healthy
	// one a millisecond. One that takes longer has other things to do.
	FitnessTimeout = time.Second
	// SlowDisk is the mean time for a sync of the log, or a commit of the database,
	// from which a member's disk is slow: ten times what etcd asks of a disk for
	// the one, four times for the other. Reading a whole database from there would
	// take what is left of it, and the member its place in the cluster.
	SlowDisk = 100 * time.Millisecond
)

// Unfitness is why nothing large is read from a member now.
type Unfitness string

// What makes a member unfit.
const (
	Fit           Unfitness = ""
	NotAnswering  Unfitness = "not answering"
	Defragmenting Unfitness = "defragmenting"
	NotReading    Unfitness = "its database does not answer" // frozen, or defragmenting by an etcd that does not tell
	// CatchingUp goes by the applied index. Etcd 3.6 and 3.7 do not move that when
	// they load a leader's snapshot, only with the next entry: on a cluster where
	// nothing is written such a member counts as behind until then, and no barrier
	// is seen to be applied by it either.
	CatchingUp Unfitness = "catching up"
	DiskSlow   Unfitness = "slow disk"
)

// Fitness tells whether a member can be burdened with a large read now.
type Fitness struct {
	Reason Unfitness // Fit where it can
	// Unfit says why not, for people; empty where it is fit.
	Unfit string
	// Behind is how many entries it lacks of the most that any member has applied.
	Behind uint64
	// Disk is what its own metrics said of the time since they were last read.
	Disk DiskLatency
}

// Fit tells whether the member can be burdened.
func (f Fitness) Fit() bool { return f.Reason == Fit }

// Fitness asks a member, and all others how far they are, whether it is fit to
// be read from now. It takes FitnessTimeout at most, and as good as nothing where
// all are well. A member that does not answer is unfit, which is no error; the
// error is for the end of ctx, and for a member of another client. Of member the
// endpoint is enough: it is then about whoever answers there.
//
// A member is catching up when it lacks FarBehind entries of what another one has
// applied. Its disk is judged by its own metrics, where it serves them at its
// client URL: by the mean since this client last asked, so the first time nothing
// is known, nor on a cluster that writes nothing. With authentication on, a user
// who may not read keys does not see a defragmentation by etcd before 3.6, unless
// it serves metrics.
func (c *Client) Fitness(ctx context.Context, member MemberStatus) (Fitness, error) {
	e, err := c.known(member.Endpoint)
	if err != nil {
		return Fitness{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, FitnessTimeout)
	defer cancel()
	var (
		x   examined
		all []MemberStatus
		wg  sync.WaitGroup
	)
	wg.Go(func() { x.status = c.status(bounded, e) })
	wg.Go(func() { x.read = c.readNothing(bounded, e) })
	wg.Go(func() { x.metrics, x.served = c.diskMetrics(bounded, e) })
	wg.Go(func() { x.dial = dialEndpoint(bounded, e) })
	for _, other := range c.all() {
		if other != e {
			all = append(all, MemberStatus{Endpoint: other.name})
		}
	}
	for i, other := range all {
		wg.Go(func() {
			if o, err := c.known(other.Endpoint); err == nil {
				all[i] = c.status(bounded, o)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return Fitness{}, fmt.Errorf("%s: asking whether it is fit: %w", member, context.Cause(ctx))
	}
	if x.status.Err == nil && member.MemberID != 0 {
		x.status.Err = sameMember(e, member, x.status.MemberID, x.status.ClusterID)
	}
	for _, s := range all {
		if s.Err == nil && s.ClusterID == x.status.ClusterID {
			x.reached = max(x.reached, s.AppliedIndex)
		}
	}
	var before *diskCounters
	if x.served {
		before = e.disk.swap(x.metrics)
	}
	return x.judge(before), nil
}

// examined is what was found out about one member.
type examined struct {
	status  MemberStatus
	read    error // of its database
	dial    error // of its address
	metrics diskCounters
	served  bool   // whether there are metrics
	reached uint64 // the most that another member has applied
}

// judge names the first reason against the member, the plainest first.
func (x examined) judge(before *diskCounters) Fitness {
	var f Fitness
	if x.served && before != nil {
		f.Disk = x.metrics.since(*before)
	}
	reached := max(x.reached, x.status.RaftIndex)
	if x.status.Err == nil && x.status.AppliedIndex < reached {
		f.Behind = reached - x.status.AppliedIndex
	}
	hangs := errors.Is(x.read, ErrTimeout)
	silent := errors.Is(x.status.Err, ErrTimeout)
	switch {
	case x.served && x.metrics.defragmenting:
		f.Reason, f.Unfit = Defragmenting, "it is being defragmented"
	case x.dial == nil && silent:
		f.Reason, f.Unfit = NotReading, fmt.Sprintf("it takes connections and answers nothing within %s: it is frozen, overloaded or being defragmented", FitnessTimeout)
	case x.status.Err != nil:
		f.Reason, f.Unfit = NotAnswering, "it does not answer: "+x.status.Err.Error()
	case hangs:
		f.Reason, f.Unfit = NotReading, fmt.Sprintf("its database does not answer within %s: it is being defragmented, or its disk hangs", FitnessTimeout)
	case f.Behind >= FarBehind:
		f.Reason, f.Unfit = CatchingUp, fmt.Sprintf("it is catching up: it lacks %d entries of what the cluster has applied", f.Behind)
	case f.Disk.slow():
		f.Reason, f.Unfit = DiskSlow, fmt.Sprintf("its disk is slow: %s", f.Disk)
	}
	return f
}

// readNothing reads one key that cannot be there from the member's own database,
// without the quorum. What is refused was not read, and says nothing.
func (c *Client) readNothing(ctx context.Context, e *endpoint) error {
	return c.call(ctx, e, "reading one key", func(ctx context.Context) error {
		_, err := e.kv.Range(ctx, &pb.RangeRequest{Key: []byte{0}, KeysOnly: true, Serializable: true})
		return err
	})
}

// dialEndpoint tells whether anything listens at the address.
func dialEndpoint(ctx context.Context, e *endpoint) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, e.at.network, e.at.addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
