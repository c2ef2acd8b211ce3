package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/coreos/go-semver/semver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// decoded is an entry with what it asks for: of operation, request and change one, or
// none when there is nothing to do to the database.
type decoded struct {
	entry     raftlog.Entry
	kind      string
	operation operation
	named     bool // it says which user asked for the operation
	request   *pb.InternalRaftRequest
	change    *raftpb.ConfChange
	err       error // why it cannot be applied
}

// decode never fails: what is wrong is reported when the entry is applied, after all
// that come before it.
func decode(e raftlog.Entry) *decoded {
	d := &decoded{entry: e}
	d.decode()
	return d
}

// maxReused bounds what is kept of a transaction for the next one, in operations and comparisons.
const maxReused = 32

// decode reads the entry that is in d. Of what d was before it takes the memory, where that is little.
func (d *decoded) decode() {
	t := d.operation.txn
	if t != nil {
		if cap(t.compare)+cap(t.success)+cap(t.failure) > maxReused {
			*t = transaction{}
		}
		t.compare, t.success, t.failure = t.compare[:0], t.success[:0], t.failure[:0]
	}
	*d = decoded{entry: d.entry, operation: operation{txn: t}}
	switch d.entry.Type {
	case raftpb.EntryNormal:
		if len(d.entry.Data) == 0 {
			d.kind = KindNoop
		} else {
			d.decodeRequest()
		}
	case raftpb.EntryConfChange:
		d.decodeChange()
	default:
		d.kind, d.err = Kind(d.entry)
	}
}

func (d *decoded) decodeRequest() {
	if d.parseOperation() {
		d.kind = operationKinds[d.operation.kind]
		return
	}
	d.operation.kind = noOperation
	o, err := lookAt(d.entry.Data)
	if err != nil {
		d.kind, d.err = KindUnknown, err
		return
	}
	if o.v2 != nil {
		r, err := parseV2(o.v2)
		if err != nil {
			d.kind, d.err = KindUnknown, err
			return
		}
		d.kind = r.kind()
		d.request, d.err = r.request()
		return
	}
	if d.kind = requestKinds[o.request]; d.kind == "" {
		d.kind, d.err = KindUnknown, newer("requests with number %d", o.request)
		return
	}
	d.unmarshal()
}

// unmarshal reads a v3 request with protobuf.
func (d *decoded) unmarshal() {
	r := &pb.InternalRaftRequest{}
	if err := proto.Unmarshal(d.entry.Data, r); err != nil {
		d.err = malformed(err)
		return
	}
	if r.Header == nil && r.ID == 0 {
		d.err = errNoHeader
		return
	}
	if d.err = known(r); d.err == nil && !readsOnly(r) {
		d.request = r
	}
}

// byProtobuf is the request with what parseOperation leaves out.
func (d *decoded) byProtobuf() *pb.InternalRaftRequest {
	if d.operation.kind != noOperation && d.request == nil {
		if d.unmarshal(); d.err != nil {
			panic(d.err) // it was taken for a request
		}
	}
	return d.request
}

// readsOnly reports whether a request changes nothing, as members know it when
// nobody waits for the answer. Authenticate makes a token, which no database
// holds, and takes the time of a password hash.
func readsOnly(r *pb.InternalRaftRequest) bool {
	return r.Range != nil || r.AuthUserGet != nil || r.AuthRoleGet != nil || r.AuthStatus != nil ||
		r.AuthUserList != nil || r.AuthRoleList != nil || r.Authenticate != nil || r.DowngradeVersionTest != nil
}

func (d *decoded) decodeChange() {
	d.kind = KindConfChange
	c := &raftpb.ConfChange{}
	if err := proto.Unmarshal(d.entry.Data, c); err != nil {
		d.err = fmt.Errorf("its data is no membership change: %w", err)
		return
	}
	if _, ok := raftpb.ConfChangeType_name[int32(c.GetType())]; !ok {
		d.err = newer("membership changes of type %d", c.GetType())
		return
	}
	if len(c.ProtoReflect().GetUnknown()) != 0 {
		d.err = newer("some fields of this membership change")
		return
	}
	d.change = c
}

