// Package safedir works on files below directories that another user may write
// to, such as a member's data directory: etcd's user owns it, and a restore of it
// runs as root.
//
// Its functions take paths, as those of package os do, and differ from them in
// what they refuse:
//
//   - A path is walked folder by folder, on descriptors. A symbolic link is
//     followed only where nobody but root and the effective user could have put
//     it there: it lies in a folder that belongs to one of them and that others
//     may not write to (or in one with the sticky bit, and the link itself belongs
//     to one of them). So a data directory may be a link that an administrator
//     made, and a folder that this process filled with links is read through
//     them, but no link inside a data directory of etcd's user is followed.
//     Whatever is put in the way meanwhile, a path never leads out of the
//     directory that the other user owns.
//   - Only regular files are opened, and opening never waits: a FIFO, a socket or
//     a device is an error.
//   - In a folder that others may write to, a file with several names (hard links)
//     is opened only where it belongs to the folder's owner: it may be anybody's.
//   - What is created is new. Nothing that is there is truncated.
//
// A process without privileges, which could not do more than the other user's
// link could ask of it, follows links as the kernel does; all else holds for it
// as well.
//
// What cannot be written with these functions alone, since a library takes a
// path, belongs into a Private folder: nobody else gets into it, and Dir.Path
// leads into it even where the folder was given another name.
package safedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNoExchange says that a file system cannot swap two names.
var ErrNoExchange = errors.New("this file system cannot swap two folders in one step")

// at does something in the folder that path ends in, with its last name.
func at(path string, last bool, do func(d *Dir, base string) error) error {
	d, base, ok := direct(path, last)
	if !ok {
		var err error
		if d, base, err = locate(path, last); err != nil {
			return err
		}
	}
	return errors.Join(do(d, base), d.Close())
}

// within does something in a folder.
func within(path string, do func(*Dir) error) error {
	return at(path, true, func(parent *Dir, base string) error {
		d, err := parent.sub(base)
		if err != nil {
			return err
		}
		return errors.Join(do(d), d.Close())
	})
}

// OpenDir opens a directory. The caller closes it.
func OpenDir(path string) (*Dir, error) {
	d, base, err := locate(path, true)
	if err != nil || base == "." {
		return d, err
	}
	s, err := d.sub(base)
	return s, errors.Join(err, d.Close())
}

// Open opens a regular file for reading. The caller closes it; its name is the
// path without links.
func Open(path string) (f *os.File, err error) {
	err = at(path, true, func(d *Dir, base string) error {
		f, err = d.open(base, unix.O_RDONLY)
		return err
	})
	return f, err
}

// OpenWritable opens a regular file that is there for reading and writing.
func OpenWritable(path string) (f *os.File, err error) {
	err = at(path, true, func(d *Dir, base string) error {
		f, err = d.open(base, unix.O_RDWR)
		return err
	})
	return f, err
}

// Create makes a new file for reading and writing, with mode 0600, and fails with
// os.ErrExist where anything of that name is there.
func Create(path string) (f *os.File, err error) {
	err = at(path, false, func(d *Dir, base string) error {
		f, err = d.create(base, unix.O_RDWR)
		return err
	})
	return f, err
}

// Temporary is TemporaryIn os.TempDir.
func Temporary() (*os.File, error) { return TemporaryIn("") }

// TemporaryIn opens a new file for reading and writing in a directory, without a name:
// nothing is left of it, however this process ends. The caller closes it.
func TemporaryIn(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".requorum-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Append opens a regular file so that what is written is added to it, and makes it where
// it is not there, with mode 0600.
func Append(path string) (f *os.File, err error) {
	const flags = unix.O_WRONLY | unix.O_APPEND
	err = at(path, true, func(d *Dir, base string) error {
		if f, err = d.open(base, flags); errors.Is(err, fs.ErrNotExist) {
			f, err = d.create(base, flags)
		}
		return err
	})
	return f, err
}

func (d *Dir) create(name string, flags int) (*os.File, error) {
	fd, err := openat(d.fd, name, flags|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, d.err("create", name, err)
	}
	return newFile(fd, filepath.Join(d.path, name)), nil
}

// newFile takes a descriptor over, and lets its reads wait as any file's do.
func newFile(fd int, path string) *os.File {
	_ = unix.SetNonblock(fd, false) // matters to nobody where it fails: it is a regular file or a folder
	return os.NewFile(uintptr(fd), path)
}

func (d *Dir) open(name string, flags int) (*os.File, error) {
	// A device may do something already when it is opened.
	info, err := d.lstat(name)
	switch {
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, fmt.Errorf("%s %w", filepath.Join(d.shown, name), ErrLink)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", filepath.Join(d.shown, name))
	}
	fd, err := openat(d.fd, name, flags, 0)
	if err != nil {
		return nil, d.err("open", name, err)
	}
	f := newFile(fd, filepath.Join(d.path, name))
	if err := d.checkFile(fd, name); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkFile refuses what is no regular file, and what may be another's.
func (d *Dir) checkFile(fd int, name string) error {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return d.err("stat", name, err)
	}
	path := filepath.Join(d.shown, name)
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s is no regular file", path)
	}
	if d.mine || st.Uid == d.uid && !ours(d.uid) { // in ours, others could have linked to any of ours
		return nil
	}
	if st.Nlink > 1 {
		return fmt.Errorf("%s is a file of user %d with %d names (hard links), in a folder of user %d: it may be another's, and is not opened: put a copy in its place", path, st.Uid, st.Nlink, d.uid)
	}
	// Its one name may be another one: then that by which it was opened is gone.
	still, err := d.still(fd, name)
	if err == nil && !still {
		err = fmt.Errorf("%s was removed while it was opened", path)
	}
	return err
}

