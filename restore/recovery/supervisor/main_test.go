package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// TestMain: as `PROGRAM client MODE` this program is a client of a cluster; as
// `PROGRAM named NAME` it prints the process table of a name, and how the evidence fails.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "client" {
		os.Exit(client(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "named" {
		table, err := ProcessesNamed(os.Args[2])
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		stopped := evidence{process: os.Args[2]}.stopped()
		_ = json.NewEncoder(os.Stdout).Encode(named{table, errors.Is(stopped, ErrRuns), errors.Is(stopped, ErrUnproven)}) // whoever asked sees what is missing
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// named is what `PROGRAM named NAME` prints.
type named struct {
	*ProcessTable
	Runs, Unproven bool
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
		for { // until the test has seen it wait
			if _, err := os.Lstat(os.Args[0] + ".hold"); err != nil {
				return 0
			}
			time.Sleep(5 * time.Millisecond)
		}
	case "deaf":
		select {}
	case "crashing":
		time.Sleep(30 * time.Millisecond)
		return 1
	}
	return 0
}

// programs counts them.
var programs atomic.Int64

// program is this one under a name that no other process of the host has, of this
// test binary's neither: tests run side by side.
func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprintf("%s-%d-%d", name, os.Getpid(), programs.Add(1)))
	exe, err := os.Executable()
	if err == nil {
		err = os.Symlink(exe, path)
	}
	require.NoError(t, err)
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

// data is the data directory of a real etcd that was killed.
func data(t *testing.T) (dir, name string) {
	t.Helper()
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	c.Kill(0)
	return c.Member(0).DataDir, c.Member(0).Name
}

func soon(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	if err := storetest.WriteProgram(path, []byte(text), mode); err != nil { // it may be one
		t.Fatal(err)
	}
}
