package disk

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/sinks"
)

// asNobody runs do with the file rights of a user who has none. It needs root
// to change; others are refused by the modes alone.
func asNobody(t *testing.T, do func()) {
	if os.Getuid() != 0 {
		do()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is never unlocked: it ends with the goroutine, and its
		// changed identity with it.
		runtime.LockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}

// TestNoPermission: who may not read or write is told so, and never that
// nothing is there.
func TestNoPermission(t *testing.T) {
	for way, named := range ways {
		t.Run(way, func(t *testing.T) {
			outer := t.TempDir()
			root := filepath.Join(outer, "root")
			s := newSink(t, root, named)
			mustPut(t, s, "a/b", []byte("data"))
			if err := os.Chmod(root, 0); err != nil {
				t.Fatal(err)
			}
			asNobody(t, func() {
				denied := func(what string, err error) {
					t.Helper()
					if !errors.Is(err, sinks.ErrDenied) || errors.Is(err, sinks.ErrNotFound) || !strings.Contains(err.Error(), "give the user") {
						t.Errorf("%s: %v", what, err)
					}
				}
				_, err := sinks.Put(t.Context(), s, "c", nil, sinks.CreateOptions{})
				denied("put", err)
				_, err = s.Stat(t.Context(), "a/b")
				denied("stat", err)
				_, err = s.Open(t.Context(), "a/b", 0, -1)
				denied("open", err)
				denied("delete", s.Delete(t.Context(), "a/b"))
				err = nil
				for _, e := range s.List(t.Context(), "", "") {
					err = e
				}
				denied("list", err)
			})
			if err := os.Chmod(root, 0o700); err != nil {
				t.Fatal(err)
			}
		})
	}
}
