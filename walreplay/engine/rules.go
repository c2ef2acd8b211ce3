package engine

import (
	"fmt"

	"github.com/coreos/go-semver/semver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/lease"
)

// rules are those by which a member's version permitted requests while
// authentication was on, where they differ from those of the applier. A request
// that one permits and the other refuses would shift all later revisions.
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
	since := func(in34, in35, in36 int64) bool {
		switch {
		case v.Minor < 4:
			return false
		case v.Minor == 4:
			return v.Patch >= in34
		case v.Minor == 5:
			return v.Patch >= in35
		case v.Minor == 6:
			return v.Patch >= in36
		}
		return true
	}
	return rules{revokeByKey: !since(27, 10, 0), nestedFree: !since(42, 28, 9), txnPutFree: !since(44, 30, 11)}, nil
}

// permit decides by the member's rules where they are not the applier's. What
// they permit goes to the applier as root's request; what they refuse must not
// go there, and is false.
func (r *replay) permit(q *pb.InternalRaftRequest) bool {
	if r.rules == (rules{}) || q.Header == nil || !r.auth.IsAuthEnabled() {
		return true
	}
	who := &auth.AuthInfo{Username: q.Header.Username, Revision: q.Header.AuthRevision}
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
		q.Header.Username, q.Header.AuthRevision = "root", r.auth.Revision()
	}
	return true
}

func (r *replay) permitTxn(who *auth.AuthInfo, t *pb.TxnRequest) bool {
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

func (r *replay) permitOp(who *auth.AuthInfo, op *pb.RequestOp) bool {
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