// moves reports whether the entry may move the revision.
func (d *decoded) moves() bool {
	r := d.request
	return d.operation.kind != noOperation || r != nil && (r.Put != nil || r.DeleteRange != nil || r.Txn != nil || r.LeaseRevoke != nil)
}

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

// stranger reports whether the message itself, without those in it, has fields
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

// The kinds of entries that are no requests of etcd's v3 API. Those are called
// as etcd's InternalRaftRequest calls them: "put", "delete-range", "txn",
// "lease-grant", "auth-user-add" and so on; requests of the v2 API "v2-put",
// "v2-sync" and so on.
const (
	KindNoop       = "noop" // what a new leader begins its term with
	KindConfChange = "conf-change"
	KindUnknown    = "unknown"
)

// operationKinds are those of v3 that are known without a look at requestKinds.
var operationKinds = map[operationKind]string{putOperation: "put", deleteOperation: "delete-range", txnOperation: "txn"}

// Kind says what an entry is, for messages and for counting. It looks at the
// outside of the request only. The error says why it is KindUnknown.
func Kind(e raftlog.Entry) (string, error) {
	switch e.Type {
	case raftpb.EntryConfChange:
		return KindConfChange, nil
	case raftpb.EntryNormal:
	default:
		return KindUnknown, newer("entries of type %d", e.Type)
	}
	if len(e.Data) == 0 {
		return KindNoop, nil
	}
	o, err := lookAt(e.Data)
	if err != nil {
		return KindUnknown, err
	}
	if o.v2 != nil {
		r, err := parseV2(o.v2)
		if err != nil {
			return KindUnknown, err
		}
		return r.kind(), nil
	}
	if kind := requestKinds[o.request]; kind != "" {
		return kind, nil
	}
	return KindUnknown, newer("requests with number %d", o.request)
}

