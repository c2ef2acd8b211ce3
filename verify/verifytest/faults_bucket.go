package verifytest

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// bucketFaults are in what is neither keys, leases, users nor members.
func bucketFaults() []Fault {
	return []Fault{
		structure("bucket: key is missing", edit(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("key")) }), report.KindBucket),
		structure("bucket: members is missing", edit(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("members")) }), report.KindBucket),
		structure("bucket: lease is missing", edit(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("lease")) }), report.KindBucket),
		structure("bucket: one inside of key", edit(func(tx *bbolt.Tx) error {
			_, err := tx.Bucket([]byte("key")).CreateBucket([]byte("inside"))
			return err
		}), report.KindRow),
		structure("meta: consistent_index is missing", edit(drop("meta", "consistent_index")), report.KindRow),
		structure("meta: consistent_index of three bytes", edit(set("meta", "consistent_index", []byte{1, 2, 3})), report.KindRow),
		structure("meta: a compacted revision that is none", edit(set("meta", "scheduledCompactRev", []byte("none"))), report.KindRow),
		structure("meta: a storage version that is none", edit(set("meta", "storageVersion", []byte("three"))), report.KindRow),
		structure("cluster: a version that is none", edit(set("cluster", "clusterVersion", []byte("three"))), report.KindRow),
		structure("alarm: of a kind that etcd does not know", edit(func(tx *bbolt.Tx) error {
			alarm, err := proto.Marshal(&etcdserverpb.AlarmMember{MemberID: 7, Alarm: 99})
			if err != nil {
				return err
			}
			return tx.Bucket([]byte("alarm")).Put(alarm, nil)
		}), report.KindRow),
	}
}

// authFaults are in users and roles.
func authFaults() []Fault {
	fault := func(name string, change func(*bbolt.Tx) error) Fault {
		return structure("auth: "+name, edit(change), report.KindAuth)
	}
	user := func(change func(*authpb.User)) func(*bbolt.Tx) error {
		return message("authUsers", scriptUser, &authpb.User{}, change)
	}
	role := func(change func(*authpb.Role)) func(*bbolt.Tx) error {
		return message("authRoles", scriptRole, &authpb.Role{}, change)
	}
	on := set("auth", "authEnabled", []byte{1})
	return []Fault{
		fault("a user with a role that is not there", user(func(u *authpb.User) { u.Roles = []string{"nobody"} })),
		fault("on, without a user root", both(on, drop("authUsers", "root"))),
		fault("on, and root has not the role root", both(on, message("authUsers", "root", &authpb.User{}, func(u *authpb.User) { u.Roles = nil }))),
		fault("neither on nor off", set("auth", "authEnabled", []byte{7})),
		fault("a user that cannot be decoded", set("authUsers", scriptUser, []byte("no user"))),
		fault("a user under another name", user(func(u *authpb.User) { u.Name = []byte("bob") })),
		fault("a role that cannot be decoded", set("authRoles", scriptRole, []byte("no role"))),
		fault("a permission of a kind that etcd does not know", role(func(r *authpb.Role) { r.KeyPermission[0].PermType = 9 })),
		fault("permissions out of order", role(func(r *authpb.Role) {
			r.KeyPermission = append(r.KeyPermission, &authpb.Permission{Key: []byte("/a")})
		})),
	}
}

// member alters a member's row: the first one's.
func member(change func(tx *bbolt.Tx, id string, m map[string]any)) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("members"))
		k, v := b.Cursor().First()
		id := string(k)
		var m map[string]any
		// Numbers of members do not fit into a float.
		d := json.NewDecoder(bytes.NewReader(v))
		d.UseNumber()
		if err := d.Decode(&m); err != nil {
			return err
		}
		change(tx, id, m)
		data, err := json.Marshal(m)
		if err != nil {
			return err
		}
		return b.Put([]byte(id), data)
	}
}

