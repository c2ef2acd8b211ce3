package engine

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/lease"
)

// request applies a request as a member does for which nobody waits: what reads
// in a transaction is not read. With etcd's own backend it is all etcd's way,
// so that the two can be held against each other.
func (r *replay) request(d *decoded) error {
	if r.direct != nil && !r.alarmed && !r.auth.IsAuthEnabled() && r.shortcut(d) {
		return nil
	}
	if d.plain {
		if d.unmarshal(); d.err != nil {
			return d.err
		}
	}
	if !r.permit(d.request) {
		return nil // refused, on the member too
	}
	result := r.applier.Apply(&apply.InternalRaftRequestWrapper{
		InternalRaftRequest: d.request, SkipRangeExecution: d.request.Txn != nil,
	}, membership.ApplyBoth)
	if d.request.Alarm != nil {
		r.lookAtAlarms()
	}
	if d.request.Compaction != nil {
		// A later entry could otherwise commit a compaction that is half done.
		if err := r.wait(result.Physc); err != nil {
			return err
		}
		r.lookAtRevisions()
	}
	return nil
}

func (r *replay) lookAtAlarms() { r.alarmed = len(r.alarms.Get(pb.AlarmType_NONE)) > 0 }

// shortcut applies what comes by the thousand, leaving out the layers of etcd's
// applier that do nothing to it: permissions while authentication is off, limits
// while no alarm is raised, and the tracing and counting of requests, which
// together take longer than the request.
func (r *replay) shortcut(d *decoded) bool {
	r.trace = r.quiet
	if d.plain {
		r.put(d.put)
		return true
	}
	switch q := d.request; {
	case q.Put != nil && !q.Put.IgnoreValue && !q.Put.IgnoreLease:
		r.put(put{key: q.Put.Key, value: q.Put.Value, lease: q.Put.Lease})
		return true
	case q.DeleteRange != nil && !q.DeleteRange.PrevKv:
		_, _, _ = txn.DeleteRange(r.traced, r.logger, r.kv, q.DeleteRange) // only reading fails
		return true
	case q.Txn != nil:
		// What it refuses it refuses before it writes anything.
		_, _, _ = txn.Txn(r.traced, r.logger, q.Txn, true, r.kv, r.lessor, true)
		return true
	}
	return false
}

func (r *replay) put(p put) {
	id := lease.LeaseID(p.lease)
	if id != lease.NoLease && r.lessor.Lookup(id) == nil {
		return // refused: there is no such lease
	}
	w := r.kv.Write(&r.trace)
	w.Put(p.key, p.value, id)
	w.End()
}

// quietTrace is a trace that records no steps and whose copies do not either:
// each step would ask for the time. etcd has no such trace but inside of this
// function.
func quietTrace() traceutil.Trace {
	var quiet traceutil.Trace
	_, t := traceutil.EnsureTrace(context.Background(), nil, "replay")
	t.StepWithFunction(func() { quiet = *t }, "")
	return quiet
}