// requestKinds names the fields of InternalRaftRequest that are requests.
var requestKinds = func() map[protowire.Number]string {
	kinds := map[protowire.Number]string{}
	fields := (&pb.InternalRaftRequest{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Message() != nil && f.Name() != "header" {
			kinds[f.Number()] = strings.ReplaceAll(string(f.Name()), "_", "-")
		}
	}
	return kinds
}()

// Fields of InternalRaftRequest that are no requests, and of the v2 API's
// Request, which etcd up to 3.5 puts in their place.
const (
	fieldID     protowire.Number = 1
	fieldV2     protowire.Number = 2
	fieldHeader protowire.Number = 100
	lastV2Field protowire.Number = 17 // of Request
)

// outside is what the outermost fields of a request say.
type outside struct {
	request protowire.Number // which field is the request; 0 when it is a v2 one
	v2      []byte           // a v2 request's bytes; nil when it is none
}

// lookAt distinguishes the three forms that the data of an entry has: an
// InternalRaftRequest with a v3 request, one with a v2 request in field 2, and
// a bare v2 Request.
//
// The bare one cannot be recognized by whether it parses as InternalRaftRequest: some
// do, with an empty put among them. But it always has numbers (such as field 5)
// where InternalRaftRequest has messages only.
func lookAt(data []byte) (outside, error) {
	var o outside
	var inner []byte
	bare := false
	for rest := data; len(rest) > 0; {
		f, n := boltfile.ConsumeField(rest)
		if n < 0 {
			return o, malformed(protowire.ParseError(n))
		}
		rest = rest[n:]
		switch field := f.Number; {
		case field == fieldID, field == fieldHeader:
		case field == fieldV2:
			inner = append([]byte{}, f.Bytes...) // not nil
		case field <= lastV2Field && f.Kind == protowire.VarintType:
			bare = true
		case o.request != 0 && o.request != field && !bare:
			// A bare v2 request has several; its numbers may still come.
			o.request = -1
		case o.request == 0:
			o.request = field
		}
	}
	switch {
	case bare && inner != nil:
		return outside{v2: data}, nil
	case inner != nil && o.request == 0:
		return outside{v2: inner}, nil
	case o.request == -1 || inner != nil:
		return o, newer("entries with more than one request")
	case o.request == 0 && bare:
		return o, newer("requests that are plain numbers")
	case o.request == 0:
		return o, newer("entries without a request")
	}
	return o, nil
}

func malformed(err error) error {
	return fmt.Errorf("its data is no request: %w", err)
}

// newer says what is not known.
func newer(format string, args ...any) error {
	return fmt.Errorf("%s are not known: %w", fmt.Sprintf(format, args...), ErrNewer)
}

var errNoHeader = errors.New("its data is no request: it has no header")

// v2Request is what matters of a request of the v2 API, which etcd 3.5
// uses for members' attributes and the cluster's version.
type v2Request struct {
	method, path, value string
	// conditional requests go to the v2 store only.
	conditional bool
}

// The fields of the v2 API's Request.
const (
	v2Method    protowire.Number = 2
	v2Path      protowire.Number = 3
	v2Value     protowire.Number = 4
	v2PrevValue protowire.Number = 6
	v2PrevIndex protowire.Number = 7
	v2PrevExist protowire.Number = 8
)

func parseV2(data []byte) (v2Request, error) {
	var r v2Request
	for rest := data; len(rest) > 0; {
		f, n := boltfile.ConsumeField(rest)
		if n < 0 {
			return r, malformed(protowire.ParseError(n))
		}
		rest = rest[n:]
		switch f.Number {
		case v2Method:
			r.method = string(f.Bytes)
		case v2Path:
			r.path = string(f.Bytes)
		case v2Value:
			r.value = string(f.Bytes)
		case v2PrevValue:
			r.conditional = r.conditional || len(f.Bytes) > 0
		case v2PrevIndex:
			r.conditional = r.conditional || f.Varint > 0
		case v2PrevExist: // set or not is what matters
			r.conditional = true
		default: // concerns the v2 store only
		}
	}
	switch r.method {
	case "GET", "QGET", "HEAD", "PUT", "POST", "DELETE", "SYNC":
		return r, nil
	}
	return r, newer("v2 requests with method %q", r.method)
}

func (r v2Request) kind() string { return "v2-" + strings.ToLower(r.method) }

var v2MemberAttributes = regexp.MustCompile(`/0/members/[[:xdigit:]]{1,16}/attributes`)

const v2ClusterVersion = "/0/version"

// request is what the v2 request does to the database, as a v3 request; nil
// when it only concerns the v2 store.
func (r v2Request) request() (*pb.InternalRaftRequest, error) {
	if r.method != "PUT" || r.conditional {
		return nil, nil
	}
	switch {
	case v2MemberAttributes.MatchString(r.path):
		id, err := types.IDFromString(path.Base(path.Dir(r.path)))
		if err != nil {
			return nil, fmt.Errorf("the member of %s: %w", r.path, err)
		}
		var a membership.Attributes
		if err := json.Unmarshal([]byte(r.value), &a); err != nil {
			return nil, fmt.Errorf("the value of %s: %w", r.path, err)
		}
		set := &membershippb.ClusterMemberAttrSetRequest{
			Member_ID:        uint64(id),
			MemberAttributes: &membershippb.Attributes{Name: a.Name, ClientUrls: a.ClientURLs},
		}
		return &pb.InternalRaftRequest{Header: &pb.RequestHeader{}, ClusterMemberAttrSet: set}, nil
	case r.path == v2ClusterVersion:
		if _, err := semver.NewVersion(r.value); err != nil {
			return nil, fmt.Errorf("the value of %s: %w", r.path, err)
		}
		set := &membershippb.ClusterVersionSetRequest{Ver: r.value}
		return &pb.InternalRaftRequest{Header: &pb.RequestHeader{}, ClusterVersionSet: set}, nil
	}
	return nil, nil
}
