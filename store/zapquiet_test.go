package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
)

// Each way to say that a listener was closed is left out, also wrapped, and
// nothing else is.
func TestQuietLeavesOutClosedListenersOnly(t *testing.T) {
	core, lines := observer.New(zap.ErrorLevel)
	log := zap.New(quiet(core)).With(zap.String("member", "m1"))
	for _, closed := range []error{
		http.ErrServerClosed, errors.New("mux: server closed"), errors.New("mux: listener closed"), grpc.ErrServerStopped, net.ErrClosed,
		fmt.Errorf("accept tcp: %w", net.ErrClosed), errors.New("server is stopping"),
	} {
		log.Error("setting up serving from embedded etcd failed.", zap.Error(closed))
	}
	if n := lines.Len(); n != 0 {
		t.Errorf("%d lines of closed listeners: %v", n, lines.All())
	}
	for _, failed := range []error{errors.New("bind: address already in use"), errors.New("etcdserver: server is stopping soon")} {
		log.Error("setting up serving from embedded etcd failed.", zap.Error(failed))
	}
	log.Error("a line without an error")
	if n := lines.Len(); n != 3 {
		t.Errorf("%d of 3 lines that report failures: %v", n, lines.All())
	}
}

// Closing on purpose is no error: etcd's log stays empty at that level.
func TestCleanCloseLogsNoErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.log")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := StartCluster(ctx, ClusterConfig{DataDir: t.TempDir(), Members: 1, FreePorts: true, Settings: Settings{LogLevel: "error", LogOutputs: []string{path}}})
	require.NoError(t, err)
	require.NoError(t, c.Close(ctx))
	log, err := os.ReadFile(path)
	require.NoError(t, err)
	if len(log) != 0 {
		t.Errorf("the log has:\n%s", log)
	}
}
