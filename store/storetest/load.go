package storetest

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/store/client"
)

// Load is what Fill writes, in this order. Everything is derived from Prefix
// and the numbers, so two equal loads write equal keys and values.
type Load struct {
	Prefix    string // empty: /load/
	Keys      int
	ValueSize int // bytes; 0 is 256
	// Overwrites, Deletes: that many of the keys, spread over all.
	Overwrites, Deletes int
	// Leases with LeaseTTL (seconds; 0 is 3600), each with three keys of its own.
	Leases   int
	LeaseTTL int64
	// Compact compacts at three quarters of the history.
	Compact bool
	// Users makes root and that many users and roles, and turns authentication
	// on, last of all.
	Users int
}

const (
	batch    = 100 // operations a transaction; etcd allows 128
	writers  = 8
	shortest = 60 // seconds that a lease lives for certain while its keys are written
)

// Fill writes a load to the cluster at endpoints, without TLS, and reads back
// what there is to check a copy against. A cluster of Start is filled with
// Cluster.Fill.
func Fill(t testing.TB, endpoints []string, load Load) *Filled {
	t.Helper()
	config := client.Config{Endpoints: endpoints}
	return fill(t, newClient(t, config), config, load)
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

func fill(t testing.TB, client *clientv3.Client, config client.Config, load Load) *Filled {
	t.Helper()
	if load.Prefix == "" {
		load.Prefix = "/load/"
	}
	if load.ValueSize == 0 {
		load.ValueSize = 256
	}
	if load.LeaseTTL == 0 {
		load.LeaseTTL = 3600
	}
	steps := []func(context.Context, *clientv3.Client, Load) error{putKeys, overwrite, deleteKeys, grantLeases, compact}
	for _, step := range steps {
		require.NoError(t, step(t.Context(), client, load), "filling %v", client.Endpoints())
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
	require.NoError(t, err, "reading the load back")
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
			for k := range 3 {
				key := fmt.Sprintf("%sleased/%06d/%d", load.Prefix, i, k)
				_, err := client.Put(ctx, key, load.value(i, k), clientv3.WithLease(lease.ID))
				if load.LeaseTTL < shortest && errors.Is(err, rpctypes.ErrLeaseNotFound) {
					break // it has ended, on a machine with much else to do
				}
				if err != nil {
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
		_, err := client.RoleAdd(ctx, role)
		require.NoError(t, err, "adding %s", role)
		prefix := fmt.Sprintf("/%s/", user)
		_, err = client.RoleGrantPermission(ctx, role, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
		require.NoError(t, err, "granting to %s", role)
		_, err = client.UserAdd(ctx, user, "password-of-"+user)
		require.NoError(t, err, "adding %s", user)
		_, err = client.UserGrantRole(ctx, user, role)
		require.NoError(t, err, "granting %s to %s", role, user)
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
		out = append(out, `{"kind":"Pod","uid":"`...)
		out = hex.AppendEncode(out, binary.BigEndian.AppendUint64(nil, random.Uint64()))
		out = append(out, `"},`...)
	}
	return string(out[:l.ValueSize])
}

// Filled is what a cluster held when it had been filled: what a copy of it is
// checked against.
type Filled struct {
	Load     Load
	Revision int64
	Keys     map[string]KeyState
	Leases   map[int64]LeaseState
	Users    map[string][]string // roles
	Roles    []string
}

// KeyState is what optimistic locking relies on, and a sum of the value.
type KeyState struct {
	Create, Mod, Version, Lease int64
	Sum                         uint32
}

// LeaseState is what a lease was granted for and holds.
type LeaseState struct {
	GrantedTTL int64
	Keys       []string
}

// readFilled reads at one revision.
func readFilled(ctx context.Context, client *clientv3.Client, load Load) (*Filled, error) {
	f := &Filled{Load: load, Keys: map[string]KeyState{}, Leases: map[int64]LeaseState{}, Users: map[string][]string{}}
	for from, end := load.Prefix, clientv3.GetPrefixRangeEnd(load.Prefix); ; {
		resp, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(5000), clientv3.WithRev(f.Revision))
		if err != nil {
			return nil, fmt.Errorf("reading keys from %s: %w", from, err)
		}
		if f.Revision == 0 {
			f.Revision = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			f.Keys[string(kv.Key)] = KeyState{Create: kv.CreateRevision, Mod: kv.ModRevision, Version: kv.Version, Lease: kv.Lease, Sum: crc32.ChecksumIEEE(kv.Value)}
		}
		if !resp.More {
			break
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
	leases, err := client.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading leases: %w", err)
	}
	for _, lease := range leases.Leases {
		live, err := client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
		if err != nil {
			return nil, fmt.Errorf("reading lease %x: %w", lease.ID, err)
		}
		state := LeaseState{GrantedTTL: live.GrantedTTL}
		for _, key := range live.Keys {
			state.Keys = append(state.Keys, string(key))
		}
		slices.Sort(state.Keys)
		f.Leases[int64(lease.ID)] = state
	}
	users, err := client.UserList(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading users: %w", err)
	}
	for _, user := range users.Users {
		got, err := client.UserGet(ctx, user)
		if err != nil {
			return nil, fmt.Errorf("reading user %s: %w", user, err)
		}
		f.Users[user] = got.Roles
	}
	roles, err := client.RoleList(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading roles: %w", err)
	}
	f.Roles = roles.Roles
	return f, nil
}

// Compare reads a copy of the cluster and names what differs, at most ten of
// it. What was written elsewhere than under the load's prefix does not matter.
func (f *Filled) Compare(ctx context.Context, client *clientv3.Client) error {
	copied, err := readFilled(ctx, client, f.Load)
	if err != nil {
		return err
	}
	var d differences
	compareMaps(&d, "key", f.Keys, copied.Keys, func(a, b KeyState) bool { return a == b })
	compareMaps(&d, "lease", f.Leases, copied.Leases, func(a, b LeaseState) bool {
		return a.GrantedTTL == b.GrantedTTL && slices.Equal(a.Keys, b.Keys)
	})
	compareMaps(&d, "user", f.Users, copied.Users, slices.Equal)
	if !slices.Equal(f.Roles, copied.Roles) {
		d = append(d, fmt.Sprintf("roles: %v, want %v", copied.Roles, f.Roles))
	}
	return d.err()
}

type differences []string

func compareMaps[K int64 | string, V any](d *differences, what string, want, got map[K]V, equal func(a, b V) bool) {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[k]; !ok {
			*d = append(*d, fmt.Sprintf("%s %v is missing", what, k))
		} else if !equal(want[k], v) {
			*d = append(*d, fmt.Sprintf("%s %v: %+v, want %+v", what, k, v, want[k]))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[k]; !ok {
			*d = append(*d, fmt.Sprintf("%s %v should not be there", what, k))
		}
	}
}

func (d differences) err() error {
	if len(d) == 0 {
		return nil
	}
	shown := d[:min(10, len(d))]
	return errors.New(fmt.Sprintf("%d differences:\n", len(d)) + strings.Join(shown, "\n"))
}

// Fingerprint is the mode, size, time and content of all files and folders below
// some, by path: for tests of what must not be touched. Contents are a checksum that is
// quick: etcd allocates 64 MiB for each segment of its log.
func Fingerprint(t testing.TB, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			var data []byte
			if info.Mode().IsRegular() {
				if data, err = os.ReadFile(path); err != nil {
					return err
				}
			}
			all[path] = fmt.Sprintf("%s %d %s %x", info.Mode(), info.Size(), info.ModTime(), crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
			return nil
		})
		require.NoError(t, err)
	}
	require.NotEmpty(t, all)
	return all
}

// Ack is one write that the cluster acknowledged.
type Ack struct {
	Key, Value string
	Revision   int64
}

// Writer writes without a pause in the background, one put after the other,
// and keeps what was acknowledged. Failed puts are not kept; they may have
// happened.
type Writer struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	acks   []Ack
	failed int
}

// StartWriter begins to write numbered keys under prefix. It ends with the
// test, or with Stop.
func StartWriter(t testing.TB, client *clientv3.Client, prefix string) *Writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Writer{cancel: cancel, done: make(chan struct{})}
	go w.write(ctx, client, prefix)
	t.Cleanup(func() { w.Stop() })
	return w
}

