package verify_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/storetest"
)

// What scripted writes for faults to be put in.
const (
	scriptKey    = "/app/once"     // written between the last two backups, and not again
	scriptShort  = "/app/short"    // written twice, compacted before the last backup
	scriptLease  = int64(0x1ea5e1) // of two keys
	scriptTTL    = int64(7200)
	scriptRole   = "reader"
	scriptUser   = "ann"
	scriptValue  = "value-of-once"
	scriptFirst  = "value-of-short-first"
	scriptSecond = "value-of-short-second"
)

// scripted records three members that do something of everything etcd does: keys
// with a long history, transactions, deletions, leases, users and roles, a
// compaction and an alarm. With three backups, and a mark on the way.
func scripted(t testing.TB) *clusterHistory {
	t.Helper()
	// A leader that changed under load would refuse a request.
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3, ExtraArgs: []string{"--election-timeout=5000"}})
	r := newRecorder(t, c)
	s := &script{TB: t, client: c.Client(t, 0)}
	s.keys(0, 40)
	s.lease(scriptLease, scriptTTL, "/leased/a", "/leased/b")
	s.lease(0x1ea5e2, 600, "/leased/c")
	s.users()
	s.put("/app/large", strings.Repeat("large ", 3000)) // takes several pages
	s.awaitStorageVersion(c)
	r.backup(t)
	s.keys(1, 40)
	s.put(scriptShort, scriptFirst)
	s.delete("/app/007")
	r.backup(t)
	r.mark(t)
	s.put(scriptShort, scriptSecond)
	s.keys(2, 25)
	s.put(scriptKey, scriptValue)
	s.lease(0x1ea5e3, 900, "/leased/d")
	_, err := s.client.UserChangePassword(t.Context(), scriptUser, "another")
	must(t, err)
	s.delete("/app/008")
	s.compact(s.revision - 20)
	s.put("/app/008", "again")
	s.alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	r.backup(t)
	s.alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	s.keys(3, 10)
	return r.end(t)
}

// awaitStorageVersion waits until each database says that it is of 3.7, which etcd
// writes some seconds after its start: before that it looks like one of 3.5, with which
// the checks are milder.
func (s *script) awaitStorageVersion(c *storetest.Cluster) {
	s.Helper()
	for _, endpoint := range c.Endpoints() {
		for {
			status, err := s.client.Status(s.Context(), endpoint)
			must(s, err)
			if strings.HasPrefix(status.StorageVersion, "3.7.") {
				break
			}
			time.Sleep(50 * time.Millisecond) // the test's own deadline ends it
		}
	}
}

type script struct {
	testing.TB
	client   *clientv3.Client
	revision int64
}

func (s *script) put(key, value string, o ...clientv3.OpOption) {
	s.Helper()
	r, err := s.client.Put(s.Context(), key, value, o...)
	must(s, err)
	s.revision = r.Header.Revision
}

func (s *script) delete(key string) {
	s.Helper()
	r, err := s.client.Delete(s.Context(), key)
	must(s, err)
	s.revision = r.Header.Revision
}

// keys writes n keys, and every tenth time several in one transaction.
func (s *script) keys(round, n int) {
	s.Helper()
	for i := range n {
		key, value := fmt.Sprintf("/app/%03d", i), fmt.Sprintf("round %d %s", round, strings.Repeat("v", 200+i))
		if i%10 != 9 {
			s.put(key, value)
			continue
		}
		r, err := s.client.Txn(s.Context()).If(clientv3.Compare(clientv3.Version("/app/never"), "=", 0)).
			Then(clientv3.OpPut(key, value), clientv3.OpPut(key+"/beside", value)).Commit()
		must(s, err)
		s.revision = r.Header.Revision
	}
}

func (s *script) lease(id, ttl int64, keys ...string) {
	s.Helper()
	_, err := etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseGrant(s.Context(), &etcdserverpb.LeaseGrantRequest{ID: id, TTL: ttl})
	must(s, err)
	for _, k := range keys {
		s.put(k, "leased", clientv3.WithLease(clientv3.LeaseID(id)))
	}
}

// users makes two of them and a role; authentication stays off.
func (s *script) users() {
	s.Helper()
	_, err := s.client.UserAdd(s.Context(), storetest.RootUser, storetest.RootPassword)
	must(s, err)
	_, err = s.client.UserAdd(s.Context(), scriptUser, "password")
	must(s, err)
	_, err = s.client.RoleAdd(s.Context(), scriptRole)
	must(s, err)
	_, err = s.client.RoleGrantPermission(s.Context(), scriptRole, "/app/", "/app0", clientv3.PermissionType(clientv3.PermRead))
	must(s, err)
	_, err = s.client.UserGrantRole(s.Context(), scriptUser, scriptRole)
	must(s, err)
	_, err = s.client.UserGrantRole(s.Context(), "root", "root")
	must(s, err)
}

