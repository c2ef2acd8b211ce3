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
	"github.com/requorum/requorum/store/client"
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

func startMember(t *testing.T, config store.MemberConfig) *store.Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	member, err := store.StartMember(ctx, config)
	require.NoError(t, err)
	t.Cleanup(member.Kill)
	return member
}

// Promise 3: a data directory is started as what it is, or not at all.
func TestMemberExistingDataDir(t *testing.T) {
	t.Parallel()
	config := memberConfig(t, "one")
	config.WALDir = filepath.Join(t.TempDir(), "wal")
	config.QuotaBytes, config.SnapshotCount, config.InitialCorruptCheck = 64<<20, 100, true
	config.AutoCompactionMode, config.AutoCompactionRetention = "revision", "1000"
	member := startMember(t, config)
	_, err := store.StartMember(t.Context(), config)
	require.ErrorIs(t, err, store.ErrDataDirInUse, "starting a second time on the same directory")
	require.NoError(t, member.Close(t.Context()))
	wrong := config
	wrong.Name = "two"
	_, err = store.StartMember(t.Context(), wrong)
	require.ErrorContains(t, err, `belongs to member "one"`, "another name")
	again := startMember(t, member.Config())
	if again.ID() != member.ID() {
		t.Errorf("started again as %x, was %x", again.ID(), member.ID())
	}
	client, err := client.Dial(t.Context(), client.Config{Endpoints: again.Endpoints()})
	require.NoError(t, err)
	defer client.Close()
	survey, err := client.Survey(t.Context())
	if err != nil || survey.Members[0].DBSizeQuota != 64<<20 || survey.Members[0].Name != "one" {
		t.Errorf("survey %+v, %v", survey, err)
	}
}

// Plain text beyond loopback is refused, and leaves no folder behind, unless it is allowed.
func TestMemberPlaintext(t *testing.T) {
	t.Parallel()
	config := memberConfig(t, "m1")
	config.ListenClientURLs = []string{strings.Replace(config.ListenClientURLs[0], "127.0.0.1", "0.0.0.0", 1)}
	_, err := store.StartMember(t.Context(), config)
	require.ErrorContains(t, err, "without TLS")
	require.NoDirExists(t, config.DataDir)
	config.AllowPlaintext = true
	startMember(t, config)
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
