package host

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
)

// bad reads some of a file, and then gives an error, as a bad disk does.
type bad struct {
	*os.File
	left int
}

func (b *bad) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, &os.PathError{Op: "read", Path: b.Name(), Err: syscall.EIO}
	}
	n, err := b.File.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// TestUnreadable: a journal that cannot be read to its end is no torn one. What it
// says of data that was set aside stays in it.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	j := openHost(t, dir)
	addHost(t, j, record{Run: "run-1", Step: stepDecided, Decision: &Decision{Run: "run-1", Epoch: 1, Data: []byte("1")}})
	addHost(t, j, record{Run: "run-1", Step: stepSetAside, Aside: &restore.Aside{Run: "run-1", Folder: "/x"}})
	j.Close()
	path := filepath.Join(dir, "journal.jsonl")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for left := range before {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		again := &journal{path: path}
		err = takeUp(&bad{f, left}, again.take)
		f.Close()
		require.ErrorContains(t, err, syscall.EIO.Error(), "after %d bytes", left)
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Fatalf("after %d bytes the journal is changed (%v):\n%s", left, err, after)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, takeUp(&bad{f, len(before) + 1}, (&journal{}).take))
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != int64(len(before)) {
		t.Errorf("it goes on at %d (%v)", at, err)
	}
}
