package recovertest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// What was acknowledged is known, and found to be missing where it is.
func TestLightLoad(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	called := 0
	l := LightLoad(t, "/a/", Writes(40), func() { called++ }, c.Client(t), c.Client(t))
	if got := len(l.Acks()); got < 40 || called != 1 {
		t.Errorf("%d acknowledged, and the end was told %d times", got, called)
	}
	client := c.Client(t)
	if missing := l.Missing(t, "/a/", client); len(missing) != 0 {
		t.Errorf("missing: %v", missing)
	}
	keys := slices.Collect(maps.Keys(l.Acks())) // one client may have written them all
	_, err := client.Put(t.Context(), keys[0], "other")
	require.NoError(t, err)
	_, err = client.Delete(t.Context(), keys[1])
	require.NoError(t, err)
	if missing := l.Missing(t, "/a/", client); len(missing) != 2 {
		t.Errorf("two keys were changed, and %d are told: %v", len(missing), missing)
	}
}

// What a test binary that was killed has left goes when the next site begins,
// and what another one has does not.
func TestLeftovers(t *testing.T) {
	needNetwork(t)
	require.NoError(t, os.MkdirAll(locks(), 0o700))
	left, lock := takeNumber(t)
	addBridge(t, left)
	space := addHost(t, left, 1)
	p := space.start(t, filepath.Join(t.TempDir(), "log"), os.Environ(), "sleep", "1000")
	other, otherLock := takeNumber(t)
	if !p.Running() || other == left {
		t.Fatalf("number %d was taken from its owner", left)
	}
	lock.Close() // as the kernel does for a process that is killed
	removeLeftovers(t)
	<-p.Done()
	if exists(filepath.Join(netnsDir, string(space))) || exists("/sys/class/net/"+bridgeName(left)) {
		t.Errorf("namespace or bridge of number %d is still there", left)
	}
	otherLock.Close()
}
