package store

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Closing on purpose is no error: etcd's log stays empty at that level.
func TestCleanCloseLogsNoErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.log")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := StartCluster(ctx, ClusterConfig{DataDir: t.TempDir(), Members: 1, FreePorts: true, Settings: Settings{LogLevel: "error", LogOutputs: []string{path}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(log) != 0 {
		t.Errorf("the log has:\n%s", log)
	}
}