// ReadFile reads a file that has at most so many bytes.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	var data []byte
	if err == nil && info.Size() <= most { // another user's sparse file takes no memory
		data, err = io.ReadAll(io.LimitReader(f, most+1))
	}
	if err == nil && max(info.Size(), int64(len(data))) > most {
		err = fmt.Errorf("%s has more than %d bytes", f.Name(), most)
	}
	return data, errors.Join(err, f.Close())
}

// Lstat looks at what has the name, without following it where it is a link.
func Lstat(path string) (info fs.FileInfo, err error) {
	err = at(path, false, func(d *Dir, base string) error {
		info, err = d.lstat(base)
		return err
	})
	return info, err
}

// Stat looks at what a path leads to.
func Stat(path string) (info fs.FileInfo, err error) {
	err = at(path, true, func(d *Dir, base string) error {
		if info, err = d.lstat(base); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			err = fmt.Errorf("%s %w", filepath.Join(d.shown, base), ErrLink)
		}
		return err
	})
	return info, err
}

// Nearest is what a path leads to or, where that is not there, the nearest folder above
// it that is.
func Nearest(path string) (string, fs.FileInfo, error) {
	for {
		info, err := Stat(path)
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path, info, err
		}
		path = filepath.Dir(path)
	}
}

// SameDevice reports whether two files lie in one mounted file system, as far as
// numbers show.
func SameDevice(a, b fs.FileInfo) bool {
	x, okA := a.Sys().(*syscall.Stat_t)
	y, okB := b.Sys().(*syscall.Stat_t)
	return okA && okB && x.Dev == y.Dev
}

// below is an open folder in it.
func (d *Dir) below(f *os.File) (*Dir, error) {
	fd, err := openat(int(f.Fd()), ".", searchFlags|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: f.Name(), Err: err}
	}
	return newDir(fd, f.Name(), f.Name())
}

// File opens the directory itself, to be synced, or to change its owner or mode.
// The caller closes it.
func (d *Dir) File() (*os.File, error) {
	fd, err := openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, d.err("open", "", err)
	}
	return newFile(fd, d.path), nil
}

// Names are the names in it, in order.
func (d *Dir) Names() ([]string, error) {
	f, err := d.File()
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, f.Close())
}

// Names are the names in a folder, in order.
func Names(path string) (names []string, err error) {
	err = within(path, func(d *Dir) error {
		names, err = d.Names()
		return err
	})
	return names, err
}

// ReadDir says what is in a folder, in the order of the names.
func ReadDir(path string) (all []fs.DirEntry, err error) {
	err = within(path, func(d *Dir) error {
		names, err := d.Names()
		for _, name := range names {
			info, lstatErr := d.lstat(name)
			if errors.Is(lstatErr, fs.ErrNotExist) {
				continue // it went just now
			}
			if lstatErr != nil {
				return lstatErr
			}
			all = append(all, fs.FileInfoToDirEntry(info))
		}
		return err
	})
	return all, err
}

// Mkdir makes a folder with mode 0700.
func Mkdir(path string) error {
	return at(path, false, func(d *Dir, base string) error { return d.mkdir(base) })
}

func (d *Dir) mkdir(name string) error {
	return d.err("mkdir", name, retry(func() error { return unix.Mkdirat(d.fd, name, 0o700) }))
}

// MkdirAll makes a folder, and those above it, where they are not there. What is
// there is to be a folder.
func MkdirAll(path string) error {
	err := Mkdir(path)
	if errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
		if err := MkdirAll(filepath.Dir(path)); err != nil {
			return err
		}
		err = Mkdir(path)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := OpenDir(path)
	if err != nil {
		return err
	}
	return d.Close()
}

// Remove removes a file, or an empty folder.
func Remove(path string) error {
	return at(path, false, func(d *Dir, base string) error { return d.Remove(base) })
}

// Remove removes a file in it, or an empty folder.
func (d *Dir) Remove(name string) error {
	err := retry(func() error { return unix.Unlinkat(d.fd, name, 0) })
	if err == nil || errors.Is(err, unix.ENOENT) {
		return d.err("remove", name, err)
	}
	if dirErr := retry(func() error { return unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR) }); !errors.Is(dirErr, unix.ENOTDIR) {
		err = dirErr
	}
	return d.err("remove", name, err)
}

