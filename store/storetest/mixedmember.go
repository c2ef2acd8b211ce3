package storetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// learner lets a member join, become a voter, and leave again. It is none of
// the cluster's own: those stay as they are.
func (m *Mixed) learner(ctx context.Context, n int) {
	name := fmt.Sprintf("guest%d", n)
	free, err := m.cluster.freePorts(2)
	if err != nil {
		m.fail(err)
		return
	}
	clientURL, peerURL := m.cluster.url(free[0]), m.cluster.url(free[1])
	id, ok := m.add(ctx, LearnerAdd, peerURL, (*clientv3.Client).MemberAddAsLearner)
	if !ok {
		return
	}
	m.listed(ctx)
	guest, err := startEtcd(m.cluster.binary, filepath.Join(m.cluster.options.Dir, name+".log"), append([]string{
		"--name", name, "--data-dir", filepath.Join(m.cluster.options.Dir, name), "--logger", "zap",
		"--listen-client-urls", clientURL, "--advertise-client-urls", clientURL,
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL,
		"--initial-cluster", m.cluster.InitialCluster() + "," + name + "=" + peerURL, "--initial-cluster-state", "existing",
	}, m.cluster.options.ExtraArgs...))
	if err != nil {
		m.fail(err)
		return
	}
	defer guest.Kill()
	m.insist(ctx, LearnerPromote, rpctypes.ErrMemberNotLearner, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.MemberPromote(ctx, id) })
	m.insist(ctx, MemberUpdate, nil, func(ctx context.Context, c *clientv3.Client) (any, error) {
		return c.MemberUpdate(ctx, id, []string{peerURL, m.cluster.url(free[0])})
	})
	m.remove(ctx, id)
}

// listed waits, for no longer than each may be away, until all members have applied that
// a member was added: a new one asks any of them who is in the cluster, and ends where it
// is not.
func (m *Mixed) listed(ctx context.Context) {
	for _, c := range m.clients {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, _ = c.MemberList(bounded) // it is linearizable; of who is away nobody asks
		cancel()
	}
}

// voter adds a voter that never starts, and removes it: four voters are served
// by the three that run.
func (m *Mixed) voter(ctx context.Context, _ int) {
	free, err := m.cluster.freePorts(1)
	if err != nil {
		m.fail(err)
		return
	}
	if id, ok := m.add(ctx, VoterAdd, m.cluster.url(free[0]), (*clientv3.Client).MemberAdd); ok {
		m.remove(ctx, id)
	}
}

// add adds a member, or finds it where an earlier try had added it.
func (m *Mixed) add(ctx context.Context, kind Kind, peerURL string, do func(*clientv3.Client, context.Context, []string) (*clientv3.MemberAddResponse, error)) (id uint64, ok bool) {
	ok = m.insist(ctx, kind, nil, func(ctx context.Context, c *clientv3.Client) (any, error) {
		resp, err := do(c, ctx, []string{peerURL})
		if err == nil {
			id = resp.Member.ID
			return nil, nil
		}
		if !errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil, err
		}
		list, err := c.MemberList(ctx)
		if err != nil {
			return nil, err
		}
		for _, member := range list.Members {
			if len(member.PeerURLs) > 0 && member.PeerURLs[0] == peerURL {
				id = member.ID
				return nil, nil
			}
		}
		return nil, errors.New("its peer URL is taken, and by no member that is listed")
	})
	return id, ok && id != 0
}

func (m *Mixed) remove(ctx context.Context, id uint64) {
	m.insist(ctx, MemberRemove, rpctypes.ErrMemberNotFound, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.MemberRemove(ctx, id) })
}

// leasePool is the leases that workers attach keys to.
type leasePool struct {
	mu   sync.Mutex
	all  []clientv3.LeaseID // oldest first
	next int
}

func (p *leasePool) any() (clientv3.LeaseID, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) == 0 {
		return 0, false
	}
	p.next++
	return p.all[p.next%len(p.all)], true
}

// add adds a lease, and takes the oldest one out when there are more than
// enough.
func (p *leasePool) add(id clientv3.LeaseID) (old clientv3.LeaseID, enough bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, id)
	if len(p.all) < surplus {
		return 0, false
	}
	old = p.all[0]
	p.all = p.all[1:]
	return old, true
}

const (
	// shortTTL is the shortest that a member with the default election timeout
	// grants.
	shortTTL = 2
	longTTL  = 600
	// surplus is with how many long leases the oldest one is revoked.
	surplus = 4
)

// lease grants short leases and lets them expire with their keys, and long ones
// that are kept alive and revoked in the end.
func (m *Mixed) lease(ctx context.Context) {
	client := m.clients[0]
	var short []clientv3.LeaseID
	for n := 0; n <= surplus || !m.Over(); n++ {
		id, ok := m.grant(ctx, n, shortTTL)
		if ok {
			short = append(short, id)
		}
		if id, ok := m.grant(ctx, n, longTTL); ok {
			m.once(ctx, LeaseKeepAlive, func(ctx context.Context) error {
				_, err := client.KeepAliveOnce(ctx, id)
				return err
			})
			if old, enough := m.leases.add(id); enough {
				m.once(ctx, LeaseRevoke, func(ctx context.Context) error {
					_, err := client.Revoke(ctx, old)
					return err
				})
			}
		}
		if !pause(ctx, 50*time.Millisecond) {
			return
		}
	}
	// Those that are still left have time to expire: the log is to have it.
	for deadline := time.Now().Add(2 * time.Minute); len(short) > 0 && time.Now().Before(deadline); {
		resp, err := client.TimeToLive(ctx, short[0])
		switch {
		case err == nil && resp.TTL < 0: // 0 is one that nobody has revoked yet
			m.counts.note(LeaseExpire, nil)
			short = short[1:]
		case !pause(ctx, 50*time.Millisecond):
			return
		}
	}
	if len(short) > 0 {
		m.counts.note(LeaseExpire, fmt.Errorf("%d leases of %d s are still there", len(short), shortTTL))
	}
}

// grant grants a lease, and attaches keys of its own to it.
func (m *Mixed) grant(ctx context.Context, n int, ttl int64) (clientv3.LeaseID, bool) {
	var id clientv3.LeaseID
	ok := m.once(ctx, LeaseGrant, func(ctx context.Context) error {
		resp, err := m.clients[0].Grant(ctx, ttl)
		if err == nil {
			id = resp.ID
		}
		return err
	})
	for k := 0; ok && k < 2; k++ {
		m.once(ctx, PutLeased, func(ctx context.Context) error {
			_, err := m.clients[0].Put(ctx, fmt.Sprintf("%sleased/%d/%05d/%d", MixedPrefix, ttl, n, k), "leased", clientv3.WithLease(id))
			return err
		})
	}
	return id, ok
}

func (m *Mixed) once(ctx context.Context, kind Kind, do func(context.Context) error) bool {
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := do(bounded)
	if ctx.Err() != nil {
		return false
	}
	m.counts.note(kind, err)
	return err == nil
}
