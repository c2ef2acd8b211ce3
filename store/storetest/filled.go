package storetest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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
