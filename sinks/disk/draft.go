package disk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// tempFolder holds drafts. No object can be there: the elements of valid names
// don't start with a dot.
const tempFolder = ".tmp"

// draft is a file in tempFolder that is being written. Its lock shows that its
// writer lives.
type draft struct {
	root *os.Root
	file *os.File
	path string // empty once the file has another name only
}

func newDraft(root *os.Root) (*draft, error) {
	for range publishTries {
		d, err := tryDraft(root)
		if d != nil || err != nil {
			return d, err
		}
	}
	return nil, fmt.Errorf("others keep removing new files in %s", tempFolder)
}

// tryDraft returns nil without an error when a sweep was faster than the lock.
func tryDraft(root *os.Root) (*draft, error) {
	if err := root.Mkdir(tempFolder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	d := &draft{root: root, path: tempFolder + "/" + rand.Text()}
	file, err := root.OpenFile(d.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	d.file = file
	locked, err := tryLock(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s (does this file system have locks?): %w", d.path, err), d.close())
	}
	if locked {
		mine, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		if there, err := root.Lstat(d.path); err == nil && os.SameFile(there, mine) {
			return d, nil
		}
	}
	d.path = "" // the sweep has it
	return nil, d.close()
}

// publish gives the file its name in a folder that exists, or fails with
// fs.ErrExist, or fs.ErrNotExist if the folder does not exist. It links the file, and
// if the file system has no links renames it, if it can do that without replacing.
func (d *draft) publish(name string) error {
	err := d.root.Link(d.path, name)
	if !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EPERM) {
		return err
	}
	if err := renameNew(d.root, d.path, name); err != nil {
		return err
	}
	d.path = ""
	return nil
}

// close removes the draft's own name. It still has its lock then, so that the
// name is nobody else's.
func (d *draft) close() error {
	var err error
	if d.path != "" {
		err = ignoreAbsent(d.root.Remove(d.path))
	}
	return errors.Join(err, d.file.Close())
}

// sweep removes the drafts of processes that have ended. Their locks ended
// with them, whatever ended them.
func sweep(root *os.Root) error {
	folder, err := root.Open(tempFolder)
	if err != nil {
		return ignoreAbsent(err)
	}
	defer folder.Close() //nolint:errcheck // a folder that was only read
	for {
		entries, err := folder.ReadDir(listBatch)
		for _, entry := range entries {
			if entry.Type().IsRegular() {
				if err := sweepOne(root, tempFolder+"/"+entry.Name()); err != nil {
					return err
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return ignoreAbsent(err)
		}
	}
}

func sweepOne(root *os.Root, path string) error {
	// For writing, which NFS asks of who locks exclusively.
	file, err := root.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil // another user's, who sweeps it
	}
	if err != nil {
		return ignoreAbsent(err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	locked, err := tryLock(file)
	if err != nil || !locked {
		return err
	}
	return ignoreAbsent(root.Remove(path))
}
