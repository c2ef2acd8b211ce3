package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
)

// recordSyncs lets s note the last element of the path of what it syncs, and
// fail with err at what has the name failing.
func recordSyncs(s *Sink, failing string, err error) *[]string {
	var synced []string
	s.sync = func(file *os.File) error {
		name := filepath.Base(file.Name())
		if info, statErr := file.Stat(); statErr == nil && info.Mode().IsRegular() {
			name = "the file"
		}
		if name == "." {
			name = "root"
		}
		synced = append(synced, name)
		if name == failing {
			return err
		}
		return file.Sync()
	}
	return &synced
}

// TestPromise3Synced: the file is synced before it has its name, then every
// folder up to the root, each time; and the root's own folder and what was
// made above it before anything else.
func TestPromise3Synced(t *testing.T) {
	outer := filepath.Join(t.TempDir(), "outer")
	require.NoError(t, os.Mkdir(outer, 0o700))
	s := newSink(t, filepath.Join(outer, "made", "root"))
	synced := recordSyncs(s, "", nil)
	mustPut(t, s, "a/b/object", nil)
	want := []string{"outer", "made", "made", "the file", "b", "a", "root"}
	if got := *synced; !slices.Equal(got, want) {
		t.Errorf("synced %q, want %q", got, want)
	}
	*synced = nil
	mustPut(t, s, "a/b/second", nil)
	if got, want := *synced, []string{"the file", "b", "a", "root"}; !slices.Equal(got, want) {
		t.Errorf("synced %q, want %q", got, want)
	}
	*synced = nil
	require.NoError(t, s.Delete(t.Context(), "a/b/second"))
	if got, want := *synced, []string{"b", "a", "root"}; !slices.Equal(got, want) {
		t.Errorf("deleting synced %q, want %q", got, want)
	}
}

// TestPromise1SyncFails: when the disk does not take the file, or the name, the
// object is not there, and nothing says that it is. The sync is not repeated.
func TestPromise1SyncFails(t *testing.T) {
	for _, failing := range []string{"the file", "b", "a", "root"} {
		t.Run(failing, func(t *testing.T) {
			s := newSink(t, filepath.Join(t.TempDir(), "root"))
			mustPut(t, s, "a/first", nil)
			synced := recordSyncs(s, failing, syscall.EIO)
			_, err := sinks.Put(t.Context(), s, "a/b/object", []byte("data"), sinks.CreateOptions{})
			if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "a/b/object in file://") {
				t.Errorf("put: %v", err)
			}
			tries := 0
			for _, name := range *synced {
				if name == failing {
					tries++
				}
			}
			if tries != 1 {
				t.Errorf("%s was synced %d times: %q", failing, tries, *synced)
			}
			if got := tree(t, s.path); !slices.Equal(got, []string{"a", filepath.Join("a", "first")}) {
				t.Errorf("left: %q", got)
			}
		})
	}
}

// TestFoldersThatCannotSync: some file systems have no such call. That is no
// failure, but it is said.
func TestFoldersThatCannotSync(t *testing.T) {
	s := freshSink(t)
	s.sync = func(file *os.File) error {
		if info, err := file.Stat(); err != nil || info.IsDir() {
			return errors.Join(err, syscall.EINVAL)
		}
		return file.Sync()
	}
	mustPut(t, s, "a/b", nil)
	able, err := s.Abilities(t.Context())
	if err != nil || !slices.ContainsFunc(able.Notes, func(note string) bool { return strings.Contains(note, "cannot sync folders") }) {
		t.Errorf("%+v, %v", able, err)
	}
}

// TestDeleteBesideCreate: Delete removes emptied folders while Commit needs
// them. Every Put must succeed, and every List.
func TestDeleteBesideCreate(t *testing.T) {
	s := freshSink(t)
	s.sync = func(*os.File) error { return nil } // for more rounds in less time
	var writers sync.WaitGroup
	for _, stream := range []string{"1", "2", "3", "4"} {
		writers.Go(func() {
			for range 300 {
				name := "deep/er/" + stream
				if _, err := sinks.Put(t.Context(), s, name, nil, sinks.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
				if err := s.Delete(t.Context(), name); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for listing := true; listing; {
		select {
		case <-done:
			listing = false
		default:
			for _, err := range s.List(t.Context(), "deep/er/", "") {
				if err != nil {
					t.Error(err) // the writers go on
				}
			}
		}
	}
	if got := tree(t, s.path); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// TestTruncatedUnderTheReader: a file that shrank is not a clean end.
func TestTruncatedUnderTheReader(t *testing.T) {
	s := freshSink(t)
	mustPut(t, s, "a", make([]byte, 1000))
	r, err := s.Open(t.Context(), "a", 0, -1)
	require.NoError(t, err)
	defer r.Close() // only read
	require.NoError(t, os.Truncate(filepath.Join(s.path, "a"), 500))
	n, err := io.Copy(io.Discard, r)
	if n != 500 || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "500 bytes are missing") {
		t.Errorf("%d, %v", n, err)
	}
}

// TestPromise1SyncAndWithdrawFail: an object that has its name, may not be
// durable and cannot be taken back is neither stored nor absent.
func TestPromise1SyncAndWithdrawFail(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	s := newSink(t, root)
	struck := false
	s.sync = func(file *os.File) error {
		if struck || filepath.Base(file.Name()) != "a" {
			return file.Sync()
		}
		struck = true
		// A link that leads out of the root is followed by nobody.
		return errors.Join(syscall.EIO, os.Rename(filepath.Join(root, "a"), filepath.Join(root, "moved")), os.Symlink("/", filepath.Join(root, "a")))
	}
	_, err := sinks.Put(t.Context(), s, "a/object", []byte("data"), sinks.CreateOptions{})
	if !struck {
		t.Fatal("the fault never fired")
	}
	if !errors.Is(err, sinks.ErrUncertain) || !errors.Is(err, syscall.EIO) {
		t.Errorf("put: %v", err)
	}
	_, err = os.Stat(filepath.Join(root, "moved", "object"))
	require.NoError(t, err, "the object was to stay")
}
