package walfile

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/raftlog"
)

func request(r *etcdserverpb.InternalRaftRequest) []byte {
	b, err := proto.Marshal(r)
	if err != nil {
		panic(err)
	}
	return b
}

func versionSet(v string) []byte {
	return request(&etcdserverpb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: v}})
}

// v2Request is one as etcd 3.4 and 3.5 have it: numbers among its fields.
func v2Request(path, value string) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 9)
	for i, s := range []string{"PUT", path, value} {
		b = protowire.AppendString(protowire.AppendTag(b, protowire.Number(2+i), protowire.BytesType), s)
	}
	return protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), 0)
}

// TestClusterVersion finds the version that an entry sets, in each of the forms
// that etcd had for it.
func TestClusterVersion(t *testing.T) {
	wrapped := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), v2Request("/0/version", "3.8.0"))
	for name, data := range map[string][]byte{
		"a request": versionSet("3.8.0"), "a v2 request": v2Request("/0/version", "3.8.0"), "a v2 request in a request": wrapped,
	} {
		if got := clusterVersion(data, 1); got != "3.8.0" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, data := range map[string][]byte{
		"a put": put("/0/version", 10), "another path": v2Request("/0/members/1/attributes", "3.8.0"), "garbage": {1, 2, 3}, "nothing": nil,
	} {
		if got := clusterVersion(data, 1); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for v, newer := range map[string]bool{"3.4.0": false, "3.7.0": false, "3.7.99": false, "3.8.0": true, "4.0.0": true, "x": false} {
		if err := refuseNewer(raftlog.Entry{Index: 1, Data: versionSet(v)}); errors.Is(err, ErrNewer) != newer {
			t.Errorf("%s: %v", v, err)
		}
	}
}

// TestMinimalVersion agrees with etcd's own reading where that has one.
func TestMinimalVersion(t *testing.T) {
	conf, _ := proto.Marshal(&raftpb.ConfChange{})
	for _, c := range []struct {
		entry raftlog.Entry
		want  string
		ours  bool // etcd's own function panics, or does not look that deep
	}{
		{raftlog.Entry{Data: put("k", 1)}, "3.0.0", false},
		{raftlog.Entry{Data: versionSet("3.6.0")}, "3.5.0", false},
		{raftlog.Entry{Data: request(&etcdserverpb.InternalRaftRequest{LeaseCheckpoint: &etcdserverpb.LeaseCheckpointRequest{}})}, "3.4.0", false},
		{raftlog.Entry{Data: request(&etcdserverpb.InternalRaftRequest{Alarm: &etcdserverpb.AlarmRequest{Alarm: etcdserverpb.AlarmType_CORRUPT}})}, "3.3.0", false},
		{raftlog.Entry{Data: request(&etcdserverpb.InternalRaftRequest{DowngradeVersionTest: &etcdserverpb.DowngradeVersionTestRequest{Ver: "3.7.0"}})}, "3.7.0", false},
		{raftlog.Entry{Type: raftpb.EntryConfChange, Data: conf}, "3.0.0", false},
		{raftlog.Entry{Type: raftpb.EntryConfChangeV2, Data: conf}, "3.4.0", false},
		{raftlog.Entry{Data: request(&etcdserverpb.InternalRaftRequest{Txn: &etcdserverpb.TxnRequest{Compare: []*etcdserverpb.Compare{{Result: etcdserverpb.Compare_NOT_EQUAL}}}})}, "3.1.0", true},
		{raftlog.Entry{}, "3.0.0", true},
		{raftlog.Entry{Data: v2Request("/0/version", "3.5.0")}, "3.0.0", true},
	} {
		got, err := MinimalVersion(c.entry)
		if err != nil || got.String() != c.want {
			t.Errorf("%x: %v, %v; want %s", c.entry.Data, got, err, c.want)
			continue
		}
		if theirs := func() string {
			if c.ours {
				return c.want
			}
			return wal.MinimalEtcdVersion([]*raftpb.Entry{c.entry.Raft()}).String()
		}(); theirs != c.want {
			t.Errorf("%x: etcd says %s, this %s", c.entry.Data, theirs, c.want)
		}
	}
	for name, e := range map[string]raftlog.Entry{
		"an unknown request": {Data: protowire.AppendBytes(protowire.AppendTag(nil, 1400, protowire.BytesType), nil)},
		"an unknown field":   {Data: protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), numbers(1, 1, 1, 1, 1, 1, 1, 1))},
		"an unknown value":   {Data: request(&etcdserverpb.InternalRaftRequest{Alarm: &etcdserverpb.AlarmRequest{Alarm: 77}})},
		"an unknown type":    {Type: 3},
		"a later version":    {Data: versionSet("3.8.0")},
		"a later test":       {Data: request(&etcdserverpb.InternalRaftRequest{DowngradeVersionTest: &etcdserverpb.DowngradeVersionTestRequest{Ver: "3.9.0"}})},
	} {
		if v, err := MinimalVersion(e); !errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	if _, err := MinimalVersion(raftlog.Entry{Data: []byte{0xff}}); err == nil || errors.Is(err, ErrNewer) {
		t.Errorf("garbage: %v", err)
	}
}
