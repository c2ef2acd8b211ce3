package engine

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// decoded is an entry with what it asks for: of put, request and change one, or
// none when there is nothing to do to the database.
type decoded struct {
	entry   raftlog.Entry
	kind    string
	plain   bool // it is put
	put     put
	request *pb.InternalRaftRequest
	change  *raftpb.ConfChange
	err     error // why it cannot be applied
}

// decode never fails: what is wrong is told when the entry is applied, after all
// that come before it.
func decode(e raftlog.Entry) decoded {
	d := decoded{entry: e}
	switch e.Type {
	case raftpb.EntryNormal:
		if len(e.Data) == 0 {
			d.kind = KindNoop
		} else {
			d.decodeRequest()
		}
	case raftpb.EntryConfChange:
		d.decodeChange()
	default:
		if d.kind, d.err = Kind(e); d.err == nil {
			d.err = newer("joint membership changes")
		}
	}
	return d
}

func (d *decoded) decodeRequest() {
	if d.put, d.plain = parsePut(d.entry.Data); d.plain {
		d.kind = kindPut
		return
	}
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

// readsOnly tells requests that change nothing, as members know them when
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

// moves tells whether the entry may move the revision.
func (d *decoded) moves() bool {
	r := d.request
	return d.plain || r != nil && (r.Put != nil || r.DeleteRange != nil || r.Txn != nil || r.LeaseRevoke != nil)
}
