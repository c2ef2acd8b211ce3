package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// observe asks members in turn for their hash at a revision of that moment.
func (m *Mixed) observe(ctx context.Context) {
	n := m.options.Observations
	for i := range n {
		if !m.await(ctx, float64(i+1)/float64(n+1)) {
			return
		}
		var err error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; {
			var o Observation
			if o, err = m.hashNow(ctx, i%len(m.clients)); err == nil {
				m.mu.Lock()
				m.observed = append(m.observed, o)
				m.mu.Unlock()
				break
			}
			pause(ctx, 20*time.Millisecond)
		}
		if err != nil && !m.options.Faults {
			m.fail(fmt.Errorf("observing HashKV: %w", err))
			return
		}
	}
}

// hashNow takes a revision, sees to it that another one follows, and asks for
// the hash. Compactions wait meanwhile: they would change the hash of the past,
// and one before the next revision would belong to this one.
func (m *Mixed) hashNow(ctx context.Context, member int) (Observation, error) {
	m.past.Lock()
	defer m.past.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	first, err := m.clients[member].Put(ctx, MixedPrefix+"observed", "before")
	if err != nil {
		return Observation{}, err
	}
	o := Observation{Time: time.Now(), Member: member, Revision: first.Header.Revision}
	if _, err := m.clients[member].Put(ctx, MixedPrefix+"observed", "after"); err != nil {
		return Observation{}, err
	}
	err = hash(ctx, m.clients[member], m.cluster.members[member].ClientURL, &o)
	return o, err
}

func hash(ctx context.Context, client *clientv3.Client, endpoint string, o *Observation) error {
	h, err := client.HashKV(ctx, endpoint, o.Revision)
	if err != nil {
		return err
	}
	o.Hash, o.CompactedRevision = h.Hash, h.CompactRevision
	return nil
}

// final wants all members that run to agree at the end.
func (m *Mixed) final(t testing.TB) Observation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var final Observation
	for i, client := range m.clients {
		if !m.cluster.members[i].process.running() || m.cluster.isIsolated(i) {
			continue
		}
		head, err := client.Get(ctx, MixedPrefix+"observed") // waits until it has caught up
		if err != nil {
			t.Fatalf("after the mixed load, member %s: %v", m.cluster.members[i].Name, err)
		}
		o := Observation{Time: time.Now(), Member: i, Revision: head.Header.Revision}
		if err := hash(ctx, client, m.cluster.members[i].ClientURL, &o); err != nil {
			t.Fatalf("after the mixed load, HashKV of %s: %v", m.cluster.members[i].Name, err)
		}
		if final.Revision == o.Revision && (final.Hash != o.Hash || final.CompactedRevision != o.CompactedRevision) {
			t.Errorf("after the mixed load the members disagree: %+v and %+v", final, o)
		}
		final = o
	}
	return final
}
