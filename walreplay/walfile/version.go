package walfile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/api/v3/versionpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// MinimalVersion is the lowest version of etcd that can interpret the entry, by
// the annotations in etcd's protocol files. An entry with requests, fields or
// values that etcd 3.7 does not have is an ErrNewer. It reflects, and is slow:
// for looking at entries, not for replaying them.
//
// etcd's own wal.MinimalEtcdVersion panics where this gives an error, and does
// not look inside of transactions.
func MinimalVersion(e raftlog.Entry) (*semver.Version, error) {
	if err := refuseNewer(e); err != nil {
		return nil, err
	}
	v := &versions{highest: version.V3_0}
	switch e.Type {
	case raftpb.EntryNormal:
		if len(e.Data) == 0 || isV2(e.Data) {
			return &v.highest, nil
		}
		var r etcdserverpb.InternalRaftRequest
		if err := proto.Unmarshal(e.Data, &r); err != nil {
			return nil, fmt.Errorf("%s is no request: %w", e, err)
		}
		if err := v.visit(r.ProtoReflect()); err != nil {
			return nil, fmt.Errorf("%s: %w", e, err)
		}
		if test := r.DowngradeVersionTest; test != nil {
			if err := v.add(test.Ver); err != nil {
				return nil, fmt.Errorf("%s: %w", e, err)
			}
		}
	case raftpb.EntryConfChange:
	case raftpb.EntryConfChangeV2:
		v.highest = version.V3_4
	default:
		return nil, &NewerError{What: fmt.Sprintf("a raft entry of type %d at index %d", e.Type, e.Index)}
	}
	if newest := known(); newest.LessThan(v.highest) {
		return nil, &NewerError{Version: v.highest.String(), What: e.String()}
	}
	return &v.highest, nil
}

// isV2 tells requests of the v2 API, which etcd writes up to 3.5: bare, when
// field 2 is a method's name, or in field 2 of an InternalRaftRequest.
func isV2(data []byte) bool {
	found := false
	stop := errors.New("stop")
	_ = fields(data, func(field protoreflect.FieldNumber, _ protowire.Type, _ uint64, _ []byte) error {
		if field == fieldV2 {
			found = true
			return stop
		}
		return nil
	})
	return found
}

// versions collects the annotations of what a message uses.
type versions struct{ highest semver.Version }

func (v *versions) visit(m protoreflect.Message) error {
	d := m.Descriptor()
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		return &NewerError{What: fmt.Sprintf("unknown fields of %s", d.FullName())}
	}
	if err := v.annotation(d.Options(), versionpb.E_EtcdVersionMsg); err != nil {
		return err
	}
	var err error
	m.Range(func(f protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if err = v.annotation(f.Options(), versionpb.E_EtcdVersionField); err != nil {
			return false
		}
		switch {
		case f.IsMap():
		case f.IsList():
			for i := 0; i < value.List().Len() && err == nil; i++ {
				err = v.value(f, value.List().Get(i))
			}
		default:
			err = v.value(f, value)
		}
		return err == nil
	})
	return err
}

func (v *versions) value(f protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch {
	case f.Message() != nil:
		return v.visit(value.Message())
	case f.Enum() != nil:
		if err := v.annotation(f.Enum().Options(), versionpb.E_EtcdVersionEnum); err != nil {
			return err
		}
		d := f.Enum().Values().ByNumber(value.Enum())
		if d == nil {
			return &NewerError{What: fmt.Sprintf("value %d of %s", value.Enum(), f.FullName())}
		}
		return v.annotation(d.Options(), versionpb.E_EtcdVersionEnumValue)
	}
	return nil
}

func (v *versions) annotation(options proto.Message, kind protoreflect.ExtensionType) error {
	if options == nil || !options.ProtoReflect().IsValid() || !proto.HasExtension(options, kind) {
		return nil
	}
	text, _ := proto.GetExtension(options, kind).(string)
	return v.add(text)
}

func (v *versions) add(text string) error {
	if strings.Count(text, ".") == 1 {
		text += ".0"
	}
	parsed, err := semver.NewVersion(text)
	if err != nil {
		return fmt.Errorf("version %q: %w", text, err)
	}
	if v.highest.LessThan(*parsed) {
		v.highest = *parsed
	}
	return nil
}
