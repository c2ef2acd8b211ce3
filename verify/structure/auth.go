package structure

import (
	"bytes"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/verify/report"
)

// auth is what the buckets auth, authRoles and authUsers say.
type auth struct {
	enabled bool
	roles   map[string]bool
	root    *authpb.User
}

const rootName = "root" // of the user and of the role that may do everything

func (c *check) authRow(where string, key, value []byte) {
	switch string(key) {
	case "authEnabled":
		if len(value) != 1 || value[0] > 1 {
			c.found.add(report.KindAuth, where, "authEnabled is %x, neither on nor off", value)
			return
		}
		c.db.auth.enabled = value[0] == 1
	case "authRevision":
		if len(value) != 8 {
			c.found.add(report.KindAuth, where, "authRevision has %d bytes, not 8", len(value))
		}
	default:
		c.note("bucket auth has a key %s, which etcd 3.4 to 3.7 do not know", shown(key))
	}
}

func (c *check) roleRow(where string, key, value []byte) {
	var role authpb.Role
	if err := proto.Unmarshal(value, &role); err != nil {
		c.found.add(report.KindAuth, where, "role %s cannot be decoded: %v", shown(key), err)
		return
	}
	if c.db.auth.roles == nil {
		c.db.auth.roles = map[string]bool{}
	}
	c.db.auth.roles[string(key)] = true
	if !bytes.Equal(role.Name, key) {
		c.found.add(report.KindAuth, where, "role %s says that its name is %s", shown(key), shown(role.Name))
	}
	if unknown := role.ProtoReflect().GetUnknown(); len(unknown) > 0 && !c.db.meta.isNewer() {
		c.found.add(report.KindAuth, where, "role %s has fields that etcd does not know", shown(key))
	}
	// etcd looks for a permission by halving.
	if !slices.IsSortedFunc(role.KeyPermission, func(a, b *authpb.Permission) int { return bytes.Compare(a.Key, b.Key) }) {
		c.found.add(report.KindAuth, where, "role %s: its permissions are not in order", shown(key))
	}
	for _, p := range role.KeyPermission {
		if _, known := authpb.Permission_Type_name[int32(p.PermType)]; !known {
			c.found.add(report.KindAuth, where, "role %s: permission of the unknown type %d", shown(key), p.PermType)
		}
	}
}

func (c *check) userRow(where string, key, value []byte) {
	user := &authpb.User{}
	if err := proto.Unmarshal(value, user); err != nil {
		c.found.add(report.KindAuth, where, "user %s cannot be decoded: %v", shown(key), err)
		return
	}
	if !bytes.Equal(user.Name, key) {
		c.found.add(report.KindAuth, where, "user %s says that its name is %s", shown(key), shown(user.Name))
	}
	if unknown := user.ProtoReflect().GetUnknown(); len(unknown) > 0 && !c.db.meta.isNewer() {
		c.found.add(report.KindAuth, where, "user %s has fields that etcd does not know", shown(key))
	}
	// etcd looks for a role by halving.
	if !slices.IsSorted(user.Roles) {
		c.found.add(report.KindAuth, where, "user %s: its roles are not in order", shown(key))
	}
	for _, role := range user.Roles {
		// The role root may be granted without having been added.
		if role != rootName && !c.db.auth.roles[role] && !c.incomplete.Load() {
			c.found.add(report.KindAuth, where, "user %s has the role %s, which does not exist", shown(key), shown([]byte(role)))
		}
	}
	if string(key) == rootName {
		c.db.auth.root = user
	}
}

// checkAuth: etcd refuses what would leave nobody who may turn it off.
func (c *check) checkAuth() {
	if !c.db.auth.enabled || c.incomplete.Load() {
		return
	}
	switch root := c.db.auth.root; {
	case root == nil:
		c.found.add(report.KindAuth, "bucket authUsers", "authentication is on, and there is no user root")
	case !slices.Contains(root.Roles, rootName):
		c.found.add(report.KindAuth, "bucket authUsers", "authentication is on, and the user root has not the role root")
	}
}

// alarmRow decodes an alarm: it is a key, without a value.
func (c *check) alarmRow(where string, key, value []byte) {
	var m etcdserverpb.AlarmMember
	if err := proto.Unmarshal(key, &m); err != nil {
		c.found.add(report.KindRow, where, "an alarm cannot be decoded: %v", err)
		return
	}
	if _, known := etcdserverpb.AlarmType_name[int32(m.Alarm)]; !known || len(value) > 0 || len(m.ProtoReflect().GetUnknown()) > 0 {
		c.found.add(report.KindRow, where, "an alarm of the unknown type %d, with a value of %d bytes", m.Alarm, len(value))
	}
}
