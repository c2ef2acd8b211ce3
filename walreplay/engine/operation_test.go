package engine

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// Promise 2 holds for what protobuf does not read, too: what parseOperation takes
// is what protobuf finds, with nothing beside it.
func TestPromise2Operations(t *testing.T) {
	marshal := func(r *pb.InternalRaftRequest) []byte {
		b, err := proto.Marshal(r)
		require.NoError(t, err)
		return b
	}
	with := func(change func(*pb.InternalRaftRequest)) []byte {
		r := &pb.InternalRaftRequest{
			Header: &pb.RequestHeader{ID: 7, AuthRevision: 3},
			Put:    &pb.PutRequest{Key: []byte("key"), Value: []byte("value"), Lease: -5},
		}
		change(r)
		return marshal(r)
	}
	txn := func(of *pb.TxnRequest) []byte {
		return with(func(r *pb.InternalRaftRequest) { r.Put, r.Txn = nil, of })
	}
	compare := func(c *pb.Compare) []byte { return txn(&pb.TxnRequest{Compare: []*pb.Compare{c}}) }
	deep := func(n int) []byte {
		of := &pb.TxnRequest{}
		for i := range n {
			if of = txnOf(txnOp(of)); i%2 > 0 {
				of.Success, of.Failure = nil, of.Success
			}
		}
		return txn(of)
	}
	same := with(func(*pb.InternalRaftRequest) {})
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	twice := func(field protowire.Number, inner []byte) []byte { // in a transaction's operation
		b := protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), inner)
		b = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), append(b, b...))
		b = protowire.AppendBytes(protowire.AppendTag(nil, fieldTxn, protowire.BytesType), b)
		return append(b, marshal(&pb.InternalRaftRequest{ID: 3})...)
	}
	comparedTwice := protowire.AppendVarint(protowire.AppendTag(nil, 6, protowire.VarintType), 4)
	comparedTwice = protowire.AppendVarint(protowire.AppendTag(comparedTwice, 4, protowire.VarintType), 3)
	comparedTwice = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), comparedTwice)
	comparedTwice = protowire.AppendBytes(protowire.AppendTag(nil, fieldTxn, protowire.BytesType), comparedTwice)
	comparedTwice = append(comparedTwice, marshal(&pb.InternalRaftRequest{ID: 3})...)
	for name, c := range map[string]struct {
		data  []byte
		taken bool
	}{
		"plain":          {same, true},
		"no lease":       {with(func(r *pb.InternalRaftRequest) { r.Put.Lease = 0 }), true},
		"no value":       {with(func(r *pb.InternalRaftRequest) { r.Put.Value = nil }), true},
		"an ID only":     {with(func(r *pb.InternalRaftRequest) { r.Header, r.ID = nil, 4 }), true},
		"nothing in it":  {with(func(r *pb.InternalRaftRequest) { r.Put = &pb.PutRequest{} }), true},
		"no header":      {with(func(r *pb.InternalRaftRequest) { r.Header = nil }), false},
		"a user":         {with(func(r *pb.InternalRaftRequest) { r.Header.Username = "u" }), true},
		"no user's name": {bytes.Replace(with(func(r *pb.InternalRaftRequest) { r.Header.Username = "uvw" }), []byte("uvw"), []byte("u\xffw"), 1), false},
		"previous key":   {with(func(r *pb.InternalRaftRequest) { r.Put.PrevKv = true }), true},
		"ignored value":  {with(func(r *pb.InternalRaftRequest) { r.Put.IgnoreValue = true }), true},
		"ignored lease":  {with(func(r *pb.InternalRaftRequest) { r.Put.IgnoreLease = true }), true},
		"a deletion": {with(func(r *pb.InternalRaftRequest) {
			r.Put, r.DeleteRange = nil, &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte("b"), PrevKv: true}
		}), true},
		"another kind":      {marshal(&pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 7}, Range: &pb.RangeRequest{}}), false},
		"two requests":      {with(func(r *pb.InternalRaftRequest) { r.Range = &pb.RangeRequest{} }), false},
		"two operations":    {with(func(r *pb.InternalRaftRequest) { r.DeleteRange = &pb.DeleteRangeRequest{} }), false},
		"two puts":          {bytes.Repeat(same, 2), false},
		"unknown inside":    {with(func(r *pb.InternalRaftRequest) { r.Put.ProtoReflect().SetUnknown(unknown) }), false},
		"unknown in header": {with(func(r *pb.InternalRaftRequest) { r.Header.ProtoReflect().SetUnknown(unknown) }), false},
		"unknown":           {with(func(r *pb.InternalRaftRequest) { r.ProtoReflect().SetUnknown(unknown) }), false},
		"cut off":           {same[:len(same)-1], false},
		"empty":             {nil, false},
		"a txn of nothing":  {txn(&pb.TxnRequest{}), true},
		"a txn": {txn(&pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("k"), RangeEnd: []byte("l"), Result: pb.Compare_NOT_EQUAL, Target: pb.Compare_LEASE, TargetUnion: &pb.Compare_Lease{Lease: -1}}, {Key: []byte("m"), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("v")}}},
			Success: []*pb.RequestOp{putOp(&pb.PutRequest{Key: []byte("k"), Value: []byte("v")}), deleteOp("a", "b")},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k"), Revision: 5, Limit: 3, SortOrder: 7, MaxCreateRevision: 9}}}, {}, txnOp(txnOf(deleteOp("c", "")))},
		}), true},
		"a deep txn":            {deep(maxTxnDepth - 1), true},
		"one too deep":          {deep(maxTxnDepth), false},
		"another target's":      {compare(&pb.Compare{Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_ModRevision{ModRevision: 4}}), true},
		"a value's number":      {compare(&pb.Compare{Target: pb.Compare_MOD, TargetUnion: &pb.Compare_Value{Value: []byte("4")}}), true},
		"compared with two":     {comparedTwice, true},
		"unknown result":        {compare(&pb.Compare{Result: 4}), false},
		"negative result":       {compare(&pb.Compare{Result: -1}), false},
		"unknown target":        {compare(&pb.Compare{Target: 5}), false},
		"unknown in comparison": {compare(func() *pb.Compare { c := &pb.Compare{}; c.ProtoReflect().SetUnknown(unknown); return c }()), false},
		"unknown in operation":  {txn(txnOf(func() *pb.RequestOp { o := &pb.RequestOp{}; o.ProtoReflect().SetUnknown(unknown); return o }())), false},
		"unknown in range": {txn(txnOf(func() *pb.RequestOp {
			q := &pb.RangeRequest{}
			q.ProtoReflect().SetUnknown(unknown)
			return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: q}}
		}())), false},
		"two puts in one": {twice(2, []byte{0x0a, 1, 'k'}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if taken := compareOperation(t, c.data); taken != c.taken {
				t.Errorf("it was taken: %v", taken)
			}
		})
	}
	kinds := map[operationKind]int{}
	d := &decoded{} // whose memory is used again
	for _, e := range generate(t, 5, 3000) {
		compareOperation(t, e.Data)
		d.entry = e
		d.decode()
		if again := decode(e); d.operation.kind != again.operation.kind || !proto.Equal(d.operation.protobuf(), again.operation.protobuf()) {
			t.Errorf("read again: %v, was %v", d.operation.protobuf(), again.operation.protobuf())
		}
		kinds[d.operation.kind]++
	}
	for _, kind := range []operationKind{putOperation, deleteOperation, txnOperation} {
		if kinds[kind] == 0 {
			t.Errorf("no entry is a %s", operationKinds[kind])
		}
	}
}