func (w *Writer) write(ctx context.Context, client *clientv3.Client, prefix string) {
	defer close(w.done)
	for n := 0; ctx.Err() == nil; n++ {
		ack := Ack{Key: fmt.Sprintf("%s%09d", prefix, n), Value: fmt.Sprint("value ", n)}
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		resp, err := client.Put(bounded, ack.Key, ack.Value)
		cancel()
		w.mu.Lock()
		if err != nil {
			w.failed++
		} else {
			ack.Revision = resp.Header.Revision
			w.acks = append(w.acks, ack)
		}
		w.mu.Unlock()
		pause := time.Duration(Amount(25, 0, 0)) * time.Millisecond // with -short a load, and not all that a machine can do
		if err != nil {
			pause = 20 * time.Millisecond // the cluster may be down for a while
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Acknowledged is what was acknowledged so far.
func (w *Writer) Acknowledged() []Ack {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Ack(nil), w.acks...)
}

// WaitFor waits until n writes have been acknowledged, as long as there are more
// from minute to minute.
func (w *Writer) WaitFor(t testing.TB, n int) {
	t.Helper()
	last, deadline := 0, time.Time{}
	for {
		now := len(w.Acknowledged())
		if now >= n {
			return
		}
		if now > last || deadline.IsZero() { // it goes on, however slowly
			last, deadline = now, time.Now().Add(5*time.Minute)
		}
		if time.Now().After(deadline) {
			w.mu.Lock()
			defer w.mu.Unlock()
			t.Fatalf("%d writes acknowledged, %d failed; want %d acknowledged", len(w.acks), w.failed, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Stop ends the writing and gives all acknowledged writes. It may be called
// more than once.
func (w *Writer) Stop() []Ack {
	w.cancel()
	<-w.done
	return w.Acknowledged()
}