// memberFaults are in the members and in the raft configuration.
func memberFaults() []Fault {
	fault := func(name string, change func(*bbolt.Tx) error) Fault {
		return structure("membership: "+name, edit(change), report.KindMembership)
	}
	return []Fault{
		fault("a member that was removed", func(tx *bbolt.Tx) error {
			k, _ := tx.Bucket([]byte("members")).Cursor().First()
			return tx.Bucket([]byte("members_removed")).Put(bytes.Clone(k), []byte("removed"))
		}),
		fault("two members gone, that the raft configuration has", func(tx *bbolt.Tx) error {
			for range 2 { // one could be a change under way
				k, _ := tx.Bucket([]byte("members")).Cursor().First()
				if err := tx.Bucket([]byte("members")).Delete(bytes.Clone(k)); err != nil {
					return err
				}
			}
			return nil
		}),
		fault("one ID twice", member(func(_ *bbolt.Tx, _ string, m map[string]any) { m["id"] = 4711 })),
		fault("one peer URL twice", member(func(tx *bbolt.Tx, _ string, m map[string]any) {
			_, v := tx.Bucket([]byte("members")).Cursor().Last()
			var other map[string]any
			if json.Unmarshal(v, &other) == nil {
				m["peerURLs"] = other["peerURLs"]
			}
		})),
		fault("no peer URL", member(func(_ *bbolt.Tx, _ string, m map[string]any) { m["peerURLs"] = nil })),
		fault("a URL that is none", member(func(_ *bbolt.Tx, _ string, m map[string]any) { m["clientURLs"] = []string{"nowhere"} })),
		fault("a voter that is a learner in the raft configuration", demote),
		fault("a member that cannot be decoded", func(tx *bbolt.Tx) error {
			k, _ := tx.Bucket([]byte("members")).Cursor().First()
			return tx.Bucket([]byte("members")).Put(bytes.Clone(k), []byte("{"))
		}),
		fault("the raft configuration cannot be decoded", set("meta", "confState", []byte("{"))),
		// All other voters are what etcdutl leaves of the cluster that it restored.
		fault("the raft configuration has other voters", configure(func(voters []any) (v, learners []any) { return append(voters[:1:1], 1, 2), nil })),
	}
}

// demote makes the last voter of the raft configuration a learner there.
var demote = configure(func(voters []any) (v, learners []any) { return voters[:len(voters)-1], voters[len(voters)-1:] })

// configure changes the raft configuration.
func configure(change func(voters []any) (v, learners []any)) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("meta"))
		var conf map[string]any
		d := json.NewDecoder(bytes.NewReader(b.Get([]byte("confState"))))
		d.UseNumber() // IDs are too long for a float64
		if err := d.Decode(&conf); err != nil {
			return err
		}
		voters, _ := conf["voters"].([]any)
		if len(voters) < 2 {
			return errors.New("fewer than two voters")
		}
		conf["voters"], conf["learners"] = change(voters)
		data, err := json.Marshal(conf)
		if err != nil {
			return err
		}
		return b.Put([]byte("confState"), data)
	}
}

// manifestFaults: the manifest is sealed anew, and says something else than the
// database.
func manifestFaults() []Fault {
	fault := func(name string, change func(*snapshot.Manifest), kind report.Kind) Fault {
		return structure("manifest: "+name, func(t testing.TB, r *Repo) string {
			r.ForgetVerdicts(t)
			Reseal(t, r, r.ManifestName(last), change)
			return r.ManifestName(last)
		}, kind)
	}
	facts := func(name string, change func(*snapshot.Facts)) Fault {
		return fault(name, func(m *snapshot.Manifest) { change(&m.Facts) }, report.KindFacts)
	}
	return []Fault{
		facts("another revision", func(f *snapshot.Facts) { f.Revision++ }),
		facts("another compacted revision", func(f *snapshot.Facts) { f.CompactedRevision-- }),
		facts("another raft index", func(f *snapshot.Facts) { f.RaftIndex-- }),
		facts("a member less", func(f *snapshot.Facts) { f.Members = f.Members[1:] }),
		facts("a member's name", func(f *snapshot.Facts) { f.Members[0].Name = "somebody" }),
		facts("no alarm", func(f *snapshot.Facts) { f.Alarms = nil }),
		facts("authentication on", func(f *snapshot.Facts) { f.AuthEnabled = true }),
		facts("another cluster version", func(f *snapshot.Facts) { f.ClusterVersion = "3.5.0" }),
		facts("another storage version", func(f *snapshot.Facts) { f.StorageVersion = "3.6.0" }),
		fault("another number of keys", func(m *snapshot.Manifest) { n := int64(1); m.Keys.Count = &n }, report.KindFacts),
		fault("another hash", func(m *snapshot.Manifest) { m.HashKV.Hash++ }, report.KindHash),
		fault("a hash of another revision", func(m *snapshot.Manifest) { m.HashKV.Revision-- }, report.KindHash),
	}
}
