package safedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// procFD leads to what is open under a descriptor of this process.
func procFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// searchFlags open a folder that is only gone through: that needs no right to
// list it.
const searchFlags = unix.O_PATH

// direct is locate in one call, for a path without any link, as nearly all are. Who could
// rename what is on the way is not seen by it: the folder's name is not stable.
func direct(path string, last bool) (dir *Dir, base string, ok bool) {
	path, err := filepath.Abs(path)
	if err != nil || path == "/" {
		return nil, "", false
	}
	above, base := filepath.Dir(path), filepath.Base(path)
	fd, err := unix.Openat2(unix.AT_FDCWD, above, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, "", false // a link is on the way, or the kernel is old; or the walk says what is wrong
	}
	dir, err = newDir(fd, above, above)
	if err != nil {
		return nil, "", false
	}
	if last {
		if target, err := dir.readlink(base); err != nil || target != "" {
			_ = dir.Close() // nothing was done with it
			return nil, "", false
		}
	}
	return dir, base, true
}

// Path leads into the directory, for a library that takes a path. Where others
// could put something else at its name, it is Pinned.
func (d *Dir) Path() string {
	if d.stable {
		return d.path
	}
	return d.Pinned()
}

// Pinned leads into the directory, whatever name it gets: through this process's
// open descriptor (/proc/PID/fd/N). It holds until Close, for child processes too.
// Without privileges it is the plain path.
func (d *Dir) Pinned() string {
	if !privileged {
		return d.path
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), d.fd)
}

// enterMagic goes through a link of /proc/PID/fd, which leads to what is open and
// not to its name.
func (w *walk) enterMagic(name, target string) (bool, error) {
	at := w.at()
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(at.fd, &st) }); err != nil {
		return false, at.err("statfs", "", err)
	}
	if st.Type != unix.PROC_SUPER_MAGIC || name == "self" || name == "thread-self" {
		return false, nil
	}
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(at.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return false, nil //nolint:nilerr // no folder: a file, which its name leads to
	}
	d, err := newDir(fd, at.path+"/"+name, target)
	if err != nil {
		return false, err
	}
	d.stable = true
	w.open = append(w.open, d)
	return true, nil
}

// still reports whether an open file has the name in the directory by which it was opened:
// whether that was neither removed nor given another place since.
func (d *Dir) still(fd int, name string) (bool, error) {
	if _, err := d.Names(); err != nil { // which waits for a removal that is under way
		return false, err
	}
	folder, err := os.Readlink(procFD(d.fd))
	path, errPath := os.Readlink(procFD(fd))
	return path == filepath.Join(folder, name), errors.Join(err, errPath)
}

// hasACL reports whether an ACL gives rights to further users or groups, or cannot be read.
// Where one lets them write, the mode shows that as a right of the group. It is blind for
// those of NFS 4.
func hasACL(path string) bool {
	n, err := unix.Getxattr(path, "system.posix_acl_access", nil)
	return n > 0 || err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP)
}

// lstat does not follow a link.
func (d *Dir) lstat(name string) (fs.FileInfo, error) {
	fd, err := openat(d.fd, name, unix.O_PATH, 0)
	if err != nil {
		return nil, d.err("lstat", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	return info, err
}

// Exchange swaps two names in one step. ErrNoExchange where the file system has
// no such thing.
func Exchange(a, b string) error { return rename("exchange", a, b, unix.RENAME_EXCHANGE) }

// RenameNew renames, and fails with os.ErrExist where the new name is taken;
// ErrNoExchange where the file system cannot promise that.
func RenameNew(from, to string) error { return rename("rename", from, to, unix.RENAME_NOREPLACE) }

func renameat(from int, a string, to int, b string, flags uint) error {
	return unix.Renameat2(from, a, to, b, flags)
}

// beginWriteback asks the kernel to write a range to the disk, without waiting
// for it. What fails here fails in the sync at the end.
func beginWriteback(f *os.File, offset, length int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, length, unix.SYNC_FILE_RANGE_WRITE)
}

// WrittenBack waits for what is on its way to the disk of a file, and reports an error
// of writing that nobody has seen yet. It begins no writing: Sync does.
func WrittenBack(f *os.File) error {
	switch err := unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE); err {
	case nil:
		return nil
	case unix.ENOSYS, unix.EPERM, unix.EINVAL: // a sandbox without it
		return f.Sync()
	default:
		return &os.PathError{Op: "write", Path: f.Name(), Err: err}
	}
}

// free asks the file system.
func free(dir string) (free int64, known bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, true, nil
}
