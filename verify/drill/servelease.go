package drill

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/snapshot"
)

// mayHaveEnded tells whether a lease could have ended since the boot, as it
// should: what is left of leases begins anew then.
func (s *server) mayHaveEnded(l *lease) bool {
	return time.Since(s.booting) >= time.Duration(l.Left)*time.Second
}

// checkLeases compares the leases that the image holds, and what hangs on them,
// and grants one that ends while the rest is looked at.
func (s *server) checkLeases(ctx context.Context) error {
	request, cancel := bounded(ctx)
	defer cancel()
	all, err := s.main.Leases(request)
	if err != nil {
		return err
	}
	living := map[int64]bool{}
	for _, l := range all.Leases {
		living[int64(l.ID)] = true
		if s.expect.leases[int64(l.ID)] == nil {
			s.findings.serve(where(int64(l.ID)), "it lives, and is not in the database")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.expect.orphans)) {
		id := s.expect.orphans[key]
		if !living[id] {
			s.findings.serve(fmt.Sprintf("key %q", key), "it hangs on lease %016x, which is not there: it would never end", id)
		}
	}
	kept := false
	for _, id := range slices.Sorted(maps.Keys(s.expect.leases)) {
		l := s.expect.leases[id]
		if !living[id] {
			if !s.mayHaveEnded(l) {
				s.findings.serve(where(id), "it is in the database with %d s to live, and was gone %s after the boot began", l.Left, time.Since(s.booting).Round(time.Millisecond))
			}
			continue
		}
		if !l.chosen {
			continue
		}
		if err := s.checkLease(ctx, l); err != nil {
			return err
		}
		if !kept {
			kept = true
			if err := s.keepAlive(ctx, l); err != nil {
				return err
			}
		}
	}
	return s.grantShort(ctx)
}

func where(lease int64) string { return fmt.Sprintf("lease %016x", lease) }

func (s *server) checkLease(ctx context.Context, l *lease) error {
	request, cancel := bounded(ctx)
	defer cancel()
	got, err := s.main.TimeToLive(request, clientv3.LeaseID(l.ID), clientv3.WithAttachedKeys())
	if err != nil {
		return err
	}
	if got.TTL < 0 && s.mayHaveEnded(l) {
		return nil
	}
	if got.GrantedTTL != l.TTL || got.TTL > l.TTL || got.TTL < 0 {
		s.findings.serve(where(l.ID), "it has %d s of %d s to live, and was granted %d s", got.TTL, got.GrantedTTL, l.TTL)
	}
	attached := map[string]struct{}{}
	for _, k := range got.Keys {
		attached[string(k)] = struct{}{}
		if _, ok := l.keys[string(k)]; !ok {
			s.findings.serve(where(l.ID), "key %q hangs on it, and does not in the database", k)
		}
	}
	for k := range l.keys {
		if _, ok := attached[k]; !ok {
			s.findings.serve(where(l.ID), "key %q hangs on it in the database, and does not now", k)
		}
	}
	return nil
}

// keepAlive keeps a restored lease alive.
func (s *server) keepAlive(ctx context.Context, l *lease) error {
	request, cancel := bounded(ctx)
	defer cancel()
	got, err := s.main.KeepAliveOnce(request, clientv3.LeaseID(l.ID))
	switch {
	case err != nil && s.mayHaveEnded(l):
		return nil
	case err != nil:
		return fmt.Errorf("keep %s alive: %w", where(l.ID), err)
	case got.TTL != l.TTL:
		s.findings.serve(where(l.ID), "kept alive it has %d s to live, and was granted %d s", got.TTL, l.TTL)
	}
	return nil
}

// expiring is the key that goes with the short lease.
func (s *server) expiring() string { return s.prefix + "expires" }

func (s *server) grantShort(ctx context.Context) error {
	request, cancel := bounded(ctx)
	defer cancel()
	l, err := s.main.Grant(request, snapshot.MinLeaseTTL)
	if err != nil {
		return fmt.Errorf("grant a lease: %w", err)
	}
	_, err = s.main.Put(request, s.expiring(), "", clientv3.WithLease(l.ID))
	return err
}

// checkExpired waits until the short lease has ended and taken its key along.
func (s *server) checkExpired(ctx context.Context) error {
	// Members end leases twice a second, and a slow disk makes that later.
	const most = 30 * time.Second
	for began := time.Now(); ; {
		request, cancel := bounded(ctx)
		got, err := s.main.Get(request, s.expiring())
		cancel()
		if err != nil {
			return err
		}
		if got.Count == 0 {
			return nil
		}
		if time.Since(began) > most {
			s.findings.serve(where(got.Kvs[0].Lease), "granted for %d s, it has not ended %s later", snapshot.MinLeaseTTL, most)
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// checkNewLease grants a lease, keeps it alive, and revokes it.
func (s *server) checkNewLease(ctx context.Context) error {
	request, cancel := bounded(ctx)
	defer cancel()
	const ttl = 600
	l, err := s.main.Grant(request, ttl)
	if err != nil {
		return fmt.Errorf("grant a lease: %w", err)
	}
	key := s.prefix + "leased"
	if _, err := s.main.Put(request, key, "", clientv3.WithLease(l.ID)); err != nil {
		return err
	}
	kept, err := s.main.KeepAliveOnce(request, l.ID)
	if err != nil {
		return fmt.Errorf("keep a lease alive: %w", err)
	}
	if kept.TTL != ttl {
		s.findings.serve(where(int64(l.ID)), "granted for %d s and kept alive, it has %d s to live", ttl, kept.TTL)
	}
	if _, err := s.main.Revoke(request, l.ID); err != nil {
		return fmt.Errorf("revoke a lease: %w", err)
	}
	got, err := s.main.Get(request, key)
	if err == nil && got.Count != 0 {
		s.findings.serve(where(int64(l.ID)), "it was revoked, and its key %q is still there", key)
	}
	return err
}
