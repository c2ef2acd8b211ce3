package serve

import (
	"crypto/rand"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify/report"
)

// checkMembers compares the membership with the plan.
func (p *proving) checkMembers(ctx context.Context) {
	var survey client.Survey
	err := p.insist(ctx, func(ctx context.Context) (err error) {
		survey, err = p.client.Survey(ctx)
		if err == nil {
			err = survey.MembershipErr
		}
		return err
	})
	if err != nil {
		p.unproved("the membership: %s", p.because(err))
		return
	}
	before := len(p.report.Wrong)
	for _, want := range p.Members {
		i := slices.IndexFunc(survey.Membership, func(m *pb.Member) bool { return m.ID == uint64(want.ID) })
		if i < 0 {
			p.wrong("member %s (%s) is not in the membership", want.Name, want.ID)
			continue
		}
		got := survey.Membership[i]
		switch {
		// One that has never started has no name yet.
		case got.Name != want.Name && got.Name != "":
			p.wrong("member %s is called %s, and was planned as %s", want.ID, got.Name, want.Name)
		case got.IsLearner != want.Learner:
			p.wrong("member %s is a learner: %t, and was planned as one: %t", want.Name, got.IsLearner, want.Learner)
		case !sameURLs(got.PeerURLs, want.PeerURLs):
			p.wrong("member %s has the peer URLs %s, and was planned with %s", want.Name, strings.Join(got.PeerURLs, ","), strings.Join(want.PeerURLs, ","))
		}
	}
	for _, m := range survey.Membership {
		if !slices.ContainsFunc(p.members, func(want *member) bool { return m.ID == uint64(want.ID) }) {
			p.wrong("member %s (%s) is in the membership, and was not planned", m.Name, snapshot.ID(m.ID))
		}
	}
	if len(p.report.Wrong) == before {
		p.proved("the %s planned, and cluster %s", report.Counted(len(p.Members), "member is as it was", "members are as they were"), p.ClusterID)
	}
}

func sameURLs(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

const (
	prefix       = "/requorum-proof-"
	testWriteTTL = 30 // seconds
	// Etcd takes seven seconds to say that an election has lost a request.
	tidyTimeout = 15 * time.Second
)

// testWrite is a write, and what became of it.
type testWrite struct {
	*proving
	key      []byte
	lease    int64
	revision int64 // of the put
}

// checkWrite creates a key under a lease by a compare-and-swap, makes sure that a
// second one fails, reads the key from every member, and takes both away again.
func (p *proving) checkWrite(ctx context.Context) {
	unproved := func(why string) {
		p.unproved("that it can be written to: %s", why)
		p.unproved("that its revision is above %d, which was rebuilt: %s", p.RevisionAtLeast, why) // the write would show it
	}
	if p.denied != "" {
		unproved(p.denied)
		return
	}
	t := &testWrite{proving: p}
	err := p.insist(ctx, t.write)
	if err == nil {
		err = p.insist(ctx, t.read)
	}
	tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if errTidy := t.remove(tidy); errTidy != nil && err == nil {
		err = errTidy
	}
	switch {
	case err == nil:
		p.proved("a key was written under a lease by a compare-and-swap, which failed the second time, read from %s, and deleted; the lease was revoked", p.names(false))
		if len(p.serving(true)) > 0 {
			p.proved("the write reached %s", p.names(true))
		}
	case refused(err), ctx.Err() != nil:
		unproved(err.Error())
	default:
		p.failed = err
		p.wrong("a trial write failed: %v%s", err, alarmHint(err))
	}
}

// alarmHint names the alarm because of which etcd refuses writes, if it is that.
func alarmHint(err error) string {
	const list = "; the alarm %s is raised: 'etcdctl alarm list' names the member; %s"
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Sprintf(list, "NOSPACE", "raise its --quota-backend-bytes, or compact and defragment, then run 'etcdctl alarm disarm'")
	case errors.Is(err, rpctypes.ErrCorrupt):
		return fmt.Sprintf(list, "CORRUPT", "remove that member and add it again, empty")
	}
	return ""
}

