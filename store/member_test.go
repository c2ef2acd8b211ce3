package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
)

func memberConfig(t *testing.T, name string) store.MemberConfig {
	t.Helper()
	return store.MemberConfig{
		Name: name, DataDir: filepath.Join(t.TempDir(), name), Settings: quiet(),
		ListenClientURLs: []string{"http://" + storetest.FreeAddress(t)},
		ListenPeerURLs:   []string{"http://" + storetest.FreeAddress(t)},
	}
}

// A member of three that is alone cannot serve: the start ends with its
// context, and says what it waited for.
func TestMemberAloneWithoutQuorum(t *testing.T) {
	t.Parallel()
	config := memberConfig(t, "m1")
	config.InitialCluster = "m1=" + config.ListenPeerURLs[0] + ",m2=http://127.0.0.1:2,m3=http://127.0.0.1:3"
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := store.StartMember(ctx, config)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does a quorum of m1=") {
		t.Errorf("got %v", err)
	}
}

// A member that ends by itself says so on Err.
func TestMemberRemovedFromCluster(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, store.ClusterConfig{DataDir: t.TempDir(), Members: 3, FreePorts: true, Settings: quiet()})
	victim := cluster.Members()[2]
	client := etcdClient(t, cluster.Members()[0].Endpoints()...)
	storetest.Reconfigure(t, func(ctx context.Context) error {
		_, err := client.MemberRemove(ctx, victim.ID())
		return err
	}, rpctypes.ErrMemberNotFound)
	select {
	case err := <-cluster.Err():
		require.ErrorContains(t, err, "member m3")
	case <-time.After(time.Minute):
		t.Error("the removal went unnoticed")
	}
}