func (s *script) compact(revision int64) {
	s.Helper()
	_, err := s.client.Compact(s.Context(), revision, clientv3.WithCompactPhysical())
	must(s, err)
}

// alarm raises or clears the alarm NOSPACE of the first member.
func (s *script) alarm(action etcdserverpb.AlarmRequest_AlarmAction) {
	s.Helper()
	status, err := s.client.Status(s.Context(), s.client.Endpoints()[0])
	must(s, err)
	_, err = etcdserverpb.NewMaintenanceClient(s.client.ActiveConnection()).Alarm(s.Context(), &etcdserverpb.AlarmRequest{
		Action: action, MemberID: status.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	must(s, err)
}

// randomHistories records one member of a version that does what the seed says: keys,
// transactions, deletions, leases that are granted and revoked, compactions,
// users, an alarm, defragmentations; and at the end authentication is on for
// some. After a while it goes on as a new cluster of the same data, in some: that
// is the second history, on the timeline that branches off.
func randomHistories(t testing.TB, version string, seed uint64) []*clusterHistory {
	t.Helper()
	c := storetest.Start(t, storetest.Options{Version: version})
	random := rand.New(rand.NewPCG(seed, 1))
	s := &randomLoad{script: script{TB: t, client: c.Client(t)}, Rand: random}
	r := newRecorder(t, c)
	rounds := func(n int) {
		for range n {
			s.changes(30 + random.IntN(150))
			r.backup(t)
		}
	}
	rounds(2 + random.IntN(3))
	if seed%3 != 1 {
		s.authentication(seed%2 == 0)
		r.backup(t)
		return []*clusterHistory{r.end(t)}
	}
	first := r.end(t)
	c.Restart(t, 0, "--force-new-cluster")
	c.WaitReady(t)
	s.client = c.Client(t) // the other one waits before it tries again
	r.branch(t)
	rounds(2)
	return []*clusterHistory{first, r.end(t).after(first)}
}

// randomLoad is what randomHistories writes.
type randomLoad struct {
	script
	*rand.Rand
	leases    []int64
	compacted int64
}

func (s *randomLoad) changes(n int) {
	s.Helper()
	for range n {
		switch key := fmt.Sprintf("/random/%02d", s.IntN(40)); s.IntN(24) {
		case 0, 1, 2:
			s.delete(key)
		case 3:
			_, err := s.client.Delete(s.Context(), "/random/1", clientv3.WithRange("/random/2"))
			must(s, err)
		case 4, 5:
			_, err := s.client.Txn(s.Context()).If(clientv3.Compare(clientv3.Version(key), ">", int64(s.IntN(3)))).
				Then(clientv3.OpPut(key, "then"), clientv3.OpDelete(key+"/beside")).
				Else(clientv3.OpPut(key+"/beside", "else"), clientv3.OpGet(key)).Commit()
			must(s, err)
		case 6:
			id := int64(1 + s.IntN(1<<40))
			s.lease(id, int64(1000+s.IntN(1000)), key, key+"/leased")
			s.leases = append(s.leases, id)
		case 7:
			if len(s.leases) > 0 {
				_, err := s.client.Revoke(s.Context(), clientv3.LeaseID(s.leases[0]))
				must(s, err)
				s.leases = s.leases[1:]
			}
		case 8:
			if s.IntN(3) == 0 && s.revision > s.compacted+2 {
				s.compacted += 1 + s.Int64N(s.revision-s.compacted)
				s.compact(s.compacted)
			}
		case 9:
			if s.IntN(4) == 0 {
				_, err := s.client.Defragment(s.Context(), s.client.Endpoints()[0])
				must(s, err)
			}
		case 10:
			if s.IntN(4) == 0 {
				s.alarm(etcdserverpb.AlarmRequest_ACTIVATE)
				s.alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
			}
		default:
			s.put(key, strings.Repeat("r", s.IntN(3000)))
		}
	}
}

// authentication makes users, and turns it on: nobody writes afterwards.
func (s *randomLoad) authentication(on bool) {
	s.Helper()
	s.users()
	if on {
		_, err := s.client.AuthEnable(s.Context())
		must(s, err)
	}
}
