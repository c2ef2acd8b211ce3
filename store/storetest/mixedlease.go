package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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
	for deadline := time.Now().Add(30 * time.Second); len(short) > 0 && time.Now().Before(deadline); {
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
