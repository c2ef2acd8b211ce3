package proof

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const (
	prefix      = "/requorum-proof-"
	trialTTL    = 30 // seconds
	tidyTimeout = 5 * time.Second
)

// trial is a write, and what became of it.
type trial struct {
	*proving
	key      []byte
	lease    int64
	revision int64 // of the put
}

// checkWrite writes a key under a lease, reads it from every member, and takes
// both away again.
func (p *proving) checkWrite(ctx context.Context) {
	const about = "that it can be written to"
	if p.denied != "" {
		p.unproved("%s: %s", about, p.denied)
		return
	}
	t := &trial{proving: p, key: []byte(prefix + rand.Text() + "/written")}
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
		p.proved("a key was written under a lease, read from %s, and deleted; the lease was revoked", p.names(false))
		if len(p.serving(true)) > 0 {
			p.proved("the write reached %s", p.names(true))
		}
	case refused(err), ctx.Err() != nil:
		p.unproved("%s: %v", about, err)
	default:
		p.wrong("a trial write failed: %v", err)
	}
}

// kv asks a member about keys.
func (t *trial) kv(ctx context.Context, m *member, what string, do func(context.Context, pb.KVClient) error) error {
	return t.client.Ask(ctx, m.status, what, func(ctx context.Context, conn grpc.ClientConnInterface) error { return do(ctx, pb.NewKVClient(conn)) })
}

func (t *trial) leases(ctx context.Context, what string, do func(context.Context, pb.LeaseClient) error) error {
	return t.client.Ask(ctx, t.serving(false)[0].status, what, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		return do(ctx, pb.NewLeaseClient(conn))
	})
}

func (t *trial) write(ctx context.Context) error {
	if t.lease == 0 {
		err := t.leases(ctx, "granting a lease", func(ctx context.Context, c pb.LeaseClient) error {
			l, err := c.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: trialTTL})
			t.lease = l.GetID()
			return err
		})
		if err != nil {
			return err
		}
	}
	return t.kv(ctx, t.serving(false)[0], "writing a key", func(ctx context.Context, c pb.KVClient) error {
		put, err := c.Put(ctx, &pb.PutRequest{Key: t.key, Value: t.key, Lease: t.lease})
		t.revision = put.GetHeader().GetRevision()
		if err == nil && t.revision <= t.RevisionAtLeast {
			err = fmt.Errorf("the write has revision %d, and %d was rebuilt", t.revision, t.RevisionAtLeast)
		}
		return err
	})
}

// read reads through a quorum from every voter, and from learners what they hold.
func (t *trial) read(ctx context.Context) error {
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
func (t *trial) remove(ctx context.Context) error {
	if t.lease == 0 {
		return nil
	}
	var deleted error
	if t.revision > 0 {
		deleted = t.kv(ctx, t.serving(false)[0], "deleting a key", func(ctx context.Context, c pb.KVClient) error {
			got, err := c.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: t.key})
			if err == nil && got.Deleted != 1 {
				err = fmt.Errorf("%d keys were deleted, and 1 was written", got.Deleted)
			}
			return err
		})
	}
	revoked := t.leases(ctx, "revoking a lease", func(ctx context.Context, c pb.LeaseClient) error {
		_, err := c.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: t.lease})
		return err
	})
	return errors.Join(deleted, revoked)
}
