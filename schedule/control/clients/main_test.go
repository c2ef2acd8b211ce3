package clients

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestMain: as `PROGRAM client MODE` this program is a client of a cluster.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "client" {
		os.Exit(client(os.Args[2]))
	}
	os.Exit(m.Run())
}

// client is one that ends on SIGTERM: at once, after half a second as one with requests
// under way, or never; or one that crashes by itself.
func client(mode string) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	if os.WriteFile(os.Args[0]+".ready", nil, 0o600) != nil {
		return 1
	}
	switch mode {
	case "quick":
		<-asked
	case "busy":
		<-asked
		time.Sleep(500 * time.Millisecond)
	case "deaf":
		select {}
	case "crashing":
		time.Sleep(30 * time.Millisecond)
		return 1
	}
	return 0
}

// program is this one under a name that no other process of the host has.
func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprintf("%s-%d", name, os.Getpid()))
	exe, err := os.Executable()
	if err == nil {
		err = os.Symlink(exe, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ready waits until a program of ours can hear a signal.
func ready(t *testing.T, exe string) {
	t.Helper()
	for range 1000 {
		if _, err := os.Stat(exe + ".ready"); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s is not ready", exe)
}

func soon(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
