package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The process that reads a strange database does not get this one's secrets.
func TestMembersGetNoSecrets(t *testing.T) {
	for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "REQUORUM_SIGNING_KEY", "HTTPS_PROXY"} {
		t.Setenv(name, "hunter2")
	}
	path := filepath.Join(t.TempDir(), "environment")
	lock, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer lock.Close()
	p, err := launch([]string{"/bin/sh", "-c", `env >"$0"`, path}, lock)
	require.NoError(t, err)
	_, err = p.order(t.Context(), order{})
	require.Error(t, err, "a shell gave an answer")
	<-p.gone
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	if text := string(got); strings.Contains(text, "hunter2") || !strings.Contains(text, membersVariable+"=1") || !strings.Contains(text, "PATH=") {
		t.Errorf("the members' environment:\n%s", text)
	}
}

// What a process leaves behind when it ends by itself ends with it, before the
// process is reaped: from then on the number of its group may be somebody else's,
// and nothing is sent to it any more.
func TestNothingIsSentToAReapedProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "left")
	lock, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer lock.Close()
	p, err := launch([]string{"/bin/sh", "-c", `sleep 60 >/dev/null 2>&1 & echo $! >"$0"`, path}, lock)
	require.NoError(t, err)
	if _, err := p.order(t.Context(), order{}); err == nil {
		t.Error("a shell gave an answer")
	}
	<-p.gone
	if p.err != nil {
		t.Errorf("how it ended is lost: %v", p.err)
	}
	sent := true
	p.once.Do(func() { sent = false })
	if !sent {
		t.Error("the group is not ended yet: a signal would still be sent to its number")
	}
	left, err := os.ReadFile(path)
	require.NoError(t, err)
	stat := filepath.Join("/proc", strings.TrimSpace(string(left)), "stat")
	for range 100 { // its parent may be slow to take note
		if data, err := os.ReadFile(stat); err != nil || strings.Contains(string(data), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("what it had started is alive")
}
