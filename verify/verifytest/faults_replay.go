package verifytest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"

	"github.com/requorum/requorum/verify/report"
)

// alteredValue: every sum fixed up, and the hash.
func alteredValue(t testing.TB, r *Repo) string {
	return edit(row(ofKey(scriptKey), func(f found) { f.kv.Value = []byte("value-of-0nce") }))(t, r)
}

// dropOld takes away the row of a key that was not written since the compaction.
func dropOld(tx *bbolt.Tx) error {
	f, err := newest(tx, ofKey("/app/large"))
	if err != nil {
		return err
	}
	return tx.Bucket([]byte("key")).Delete(f.row)
}

// replayFaults are in a database that etcd could have written: only that this
// one did not.
func replayFaults() []Fault {
	fault := func(name string, change func(*bbolt.Tx) error) Fault {
		return Fault{Name: name, Rung: report.Replay, Kinds: []report.Kind{report.KindDifference}, Inject: edit(change), Database: true}
	}
	inject := func(name string, inject func(testing.TB, *Repo) string, kinds ...report.Kind) Fault {
		return Fault{Name: name, Rung: report.Replay, Kinds: kinds, Inject: inject, Database: true}
	}
	return []Fault{
		inject("a value altered, with the hash and every sum fixed up", alteredValue, report.KindDifference),
		fault("a row gone that the compaction might have removed, with the hash fixed up", dropOld),
		fault("a row emptied, as one that raises the revision", func(tx *bbolt.Tx) error {
			f, err := newest(tx, ofKey(scriptKey))
			if err != nil {
				return err
			}
			return tx.Bucket([]byte("key")).Put(f.row, nil)
		}),
		fault("a key renamed", row(ofKey(scriptKey), func(f found) { f.kv.Key = []byte("/app/0nce") })),
		fault("a key taken off its lease", row(ofKey("/leased/a"), func(f found) { f.kv.Lease = 0 })),
		fault("a lease's time to live", message("lease", leaseKey(scriptLease), &leasepb.Lease{}, func(l *leasepb.Lease) { l.TTL = scriptTTL * 2 })),
		fault("a lease that nobody granted", func(tx *bbolt.Tx) error {
			return putMessage(tx, "lease", []byte(leaseKey(77)), &leasepb.Lease{ID: 77, TTL: 60})
		}),
		fault("a role's permission", message("authRoles", scriptRole, &authpb.Role{}, func(r *authpb.Role) { r.KeyPermission[0].PermType = authpb.READWRITE })),
		fault("a user's password, set since the backup before", message("authUsers", scriptUser, &authpb.User{}, func(u *authpb.User) { u.Password[10] ^= 1 })),
		fault("a user's role", message("authUsers", scriptUser, &authpb.User{}, func(u *authpb.User) { u.Roles = []string{"root"} })),
		fault("a user gone", drop("authUsers", scriptUser)),
		fault("authentication turned on", set("auth", "authEnabled", []byte{1})),
		fault("an alarm gone", func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("alarm"))
			k, _ := b.Cursor().First()
			if k == nil {
				return errNothing
			}
			return b.Delete(bytes.Clone(k))
		}),
		fault("a member's peer URL", member(func(_ *bbolt.Tx, _ string, m map[string]any) { m["peerURLs"] = []string{"http://127.0.0.1:1"} })),
		fault("a member's name", member(func(_ *bbolt.Tx, _ string, m map[string]any) { m["name"] = "somebody" })),
		fault("the raft index of a state before", func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("meta"))
			index := binary.BigEndian.Uint64(b.Get([]byte("consistent_index")))
			return b.Put([]byte("consistent_index"), binary.BigEndian.AppendUint64(nil, index-8))
		}),
		inject("a member that has diverged, as the source of the backup", diverged, report.KindDifference),
		inject("a stamp of another hash", func(t testing.TB, r *Repo) string {
			for _, name := range r.Names(t, r.Timeline.String()+"/marks/") {
				if bytes.Contains(r.Read(t, name), []byte(`"stamp"`)) {
					Reseal(t, r, name, func(m *map[string]json.RawMessage) {
						var stamp map[string]any
						must(t, json.Unmarshal((*m)["stamp"], &stamp))
						stamp["hash"] = 4711
						data, err := json.Marshal(stamp)
						must(t, err)
						(*m)["stamp"] = data
					})
					return name
				}
			}
			t.Fatal("no stamp")
			return ""
		}, report.KindStamp),
	}
}

// diverged: one member's database has had another value since before the last
// backup but one, and both were taken from it.
func diverged(t testing.TB, r *Repo) string {
	for _, i := range []int{before, last} {
		r.Edit(t, i, row(ofKey("/app/large"), func(f found) { f.kv.Value[100] ^= 1 }))
	}
	return "the last two backups"
}
