package web

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/config"
)

// TestMain: as `PROGRAM start-job SOCKET` this program asks for a job, and prints
// how it was answered.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "start-job" {
		answer, err := startJob(os.Args[2])
		if err != nil {
			answer = err.Error()
		}
		_, _ = io.WriteString(os.Stdout, answer) // whoever asked sees what is missing
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func startJob(socket string) (string, error) {
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	r, err := c.Post("http://localhost/api/v1/jobs/full", "application/json", strings.NewReader("{}"))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	return r.Status, nil
}

// TestWhoStartsJobs: root and the agent's own user do, over the socket; another
// local user does not, even where the modes of files would let it; and nobody does
// over the port, on loopback or with a client certificate.
func TestWhoStartsJobs(t *testing.T) {
	var started atomic.Int32
	h := New(Options{Status: statusOf(known()), Trigger: func(context.Context, string, json.RawMessage) (string, error) {
		started.Add(1)
		return "x", nil
	}})
	dir, err := os.MkdirTemp("/tmp", "requorum-socket-") // as its path is short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "run", "agent.sock")
	ln, err := ListenSocket(t.Context(), path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	port, err := Listen(t.Context(), config.Listen{Address: "127.0.0.1:0"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	for _, l := range []net.Listener{ln, port} {
		go func() { done <- Serve(ctx, l, h, slog.New(slog.DiscardHandler)) }()
	}
	defer func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket stays behind: %v", err)
		}
	}()
	if answer, err := startJob(path); err != nil || !strings.HasPrefix(answer, "202") || started.Load() != 1 {
		t.Errorf("this user: %s %v", answer, err)
	}
	r, err := http.Post("http://"+port.Addr().String()+"/api/v1/jobs/prune", "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	r.Body.Close()
	if r.StatusCode != http.StatusForbidden || started.Load() != 1 {
		t.Errorf("over the port: %s", r.Status)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder: %v %v", info.Mode(), err)
	}
	if os.Getuid() != 0 {
		if os.Getenv("REQUORUM_CI") == "1" {
			t.Fatal("another user takes root")
		}
		t.Skip("another user takes root")
	}
	// All modes open: what is left is the kernel's word.
	for p, mode := range map[string]os.FileMode{dir: 0o755, filepath.Dir(path): 0o777, path: 0o777} {
		require.NoError(t, os.Chmod(p, mode))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	data, err := os.ReadFile(self)
	require.NoError(t, err)
	program := filepath.Join(dir, "attacker")
	require.NoError(t, os.WriteFile(program, data, 0o755))
	attacker := exec.Command(program, "start-job", path)
	attacker.Dir = "/"
	attacker.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := attacker.CombinedOutput()
	// Hung up on: before, while or after it asked.
	hungUp := slices.ContainsFunc([]string{"EOF", "reset", "broken pipe", "closed idle connection"}, func(s string) bool { return strings.Contains(string(out), s) })
	if err != nil || !hungUp || started.Load() != 1 {
		t.Errorf("another user: %s %v; %d jobs started", out, err, started.Load())
	}
}

// TestSocketThatIsThere: what a killed agent left is removed, a socket that another
// one listens on is not, and neither is a file; a folder that others write to is
// refused.
func TestSocketThatIsThere(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "requorum-socket-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "agent.sock")
	logger := slog.New(slog.DiscardHandler)
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	if ln, err := ListenSocket(t.Context(), path, logger); err == nil {
		ln.Close()
		t.Fatal("another agent's socket was taken")
	}
	killed.SetUnlinkOnClose(false)
	killed.Close()
	ln, err := ListenSocket(t.Context(), path, logger)
	require.NoError(t, err, "after a kill")
	ln.Close()
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	if ln, err := ListenSocket(t.Context(), path, logger); err == nil {
		ln.Close()
		t.Error("a file was taken for a socket")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "x" {
		t.Errorf("the file: %q %v", data, err)
	}
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
	if ln, err := ListenSocket(t.Context(), filepath.Join(dir, "other.sock"), logger); err == nil || !strings.Contains(err.Error(), "can write to") {
		ln.Close()
		t.Errorf("a folder of everybody's: %v", err)
	}
}
