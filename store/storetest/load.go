package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/store"
)

// Load is what Fill writes, in this order. Everything is derived from Prefix
// and the numbers, so two equal loads write equal keys and values.
type Load struct {
	Prefix    string // empty: /load/
	Keys      int
	ValueSize int // bytes; 0 is 256
	// Overwrites, Deletes: that many of the keys, spread over all.
	Overwrites, Deletes int
	// Leases with LeaseTTL (seconds; 0 is 3600), each with KeysPerLease (0 is 3)
	// keys of their own.
	Leases, KeysPerLease int
	LeaseTTL             int64
	// Compact compacts at three quarters of the history.
	Compact bool
	// Users makes root and that many users and roles, and turns authentication
	// on, last of all.
	Users int
}

const (
	batch   = 100 // operations a transaction; etcd allows 128
	writers = 8
)

// Fill writes a load to the cluster at endpoints, without TLS, and reads back
// what there is to check a copy against. A cluster of Start is filled with
// Cluster.Fill.
func Fill(t testing.TB, endpoints []string, load Load) *Filled {
	t.Helper()
	client := newClient(t, store.ClientConfig{Endpoints: endpoints})
	return fill(t, client, store.ClientConfig{Endpoints: endpoints}, load)
}

// Fill writes a load. With Load.Users the cluster has authentication on
// afterwards, and its ClientConfig and Client log in as root.
func (c *Cluster) Fill(t testing.TB, load Load) *Filled {
	t.Helper()
	filled := fill(t, c.Client(t), c.ClientConfig(), load)
	if load.Users > 0 {
		c.auth = true
	}
	return filled
}

func fill(t testing.TB, client *clientv3.Client, config store.ClientConfig, load Load) *Filled {
	t.Helper()
	if load.Prefix == "" {
		load.Prefix = "/load/"
	}
	if load.ValueSize == 0 {
		load.ValueSize = 256
	}
	if load.KeysPerLease == 0 {
		load.KeysPerLease = 3
	}
	if load.LeaseTTL == 0 {
		load.LeaseTTL = 3600
	}
	steps := []func(context.Context, *clientv3.Client, Load) error{putKeys, overwrite, deleteKeys, grantLeases, compact}
	for _, step := range steps {
		if err := step(t.Context(), client, load); err != nil {
			t.Fatalf("filling %v: %v", client.Endpoints(), err)
		}
	}
	if load.Users > 0 {
		addUsers(t, client, load.Users)
		if config.User == "" {
			turnAuthOn(t, client)
			config.User, config.Password = RootUser, RootPassword
			client = newClient(t, config)
		}
	}
	filled, err := readFilled(t.Context(), client, load)
	if err != nil {
		t.Fatalf("reading the load back: %v", err)
	}
	return filled
}

func putKeys(ctx context.Context, client *clientv3.Client, load Load) error {
	return batches(ctx, client, load.Keys, func(i int) clientv3.Op {
		return clientv3.OpPut(load.key(i), load.value(i, 0))
	})
}

func overwrite(ctx context.Context, client *clientv3.Client, load Load) error {
	return batches(ctx, client, load.Overwrites, func(i int) clientv3.Op {
		n := spread(i, load.Overwrites, load.Keys)
		return clientv3.OpPut(load.key(n), load.value(n, i+1))
	})
}

// deleteKeys starts at the other end, so that some keys are overwritten, some
// deleted, and some both.
func deleteKeys(ctx context.Context, client *clientv3.Client, load Load) error {
	return batches(ctx, client, load.Deletes, func(i int) clientv3.Op {
		return clientv3.OpDelete(load.key(load.Keys - 1 - spread(i, load.Deletes, load.Keys)))
	})
}

func grantLeases(ctx context.Context, client *clientv3.Client, load Load) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range load.Leases {
		group.Go(func() error {
			lease, err := client.Grant(ctx, load.LeaseTTL)
			if err != nil {
				return fmt.Errorf("granting a lease: %w", err)
			}
			for k := range load.KeysPerLease {
				key := fmt.Sprintf("%sleased/%06d/%d", load.Prefix, i, k)
				if _, err := client.Put(ctx, key, load.value(i, k), clientv3.WithLease(lease.ID)); err != nil {
					return fmt.Errorf("putting a leased key: %w", err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func compact(ctx context.Context, client *clientv3.Client, load Load) error {
	if !load.Compact {
		return nil
	}
	now, err := client.Get(ctx, load.Prefix, clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	if _, err := client.Compact(ctx, now.Header.Revision*3/4, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("compacting: %w", err)
	}
	return nil
}

func addUsers(t testing.TB, client *clientv3.Client, n int) {
	t.Helper()
	ctx := t.Context()
	for i := range n {
		user, role := fmt.Sprintf("user%d", i), fmt.Sprintf("role%d", i)
		if _, err := client.RoleAdd(ctx, role); err != nil {
			t.Fatalf("adding %s: %v", role, err)
		}
		prefix := fmt.Sprintf("/%s/", user)
		if _, err := client.RoleGrantPermission(ctx, role, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
			t.Fatalf("granting to %s: %v", role, err)
		}
		if _, err := client.UserAdd(ctx, user, "password-of-"+user); err != nil {
			t.Fatalf("adding %s: %v", user, err)
		}
		if _, err := client.UserGrantRole(ctx, user, role); err != nil {
			t.Fatalf("granting %s to %s: %v", role, user, err)
		}
	}
}

// batches runs n operations in transactions, several at a time. Operations of
// one call must not name a key twice.
func batches(ctx context.Context, client *clientv3.Client, n int, op func(i int) clientv3.Op) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for first := 0; first < n; first += batch {
		group.Go(func() error {
			var ops []clientv3.Op
			for i := first; i < min(first+batch, n); i++ {
				ops = append(ops, op(i))
			}
			_, err := client.Txn(ctx).Then(ops...).Commit()
			return err
		})
	}
	return group.Wait()
}

// spread picks the i-th of n places among total, evenly.
func spread(i, n, total int) int { return int(int64(i) * int64(total) / int64(n)) }

func (l Load) key(i int) string { return fmt.Sprintf("%skeys/%07d", l.Prefix, i) }

// value compresses about as well as a Kubernetes object: words that repeat,
// and parts that do not.
func (l Load) value(i, generation int) string {
	random := rand.New(rand.NewPCG(uint64(i), uint64(generation)))
	out := make([]byte, 0, l.ValueSize+32)
	for len(out) < l.ValueSize {
		out = fmt.Appendf(out, `{"kind":"Pod","uid":"%016x"},`, random.Uint64())
	}
	return string(out[:l.ValueSize])
}
