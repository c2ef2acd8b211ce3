package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
)

// markerName is a repository's first object, which stays for as long as the
// repository does. Other roots have none.
const markerName = "requorum.json"

// markerLimit is far more than a marker has.
const markerLimit = 1 << 16

// errGone says that the root was there and is not. It is no fs.ErrNotExist: that
// would be an object that is not there, and a List without objects.
var errGone = errors.New("the folder is gone: is it unmounted? Nothing is written in its place; it goes on when the folder is back")

// seen is what a Sink knows of its root since it first opened it.
type seen struct {
	info   fs.FileInfo // nil: it was never opened
	marker []byte      // nil: it had none so far
}

// recognize looks whether root is the folder that was seen before, and not what
// stands in its place, such as the empty mount point of a file system that was
// unmounted.
//
// The same device and inode are the same folder. Others may be too: both can
// change when a file system is mounted anew, and some network file systems make
// inodes up. Then what lies in it decides: the marker, where one was seen, and
// otherwise that anything at all is there.
func (s *Sink) recognize(root *os.Root) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.seen.info == nil || os.SameFile(s.seen.info, info)
	if known && s.seen.marker != nil {
		return nil
	}
	marker, err := readMarker(root)
	if err != nil {
		return err
	}
	if !known {
		same := marker != nil && bytes.Equal(marker, s.seen.marker)
		if s.seen.marker == nil {
			if same, err = holdsAnything(root); err != nil {
				return err
			}
		}
		if !same {
			return errGone
		}
	}
	s.seen = seen{info, marker}
	return nil
}

// wasSeen says whether the root was ever there.
func (s *Sink) wasSeen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.info != nil
}

// readMarker is nil where there is none that can be compared.
func readMarker(root *os.Root) ([]byte, error) {
	info, err := root.Lstat(markerName)
	if err != nil || !info.Mode().IsRegular() {
		return nil, ignoreAbsent(err)
	}
	file, err := root.Open(markerName)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil // who needs it, learns of it
	}
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(file, markerLimit))
}

func holdsAnything(root *os.Root) (bool, error) {
	folder, err := root.Open(".")
	if err != nil {
		return false, err
	}
	defer folder.Close() //nolint:errcheck // it was only read
	_, err = folder.ReadDir(1)
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}
