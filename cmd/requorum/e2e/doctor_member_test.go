package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// The unit of a member still has what it was first started with.
func TestDoctor_InitialClusterStateNew_Warned(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	const want = "was started with --initial-cluster-state=new: if its disk is lost"
	args := []string{"doctor", "--endpoints", strings.Join(c.Endpoints(), ","), "--data-dir", c.Member(0).DataDir}
	require.Contains(t, u.Must(t, exitOK, args...).Stdout, want)
	c.StopAll()
	c.Restart(t, 0, "--initial-cluster-state=existing")
	c.WaitReady(t)
	require.NotContains(t, u.Must(t, exitOK, args...).Stdout, want)
}
