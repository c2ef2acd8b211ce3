package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coreos/go-semver/semver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// request applies a request as a member does for which nobody waits: what reads
// in a transaction is not read.
func (r *Engine) request(d *decoded) error {
	d.byProtobuf()
	if !r.permit(d.request) {
		return nil // refused, on the member too
	}
	if t := d.request.Txn; t != nil && r.rules.nestedUncounted && r.full() && !r.rules.takesSpace(t) {
		// The applier would count what the member did not.
		if apply.CheckTxnAuth(r.auth, user(d.request), r.lessor, t) == nil {
			_, _, _ = txn.Txn(context.TODO(), r.logger, t, true, r.kv, r.lessor, true) // refused or not
		}
		return nil
	}
	result := r.applier.Apply(&apply.InternalRaftRequestWrapper{
		InternalRaftRequest: d.request, SkipRangeExecution: d.request.Txn != nil,
	}, membership.ApplyBoth)
	if d.request.Compaction != nil {
		// A later entry could otherwise commit a compaction that is half done.
		if err := r.wait(result.Physc); err != nil {
			return err
		}
		r.lookAtRevisions()
	}
	return nil
}

// loadVoters takes raft's view of the members from the database, or where it has
// none (no membership change yet) from the members that it lists.
func (r *Engine) loadVoters() error {
	tx := r.backend.ReadTx()
	tx.RLock()
	state := schema.UnsafeConfStateFromBackend(r.logger, tx)
	tx.RUnlock()
	if state == nil {
		state = &raftpb.ConfState{}
		for _, m := range r.cluster.Members() {
			if m.IsLearner {
				state.Learners = append(state.Learners, uint64(m.ID))
			} else {
				state.Voters = append(state.Voters, uint64(m.ID))
			}
		}
	}
	// Neither number matters to who is a voter.
	r.voters = tracker.MakeProgressTracker(1, 0)
	config, progress, err := confchange.Restore(r.changer(), state)
	if err != nil {
		return fmt.Errorf("its confState: %w", err)
	}
	r.voters.Config, r.voters.Progress = config, progress
	return nil
}

func (r *Engine) changer() confchange.Changer {
	return confchange.Changer{Tracker: r.voters, LastIndex: r.applied + 1}
}

// changeMembers does what a member does with a membership change.
func (r *Engine) changeMembers(c *raftpb.ConfChange) error {
	if refused := r.cluster.ValidateConfigurationChange(c, membership.ApplyBoth); refused != nil {
		return nil //nolint:nilerr // the member refused it, too
	}
	config, progress, err := r.changer().Simple(c.AsV2().Changes...)
	if err != nil {
		return fmt.Errorf("raft refuses the change: %w", err)
	}
	r.voters.Config, r.voters.Progress = config, progress
	r.hooks.SetConfState(r.voters.ConfState())

	switch c.GetType() {
	case raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode:
		var added membership.ConfigChangeContext
		if err := member(c, &added, &added.ID); err != nil {
			return err
		}
		if added.IsPromote {
			r.cluster.PromoteMember(added.ID, membership.ApplyBoth)
		} else {
			r.cluster.AddMember(&added.Member, membership.ApplyBoth)
		}
	case raftpb.ConfChangeRemoveNode:
		r.cluster.RemoveMember(types.ID(c.GetNodeId()), membership.ApplyBoth)
	case raftpb.ConfChangeUpdateNode:
		var updated membership.Member
		if err := member(c, &updated, &updated.ID); err != nil {
			return err
		}
		r.cluster.UpdateRaftAttributes(updated.ID, updated.RaftAttributes, membership.ApplyBoth)
	}
	return nil
}

// member reads the member that a change is about, whose ID must be the change's.
func member(c *raftpb.ConfChange, into any, id *types.ID) error {
	if err := json.Unmarshal(c.Context, into); err != nil {
		return fmt.Errorf("the member in it: %w", err)
	}
	if *id != types.ID(c.GetNodeId()) {
		return fmt.Errorf("it names member %s and describes %s", types.ID(c.GetNodeId()), *id)
	}
	return nil
}

// rules are those by which a member's version permitted requests while
// authentication was on, or no space was left, where they differ from those of the
// applier. A request that one permits and the other refuses would shift all later
// revisions.
type rules struct {
	// Whoever revokes a lease must be permitted to write each of its keys by the
	// newest revision of users and roles. Later the root role is enough: so a
	// lease that expired just when a permission changed was kept for a while.
	revokeByKey bool
	// What a transaction inside of a transaction does is not looked at.
	nestedFree bool
	// A put in a transaction need not be permitted to read what it replaces, nor
	// to write the other keys of its lease.
	txnPutFree bool
	// What a transaction inside of a transaction puts takes no space: it is
	// applied while no space is left.
	nestedUncounted bool
}

