package store

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClose_Clean_LogsNoErrors proves that etcd's log has no errors of a clean end.
func TestClose_Clean_LogsNoErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.log")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := StartCluster(ctx, ClusterConfig{DataDir: t.TempDir(), Members: 1, FreePorts: true, Settings: Settings{LogFile: path}})
	require.NoError(t, err)
	require.NoError(t, c.Close(ctx))
	log, err := os.ReadFile(path)
	require.NoError(t, err)
	if strings.Contains(string(log), `"level":"error"`) {
		t.Errorf("the log has:\n%s", log)
	}
}
