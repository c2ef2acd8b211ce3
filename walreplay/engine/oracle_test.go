package engine

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Promise 1: our backend leads to what etcd's own backend
// leads to.
func TestPromise1EqualsEtcdsOwn(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(6) {
		entries := generate(t, seed, 3000)
		for _, e := range entries {
			kind, err := Kind(e)
			require.NoError(t, err)
			kinds[kind]++
		}
		got := replayed(t, empty(t), Options{}, entries)
		want := replayed(t, empty(t), Options{etcdBackend: true}, entries)
		expectEqual(t, got, want)
		for _, bucket := range []string{"key", "lease", "members", "members_removed", "authUsers", "authRoles"} {
			if len(got[bucket]) == 0 {
				t.Errorf("seed %d: bucket %s is empty, which proves nothing of it", seed, bucket)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Log(slices.Sorted(maps.Keys(kinds)), kinds)
}