// Promise 2, field by field: whatever number and type a field in any of the messages has, it is not
// taken where protobuf does not know it.
func TestPromise2EveryField(t *testing.T) {
	within := func(inner []byte, path ...protowire.Number) []byte { // from the outside
		for _, number := range slices.Backward(path) {
			inner = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), inner)
		}
		return inner
	}
	id := protowire.AppendVarint(protowire.AppendTag(nil, fieldID, protowire.VarintType), 3)
	put := within([]byte("k"), fieldPut, 1)
	taken := 0
	for number := range protowire.Number(130) {
		for kind, value := range map[protowire.Type][]byte{protowire.VarintType: {1}, protowire.BytesType: {1, 'v'}, protowire.Fixed32Type: make([]byte, 4), protowire.Fixed64Type: make([]byte, 8)} {
			if number == 0 {
				continue
			}
			field := append(protowire.AppendTag(nil, number, kind), value...)
			for _, data := range [][]byte{
				append(field, put...), append(within(field, fieldHeader), put...),
				within(field, fieldPut), within(field, fieldDelete), within(field, fieldTxn),
				within(field, fieldTxn, 1), within(field, fieldTxn, 2), within(field, fieldTxn, 3),
				within(field, fieldTxn, 2, 1), within(field, fieldTxn, 2, 2), within(field, fieldTxn, 3, 3), within(field, fieldTxn, 3, 4),
			} {
				if compareOperation(t, append(data, id...)) {
					taken++
				}
			}
		}
	}
	if taken < 40 {
		t.Errorf("only %d messages were taken", taken)
	}
}

