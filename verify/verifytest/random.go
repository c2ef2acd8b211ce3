package verifytest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/storetest"
)

// Random records one member of a version that does what the seed says: keys,
// transactions, deletions, leases that are granted and revoked, compactions,
// users, an alarm, defragmentations; and at the end authentication is on for
// some. After a while it goes on as a new cluster of the same data, in some: that
// is the second history, on the timeline that branches off.
func Random(t testing.TB, version string, seed uint64) []*History {
	t.Helper()
	c := storetest.Start(t, storetest.Options{Version: version, ExtraArgs: []string{"--bcrypt-cost=4"}})
	random := rand.New(rand.NewPCG(seed, 1))
	s := &randomLoad{script: script{TB: t, client: c.Client(t)}, Rand: random}
	r := NewRecorder(t, c)
	rounds := func(n int) {
		for range n {
			s.changes(30 + random.IntN(150))
			r.Backup(t)
		}
	}
	rounds(2 + random.IntN(3))
	if seed%3 != 1 {
		s.authentication(seed%2 == 0)
		r.Backup(t)
		return []*History{r.End(t)}
	}
	first := r.End(t)
	c.RestartWith(t, 0, "--force-new-cluster")
	c.WaitReady(t)
	s.client = c.Client(t) // the other one waits before it tries again
	r.Branch(t)
	rounds(2)
	return []*History{first, r.End(t).after(first)}
}

// randomLoad is what Random writes.
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
