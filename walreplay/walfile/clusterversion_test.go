package walfile

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
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

// v2Request is one as etcd 3.5 has it: numbers among its fields.
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