// takesSpace reports whether a member without space refuses the transaction: for a put in it,
// executed or not.
func (r rules) takesSpace(t *pb.TxnRequest) bool {
	return slices.ContainsFunc(slices.Concat(t.Success, t.Failure), func(op *pb.RequestOp) bool {
		inner := op.GetRequestTxn()
		return op.GetRequestPut() != nil || inner != nil && !r.nestedUncounted && r.takesSpace(inner)
	})
}

// full reports whether no space is left, and nothing worse is wrong.
func (r *Engine) full() bool {
	return len(r.alarms.Get(pb.AlarmType_NOSPACE)) > 0 && len(r.alarms.Get(pb.AlarmType_CORRUPT)) == 0
}

// user is who made a request.
func user(q *pb.InternalRaftRequest) *auth.AuthInfo {
	return &auth.AuthInfo{Username: q.GetHeader().GetUsername(), Revision: q.GetHeader().GetAuthRevision()}
}

// rulesOf knows since which patch of each minor version the rules are those of
// the applier.
func rulesOf(version string) (rules, error) {
	if version == "" {
		return rules{}, nil
	}
	v, err := semver.NewVersion(version)
	if err != nil {
		return rules{}, fmt.Errorf("source version %q: %w; want one such as 3.5.21", version, err)
	}
	if v.Major != 3 {
		return rules{}, fmt.Errorf("source version %q: only etcd 3 is known", version)
	}
	if v.Minor < 5 {
		return rules{}, fmt.Errorf("source version %q: a log can be replayed from etcd 3.5 on; restore a full snapshot without its log", version)
	}
	before := func(patches ...int64) bool { // of 3.5, 3.6 and so on
		minor := int(v.Minor) - 5
		return minor < len(patches) && v.Patch < patches[minor]
	}
	return rules{revokeByKey: before(10), nestedFree: before(28, 9), txnPutFree: before(30, 11), nestedUncounted: before(33, 14, 1)}, nil
}

// permit decides by the member's rules where they are not the applier's. What
// they permit goes to the applier as root's request; what they refuse must not
// go there, and is false.
func (r *Engine) permit(q *pb.InternalRaftRequest) bool {
	if r.rules == (rules{}) || !r.auth.IsAuthEnabled() {
		return true
	}
	who := user(q)
	switch {
	case q.LeaseRevoke != nil && r.rules.revokeByKey:
		l := r.lessor.Lookup(lease.LeaseID(q.LeaseRevoke.ID))
		if l == nil {
			return true
		}
		for _, key := range l.Keys() {
			if r.auth.IsPutPermitted(who, []byte(key)) != nil {
				return false
			}
		}
	case q.Txn != nil && r.rules.txnPutFree:
		if !r.permitTxn(who, q.Txn) {
			return false
		}
		// The root user is there, with the root role, while authentication is on.
		q.Header = &pb.RequestHeader{Username: "root", AuthRevision: r.auth.Revision()}
	}
	return true
}

func (r *Engine) permitTxn(who *auth.AuthInfo, t *pb.TxnRequest) bool {
	for _, c := range t.Compare {
		if r.auth.IsRangePermitted(who, c.Key, c.RangeEnd) != nil {
			return false
		}
	}
	for _, ops := range [2][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			if !r.permitOp(who, op) {
				return false
			}
		}
	}
	return true
}

func (r *Engine) permitOp(who *auth.AuthInfo, op *pb.RequestOp) bool {
	switch o := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		return r.auth.IsRangePermitted(who, o.RequestRange.Key, o.RequestRange.RangeEnd) == nil
	case *pb.RequestOp_RequestPut:
		return r.auth.IsPutPermitted(who, o.RequestPut.Key) == nil
	case *pb.RequestOp_RequestDeleteRange:
		d := o.RequestDeleteRange
		if d.PrevKv && r.auth.IsRangePermitted(who, d.Key, d.RangeEnd) != nil {
			return false
		}
		return r.auth.IsDeleteRangePermitted(who, d.Key, d.RangeEnd) == nil
	case *pb.RequestOp_RequestTxn:
		return r.rules.nestedFree || r.permitTxn(who, o.RequestTxn)
	}
	return true
}
