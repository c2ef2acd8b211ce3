package store

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// HashKV is a member's hash of its key-value history. Two hashes can be
// compared when HashRevision and CompactRevision are equal.
type HashKV struct {
	Hash            uint32
	HashRevision    int64 // the revision that the hash goes up to
	CompactRevision int64
	Revision        int64 // of the member when it answered
}

// HashKV asks the member for its hash at a revision; 0 is its newest. The
// member is frozen while it computes (about a second for 1.4 GB): ask a
// follower, and rarely. With authentication on it needs the root role. Only
// ctx bounds it.
func (c *Client) HashKV(ctx context.Context, member MemberStatus, revision int64) (HashKV, error) {
	e, err := c.known(member.Endpoint)
	if err != nil {
		return HashKV{}, err
	}
	var resp *pb.HashKVResponse
	err = c.call(ctx, e, "asking for HashKV", func(ctx context.Context) (err error) {
		resp, err = e.maintenance.HashKV(ctx, &pb.HashKVRequest{Revision: revision})
		return err
	})
	if err != nil {
		return HashKV{}, err
	}
	if err := sameMember(e, member, resp.Header.GetMemberId(), resp.Header.GetClusterId()); err != nil {
		return HashKV{}, err
	}
	out := HashKV{Hash: resp.Hash, HashRevision: resp.HashRevision, CompactRevision: resp.CompactRevision, Revision: resp.Header.GetRevision()}
	if out.HashRevision == 0 { // servers before 3.6 do not say
		out.HashRevision = revision
		if revision == 0 {
			out.HashRevision = out.Revision
		}
	}
	return out, nil
}

// CountKeys counts the keys that live at a revision (0: now), from the
// member's own index, without a quorum. With authentication on the user needs
// the right to read all keys. Only ctx bounds it.
func (c *Client) CountKeys(ctx context.Context, member MemberStatus, revision int64) (int64, error) {
	e, err := c.known(member.Endpoint)
	if err != nil {
		return 0, err
	}
	all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: revision, CountOnly: true, Serializable: true}
	var resp *pb.RangeResponse
	err = c.call(ctx, e, "counting the keys", func(ctx context.Context) (err error) {
		resp, err = e.kv.Range(ctx, all)
		return err
	})
	if err != nil {
		return 0, err
	}
	if err := sameMember(e, member, resp.Header.GetMemberId(), resp.Header.GetClusterId()); err != nil {
		return 0, err
	}
	return resp.Count, nil
}
