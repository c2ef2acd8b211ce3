package engine

import (
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// The kinds of entries that are no requests of etcd's v3 API. Those are called
// as etcd's InternalRaftRequest calls them: "put", "delete-range", "txn",
// "lease-grant", "auth-user-add" and so on; requests of the v2 API "v2-put",
// "v2-sync" and so on.
const (
	KindNoop         = "noop" // what a new leader begins its term with
	KindConfChange   = "conf-change"
	KindConfChangeV2 = "conf-change-v2"
	KindUnknown      = "unknown"
)

// kindPut is the one of v3 that is told without a look at requestKinds.
const kindPut = "put"

// Kind tells what an entry is, for messages and for counting. It looks at the
// outside of the request only. The error says why it is KindUnknown.
func Kind(e raftlog.Entry) (string, error) {
	switch e.Type {
	case raftpb.EntryConfChange:
		return KindConfChange, nil
	case raftpb.EntryConfChangeV2:
		return KindConfChangeV2, nil
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