// RemoveAll removes what has the name, and what is below it. What is not there
// is no error.
func RemoveAll(path string) error {
	err := at(path, false, func(d *Dir, base string) error { return d.RemoveAll(base) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeAgain is how often a folder is emptied that somebody fills meanwhile.
const removeAgain = 3

// RemoveAll removes what has the name in it, and what is below it.
func (d *Dir) RemoveAll(name string) error {
	for try := 1; ; try++ {
		err := d.Remove(name)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if try > removeAgain || !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			return err
		}
		s, err := d.sub(name)
		if err != nil {
			return err
		}
		if err := errors.Join(s.Empty(), s.Close()); err != nil {
			return err
		}
	}
}

// Empty removes all that is in it, but what has one of the names.
func (d *Dir) Empty(but ...string) error {
	names, err := d.Names()
	for _, name := range names {
		if !slices.Contains(but, name) {
			err = errors.Join(err, d.RemoveAll(name))
		}
	}
	return err
}

// Rename renames. Neither name is followed where it is a link.
func Rename(from, to string) error { return rename("rename", from, to, 0) }

func rename(op, from, to string, flags uint) error {
	return at(from, false, func(a *Dir, x string) error {
		return at(to, false, func(b *Dir, y string) error {
			err := retry(func() error { return renameat(a.fd, x, b.fd, y, flags) })
			switch {
			case err == nil:
				return nil
			case flags != 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EXDEV)):
				return ErrNoExchange
			}
			return &os.LinkError{Op: op, Old: filepath.Join(a.shown, x), New: filepath.Join(b.shown, y), Err: err}
		})
	})
}

// Replace writes a file whole or not at all, over an older one, with mode 0600. It is on
// the disk when Replace returns.
func Replace(path string, data []byte) error {
	tmp := path + ".tmp"
	// What a run that was killed left there is not written to: it may be a link.
	if err := Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, Remove(tmp))
	}
	return Sync(filepath.Dir(path))
}

// Link gives a file a second name.
func Link(from, to string) error {
	return at(from, false, func(a *Dir, x string) error {
		return at(to, false, func(b *Dir, y string) error {
			if err := retry(func() error { return unix.Linkat(a.fd, x, b.fd, y, 0) }); err != nil {
				return &os.LinkError{Op: "link", Old: filepath.Join(a.shown, x), New: filepath.Join(b.shown, y), Err: err}
			}
			return nil
		})
	})
}

// Sync makes a file's content, or a folder's names, durable.
func Sync(path string) error {
	return at(path, true, func(d *Dir, base string) error {
		return d.with(base, func(f *os.File, _ fs.FileInfo) error { return f.Sync() })
	})
}

// with opens a regular file or a folder in it for reading.
func (d *Dir) with(name string, do func(f *os.File, info fs.FileInfo) error) error {
	info, err := d.lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is neither a folder nor a regular file", filepath.Join(d.shown, name))
	}
	fd, err := openat(d.fd, name, unix.O_RDONLY, 0)
	if err != nil {
		return d.err("open", name, err)
	}
	f := newFile(fd, filepath.Join(d.shown, name))
	info, err = f.Stat()
	if err == nil && !info.IsDir() {
		err = d.checkFile(fd, name)
	}
	if err == nil {
		err = do(f, info)
	}
	return errors.Join(err, f.Close())
}

// Walk opens all that is below path, and path itself last, and calls do with each.
// What is neither a folder nor a regular file, or may be another's file, ends it.
func Walk(path string, do func(f *os.File, info fs.FileInfo) error) error {
	return at(path, false, func(d *Dir, base string) error { return d.walk(base, do) })
}

func (d *Dir) walk(name string, do func(f *os.File, info fs.FileInfo) error) error {
	return d.with(name, func(f *os.File, info fs.FileInfo) error {
		if info.IsDir() {
			s, err := d.below(f)
			if err != nil {
				return err
			}
			names, err := s.Names()
			for _, n := range names {
				if err == nil {
					err = s.walk(n, do)
				}
			}
			if err := errors.Join(err, s.Close()); err != nil {
				return err
			}
		}
		return do(f, info)
	})
}

// Symlink makes a link to target.
func Symlink(target, path string) error {
	return at(path, false, func(d *Dir, base string) error {
		return d.err("symlink", base, retry(func() error { return unix.Symlinkat(target, d.fd, base) }))
	})
}

// Readlink is what a link says; empty where the path is no link, or not there.
func Readlink(path string) (target string, err error) {
	err = at(path, false, func(d *Dir, base string) error {
		target, err = d.readlink(base)
		return err
	})
	return target, err
}

// Free is how many bytes this user may still write to the file system that a
// folder is in, or would be in: that of the nearest folder above which is there.
// Known is false on platforms where it cannot be asked.
func Free(dir string) (bytes int64, known bool, err error) {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return free(dir)
		}
		dir = filepath.Dir(dir)
	}
}