// kv asks a member about keys.
func (t *testWrite) kv(ctx context.Context, m *member, what string, do func(context.Context, pb.KVClient) error) error {
	return t.client.Ask(ctx, m.status, what, func(ctx context.Context, conn grpc.ClientConnInterface) error { return do(ctx, pb.NewKVClient(conn)) })
}

func (t *testWrite) leases(ctx context.Context, what string, do func(context.Context, pb.LeaseClient) error) error {
	return t.client.Ask(ctx, t.serving(false)[0].status, what, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		return do(ctx, pb.NewLeaseClient(conn))
	})
}

func (t *testWrite) write(ctx context.Context) error {
	if t.lease == 0 {
		err := t.leases(ctx, "granting a lease", func(ctx context.Context, c pb.LeaseClient) error {
			l, err := c.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: testWriteTTL})
			t.lease = l.GetID()
			return err
		})
		if err != nil {
			return err
		}
	}
	// Another one each time: an attempt without an answer may have written.
	t.key, t.revision = []byte(prefix+rand.Text()+"/written"), 0
	return t.kv(ctx, t.serving(false)[0], "writing a key", func(ctx context.Context, c pb.KVClient) error {
		create := &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: t.key, Target: pb.Compare_CREATE, TargetUnion: &pb.Compare_CreateRevision{}}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: t.key, Value: t.key, Lease: t.lease}}}},
		}
		first, err := c.Txn(ctx, create)
		if err != nil {
			return err
		}
		t.revision = first.Header.Revision
		again, err := c.Txn(ctx, create)
		switch {
		case err != nil:
			return err
		case !first.Succeeded:
			return errors.New("a compare-and-swap that had to succeed failed")
		case again.Succeeded:
			return errors.New("a compare-and-swap that had to fail succeeded")
		case t.revision <= t.RevisionAtLeast:
			return fmt.Errorf("the write has revision %d, and %d was rebuilt", t.revision, t.RevisionAtLeast)
		}
		return nil
	})
}

// read reads through a quorum from every voter, and from learners what they hold.
func (t *testWrite) read(ctx context.Context) error {
	for _, m := range t.members {
		if !m.serves {
			continue
		}
		err := t.kv(ctx, m, "reading what was just written", func(ctx context.Context, c pb.KVClient) error {
			got, err := c.Range(ctx, &pb.RangeRequest{Key: t.key, Serializable: m.Learner})
			switch {
			case err != nil:
				return err
			case len(got.Kvs) != 1 || got.Kvs[0].ModRevision != t.revision || got.Kvs[0].Lease != t.lease:
				return fmt.Errorf("it does not serve what was written at revision %d", t.revision)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("member %s: %w", m.Name, err)
		}
	}
	return nil
}

// remove takes the key and the lease away. The lease alone would take the key with
// it, half a minute later.
func (t *testWrite) remove(ctx context.Context) error {
	if t.lease == 0 {
		return nil
	}
	var deleted error
	if t.revision > 0 {
		lost := false // an attempt without an answer may have deleted it
		deleted = t.insist(ctx, func(ctx context.Context) error {
			return t.kv(ctx, t.serving(false)[0], "deleting a key", func(ctx context.Context, c pb.KVClient) error {
				got, err := c.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: t.key})
				switch {
				case err != nil:
					lost = true
				case got.Deleted != 1 && !lost:
					err = fmt.Errorf("%d keys were deleted, and 1 was written", got.Deleted)
				}
				return err
			})
		})
	}
	lost := false // as above
	revoked := t.insist(ctx, func(ctx context.Context) error {
		return t.leases(ctx, "revoking a lease", func(ctx context.Context, c pb.LeaseClient) error {
			_, err := c.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: t.lease})
			if lost && errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) {
				err = nil
			}
			lost = lost || err != nil
			return err
		})
	})
	return errors.Join(deleted, revoked)
}
