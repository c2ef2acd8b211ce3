package member

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
)

// TestMain: as `member.test store DIR` this program is the bundled store.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "store" {
		if err := runStore(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runStore(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := store.StartMember(ctx, store.MemberConfig{
		DataDir: dir, Name: "m1", ListenClientURLs: []string{"http://127.0.0.1:0"}, ListenPeerURLs: []string{"http://127.0.0.1:0"},
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return s.Close(context.Background())
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
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