// protobuf is the operation as protobuf has it.
func (o *operation) protobuf() *pb.RequestOp {
	switch o.kind {
	case rangeOperation:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Revision: o.revision}}}
	case putOperation:
		return putOp(&pb.PutRequest{Key: o.key, Value: o.put.value, Lease: o.put.lease, IgnoreValue: o.put.ignoreValue, IgnoreLease: o.put.ignoreLease})
	case deleteOperation:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: o.key, RangeEnd: o.end}}}
	case txnOperation:
		t := &pb.TxnRequest{}
		for _, c := range o.txn.compare {
			to := &pb.Compare{Key: c.key, RangeEnd: c.end, Result: c.result, Target: c.target}
			switch c.target {
			case pb.Compare_VERSION:
				to.TargetUnion = &pb.Compare_Version{Version: c.number}
			case pb.Compare_CREATE:
				to.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: c.number}
			case pb.Compare_MOD:
				to.TargetUnion = &pb.Compare_ModRevision{ModRevision: c.number}
			case pb.Compare_VALUE:
				to.TargetUnion = &pb.Compare_Value{Value: c.value}
			case pb.Compare_LEASE:
				to.TargetUnion = &pb.Compare_Lease{Lease: c.number}
			}
			t.Compare = append(t.Compare, to)
		}
		for i := range o.txn.success {
			t.Success = append(t.Success, o.txn.success[i].protobuf())
		}
		for i := range o.txn.failure {
			t.Failure = append(t.Failure, o.txn.failure[i].protobuf())
		}
		return txnOp(t)
	case noOperation:
	}
	return &pb.RequestOp{}
}

// leaveOut takes from an operation what does not matter to a replay.
func leaveOut(o *pb.RequestOp) *pb.RequestOp {
	switch q := o.Request.(type) {
	case *pb.RequestOp_RequestRange:
		q.RequestRange = &pb.RangeRequest{Revision: q.RequestRange.Revision}
	case *pb.RequestOp_RequestPut:
		q.RequestPut.PrevKv = false
	case *pb.RequestOp_RequestDeleteRange:
		q.RequestDeleteRange.PrevKv = false
	case *pb.RequestOp_RequestTxn:
		for _, c := range q.RequestTxn.Compare {
			switch c.Target { // of another target's it reads the zero
			case pb.Compare_VERSION:
				c.TargetUnion = &pb.Compare_Version{Version: c.GetVersion()}
			case pb.Compare_CREATE:
				c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: c.GetCreateRevision()}
			case pb.Compare_MOD:
				c.TargetUnion = &pb.Compare_ModRevision{ModRevision: c.GetModRevision()}
			case pb.Compare_VALUE:
				c.TargetUnion = &pb.Compare_Value{Value: c.GetValue()}
			case pb.Compare_LEASE:
				c.TargetUnion = &pb.Compare_Lease{Lease: c.GetLease()}
			}
		}
		for _, o := range slices.Concat(q.RequestTxn.Success, q.RequestTxn.Failure) {
			leaveOut(o)
		}
	}
	return o
}

// compareOperation reports whether data is taken for an operation, and fails when protobuf reads
// another one.
func compareOperation(t *testing.T, data []byte) bool {
	t.Helper()
	d := &decoded{entry: raftlog.Entry{Data: data}}
	if !d.parseOperation() {
		return false
	}
	r := &pb.InternalRaftRequest{}
	require.NoError(t, proto.Unmarshal(data, r), "%x is taken for an operation", data)
	if r.Header == nil && r.ID == 0 || known(r) != nil {
		t.Errorf("%x is taken for an operation", data)
	}
	read := &pb.RequestOp{}
	switch {
	case r.Put != nil:
		read = putOp(r.Put)
	case r.DeleteRange != nil:
		read = &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r.DeleteRange}}
	case r.Txn != nil:
		read = txnOp(r.Txn)
	}
	if got := d.operation.protobuf(); !proto.Equal(leaveOut(read), got) || d.named != (r.Header.GetUsername() != "") {
		t.Errorf("%x is read as %v, protobuf reads %v", data, got, read)
	}
	r.Header, r.ID, r.Put, r.DeleteRange, r.Txn = nil, 0, nil, nil, nil
	if !proto.Equal(r, &pb.InternalRaftRequest{}) {
		t.Errorf("%x is taken for an operation alone, beside it there is %v", data, r)
	}
	return true
}

func FuzzParseOperation(f *testing.F) {
	for _, e := range generate(f, 3, 200) {
		f.Add(e.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { compareOperation(t, data) })
}
