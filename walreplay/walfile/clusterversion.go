package walfile

import (
	"fmt"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/wire"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// known is the newest etcd whose logs are known, as a cluster names it.
func known() *semver.Version {
	v := semver.New(version.Version)
	return &semver.Version{Major: v.Major, Minor: v.Minor}
}

func knownRelease() string {
	v := known()
	return fmt.Sprintf("%d.%d", v.Major, v.Minor)
}

// Where entries set the cluster's version: a request of its own since etcd 3.6,
// before that a v2 request, by itself or in field 2.
const (
	fieldVersionSet protowire.Number = 1300
	fieldV2         protowire.Number = 2
	fieldV2Path     protowire.Number = 3
	fieldV2Value    protowire.Number = 4
	pathVersion                      = "/0/version"
)

// refuseNewer refuses the entry with which a cluster becomes newer than what is
// known here: no entry of a new kind can come before it.
func refuseNewer(e raftlog.Entry) error {
	if e.Type != raftpb.EntryNormal || len(e.Data) == 0 {
		return nil
	}
	set := clusterVersion(e.Data, 1)
	if set == "" {
		return nil
	}
	v, err := semver.NewVersion(set)
	// What is no version is for whoever applies it to say.
	if newest := known(); err == nil && newest.LessThan(semver.Version{Major: v.Major, Minor: v.Minor}) {
		return &NewerError{Version: v.String(), What: fmt.Sprintf("the log from raft index %d on", e.Index)}
	}
	return nil
}

// clusterVersion is the version that a request sets, or empty. It is in the way
// of every entry, so it takes the fields apart itself.
func clusterVersion(b []byte, depth int) string {
	var path, value []byte
	for len(b) > 0 {
		f, n := wire.Consume(b)
		if n < 0 {
			return ""
		}
		b = b[n:]
		if f.Kind != protowire.BytesType {
			continue
		}
		data := f.Bytes
		switch f.Number {
		case fieldVersionSet:
			if _, _, n := protowire.ConsumeTag(data); n > 0 {
				if v, m := protowire.ConsumeString(data[n:]); m >= 0 {
					return v
				}
			}
		case fieldV2:
			if depth > 0 && len(data) > len(pathVersion) {
				if v := clusterVersion(data, depth-1); v != "" {
					return v
				}
			}
		case fieldV2Path:
			path = data
		case fieldV2Value:
			value = data
		default:
		}
	}
	if string(path) == pathVersion {
		return string(value)
	}
	return ""
}
