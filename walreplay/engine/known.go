package engine

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// known refuses a request with fields or values that this version's etcd does
// not know: it would apply the rest of it, and so something else than the member
// did. The kinds that come by the thousand are looked at without reflection.
func known(r *pb.InternalRaftRequest) error {
	if stranger(r) || r.Header != nil && stranger(r.Header) {
		return newer("some fields of this request")
	}
	var ok bool
	switch {
	case r.Put != nil:
		ok = !stranger(r.Put)
	case r.DeleteRange != nil:
		ok = !stranger(r.DeleteRange)
	case r.Txn != nil:
		ok = knownTxn(r.Txn)
	case r.LeaseGrant != nil:
		ok = !stranger(r.LeaseGrant)
	case r.LeaseRevoke != nil:
		ok = !stranger(r.LeaseRevoke)
	default:
		ok = knownMessage(r.ProtoReflect())
	}
	if !ok {
		return newer("some fields of this request")
	}
	return nil
}

// stranger tells whether the message itself, without those in it, has fields
// that are not known.
func stranger(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) != 0 }

func knownTxn(t *pb.TxnRequest) bool {
	if stranger(t) {
		return false
	}
	for _, c := range t.Compare {
		_, result := pb.Compare_CompareResult_name[int32(c.Result)]
		_, target := pb.Compare_CompareTarget_name[int32(c.Target)]
		if stranger(c) || !result || !target {
			return false
		}
	}
	for _, ops := range [2][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			if stranger(op) || !knownOp(op) {
				return false
			}
		}
	}
	return true
}

func knownOp(op *pb.RequestOp) bool {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return !stranger(r.RequestPut)
	case *pb.RequestOp_RequestRange:
		return !stranger(r.RequestRange)
	case *pb.RequestOp_RequestDeleteRange:
		return !stranger(r.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return knownTxn(r.RequestTxn)
	}
	return true // empty: etcd skips it
}

// knownMessage looks into all of a message.
func knownMessage(m protoreflect.Message) bool {
	ok := len(m.GetUnknown()) == 0
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Enum() != nil && f.IsList():
			for i := range v.List().Len() {
				ok = ok && knownValue(f, v.List().Get(i))
			}
		case f.Enum() != nil:
			ok = ok && knownValue(f, v)
		case f.Message() != nil && f.IsList():
			for i := range v.List().Len() {
				ok = ok && knownMessage(v.List().Get(i).Message())
			}
		case f.Message() != nil && !f.IsMap():
			ok = ok && knownMessage(v.Message())
		}
		return ok
	})
	return ok
}

func knownValue(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	return f.Enum().Values().ByNumber(v.Enum()) != nil
}
