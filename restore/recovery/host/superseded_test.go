package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
)

// logOf gives a host a log of a cluster.
func logOf(t *testing.T, cfg *Config, cluster uint64) {
	t.Helper()
	dir := filepath.Join(cfg.Member.DataDir, "member", "wal")
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: proto.Uint64(1), ClusterID: &cluster})
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dir))
	w, err := wal.Create(zap.NewNop(), dir, metadata)
	require.NoError(t, err)
	require.NoError(t, w.Close())
}

// TestSupersededOverTheLine: a member of a cluster whose timeline has ended in a
// repository is not started, by whatever host process; without such a mark it is.
func TestSupersededOverTheLine(t *testing.T) {
	t.Parallel()
	cfg := quietHost(t)
	started := filepath.Join(t.TempDir(), "started")
	cfg.Member.Command.Start = []string{"/bin/sh", "-c", "touch " + started + "; exit 1"}
	cfg.Member.StartTimeout = patience
	old, newer := repository.TimelineID{ClusterID: 0x5bd6, N: 1}, repository.TimelineID{ClusterID: 0x7ac0, N: 1}
	logOf(t, cfg, old.ClusterID)
	folder := t.TempDir()
	place, err := disk.New(folder)
	require.NoError(t, err)
	defer place.Close()
	repo, err := repository.Init(t.Context(), place, time.Now())
	if err == nil {
		err = errors.Join(repo.OpenTimeline(t.Context(), repository.Timeline{ID: old, Created: time.Now(), Reason: "test"}),
			repo.Supersede(t.Context(), repository.Superseded{Timeline: old, By: newer, Reason: "recovered", Created: time.Now()}))
	}
	require.NoError(t, err)
	ended, warnings := ReadEnded(t.Context(), []string{folder}, signing.Keys{})
	require.Empty(t, warnings)
	for range 2 {
		_, err := lineTo(t, cfg, "test").As(run1).Start(t.Context(), ended)
		if codeOf(err) != Unstartable || !strings.Contains(err.Error(), old.String()+" was superseded by "+newer.String()) {
			t.Errorf("%v", err)
		}
	}
	_, err = os.Stat(started)
	require.ErrorIs(t, err, os.ErrNotExist, "it was started")
	if _, err := lineTo(t, cfg, "test").As(run1).Start(t.Context(), nil); codeOf(err) != Failed {
		t.Errorf("its command fails: %v", err)
	}
	_, err = os.Stat(started)
	require.NoError(t, err, "it was not started")
}
