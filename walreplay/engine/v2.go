package engine

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/coreos/go-semver/semver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/wire"
)

// v2Request is what matters of a request of the v2 API, which etcd 3.4 and 3.5
// use for members' attributes and the cluster's version.
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
		f, n := wire.Consume(rest)
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
