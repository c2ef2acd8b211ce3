package safedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mostLinks is how many links one path may go through.
const mostLinks = 40

// ErrLink says that a path goes through a symbolic link that is not followed.
var ErrLink = errors.New("is a symbolic link that another user could have made: it is not followed: name the folder or file that it leads to, or put that in its place")

// privileged is a variable for tests.
var privileged = os.Geteuid() == 0

// Dir is an open directory. It stays the same one, whatever name it gets.
type Dir struct {
	fd    int    // -1 when it is closed
	path  string // as this process may use it
	shown string // as errors name it
	// stable says that nobody else can put another directory at path.
	stable bool
	mine   bool // nobody but root and the effective user may write to it
	sticky bool // others may, and cannot rename what is not theirs
	uid    uint32
}

// Name is the path by which it was opened, without links, for messages.
func (d *Dir) Name() string { return d.shown }

// Close ends it.
func (d *Dir) Close() error {
	fd := d.fd
	d.fd = -1
	return d.err("close", "", unix.Close(fd))
}

func (d *Dir) err(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: filepath.Join(d.shown, name), Err: err}
}

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openat never follows a link at name, never waits, and is not inherited.
func openat(dir int, name string, flags int, perm uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, perm)
		return err
	})
	return fd, err
}

// newDir takes a descriptor over.
func newDir(fd int, path, shown string) (*Dir, error) {
	d := &Dir{fd: fd, path: path, shown: shown}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return nil, errors.Join(d.err("stat", "", err), d.Close())
	}
	d.uid = st.Uid
	d.mine = ours(st.Uid) && onlyOwner(fd, st)
	d.sticky = ours(st.Uid) && !d.mine && st.Mode&unix.S_ISVTX != 0
	return d, nil
}

// ours reports whether a user is root or the effective one.
func ours(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// onlyOwner reports whether no other user than the owner may write to it, and no
// group but this process's own.
func onlyOwner(fd int, st unix.Stat_t) bool {
	return st.Mode&0o002 == 0 && (st.Mode&0o020 == 0 || int(st.Gid) == os.Getegid() && !hasACL(procFD(fd)))
}

// sub opens a folder in it, and never goes through a link.
func (d *Dir) sub(name string) (*Dir, error) {
	fd, err := openat(d.fd, name, searchFlags|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, d.err("open", name, err)
	}
	s, err := newDir(fd, filepath.Join(d.path, name), filepath.Join(d.shown, name))
	if err != nil {
		return nil, err
	}
	s.stable = d.stable && (d.mine || d.sticky && ours(s.uid))
	return s, nil
}

// follows reports whether a link in the folder may be followed.
func (d *Dir) follows(name string) (bool, error) {
	if !privileged || d.mine {
		return true, nil
	}
	if !d.sticky {
		return false, nil
	}
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return err == nil && ours(st.Uid), d.err("lstat", name, err)
}

// readlink is empty where the name is no link, or not there.
func (d *Dir) readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	var n int
	err := retry(func() (err error) {
		n, err = unix.Readlinkat(d.fd, name, buf)
		return err
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	return string(buf[:max(n, 0)]), d.err("readlink", name, err)
}

// walk is the way that a path takes: the folders that are open, from the root on.
type walk struct {
	open  []*Dir
	links int
}

func (w *walk) at() *Dir { return w.open[len(w.open)-1] }

func (w *walk) close() {
	for _, d := range w.open {
		_ = d.Close() // it was only searched
	}
}

func (w *walk) root() error {
	w.close()
	w.open = nil
	fd, err := openat(unix.AT_FDCWD, "/", searchFlags|unix.O_DIRECTORY, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	d, err := newDir(fd, "/", "/")
	if err != nil {
		return err
	}
	d.stable = true
	w.open = []*Dir{d}
	return nil
}

// locate opens the folder that path ends in. Its last name is base, "." for a
// folder that has none. With last, a link of that name was followed as well: base
// is none then, unless it was made just now.
func locate(path string, last bool) (dir *Dir, base string, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, "", err
	}
	w := &walk{}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if err := w.root(); err != nil {
		return nil, "", err
	}
	rest := strings.Split(path, "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		final := len(rest) == 0
		switch name {
		case "", ".":
			continue
		case "..":
			if len(w.open) > 1 {
				_ = w.at().Close()
				w.open = w.open[:len(w.open)-1]
			}
			continue
		}
		if final && !last {
			return w.end(name)
		}
		// Nearly all are folders, and what opens as one is no link.
		if !final && w.enter(name) == nil {
			continue
		}
		target, err := w.at().readlink(name)
		if err != nil {
			return nil, "", err
		}
		if target == "" {
			if final {
				return w.end(name)
			}
			if err := w.enter(name); err != nil {
				return nil, "", err
			}
			continue
		}
		if err := w.mayFollow(name); err != nil {
			return nil, "", err
		}
		entered, err := w.enterMagic(name, target)
		if err != nil {
			return nil, "", err
		}
		if entered {
			continue
		}
		rest = append(strings.Split(target, "/"), rest...)
		if strings.HasPrefix(target, "/") {
			if err := w.root(); err != nil {
				return nil, "", err
			}
		}
	}
	return w.end(".")
}

func (w *walk) enter(name string) error {
	d, err := w.at().sub(name)
	if err == nil {
		w.open = append(w.open, d)
	}
	return err
}

func (w *walk) mayFollow(name string) error {
	follow, err := w.at().follows(name)
	if err != nil {
		return err
	}
	if !follow {
		return fmt.Errorf("%s %w", filepath.Join(w.at().shown, name), ErrLink)
	}
	if w.links++; w.links > mostLinks {
		return w.at().err("open", name, unix.ELOOP)
	}
	return nil
}

// end keeps the last folder, and closes those above it.
func (w *walk) end(base string) (*Dir, string, error) {
	d := w.at()
	w.open = w.open[:len(w.open)-1]
	w.close()
	return d, base, nil
}

// LockName is a file in every Private folder, by which it is known again.
const LockName = "lock"

// Private opens the folder of this process in a directory that others may write
// to, and makes it where it is not there. It is a real folder that belongs to the
// effective user, into which nobody else may write, with the lock file of an
// earlier run in it, or empty: another's folder of that name, or one of the same
// user that was given that name, is an error. The caller closes it.
func Private(path string) (*Dir, error) {
	if err := Mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return OpenPrivate(path)
}

// OpenPrivate is Private for a folder that is there; else it fails with
// os.ErrNotExist. It changes nothing.
func OpenPrivate(path string) (d *Dir, err error) {
	parent, base, err := locate(path, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	info, err := parent.lstat(base)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is no folder, and no restore made it: look at it, and move it away", filepath.Join(parent.shown, base))
	}
	if d, err = parent.sub(base); err != nil {
		return nil, err
	}
	if err := d.checkPrivate(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Dir) checkPrivate() error {
	const next = "look at it, and move it away, or run as its owner"
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(d.fd, &st) }); err != nil {
		return d.err("stat", "", err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s belongs to user %d and has mode %04o, and this runs as user %d: what is in it is not trusted: %s", d.shown, st.Uid, st.Mode&0o7777, os.Geteuid(), next)
	}
	names, err := d.Names()
	if err != nil || len(names) == 0 {
		return err
	}
	lock, err := d.lstat(LockName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !lock.Mode().IsRegular() || lock.Size() != 0 || !slices.Contains(names, LockName) {
		return fmt.Errorf("%s is not empty, and has no lock file of an earlier run: %s", d.shown, next)
	}
	return nil
}

// ErrLocked says that another process has the lock.
var ErrLocked = errors.New("is locked by another process")

// Lock takes the lock of a Private folder, or fails with ErrLocked. Closing the
// file, or the end of the process, gives it up. gone says that the folder was
// removed, or got another name, meanwhile: then the lock is worth nothing.
func (d *Dir) Lock() (lock *os.File, gone bool, err error) {
	fd, err := openat(d.fd, LockName, unix.O_RDWR|unix.O_CREAT, 0o600)
	if errors.Is(err, unix.ENOENT) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, d.err("open", LockName, err)
	}
	f := newFile(fd, filepath.Join(d.shown, LockName))
	if err := d.checkFile(fd, LockName); err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, false, errors.Join(fmt.Errorf("%s %w (%w)", d.shown, ErrLocked, err), f.Close())
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	// The run before may have removed the file, or the whole folder, between our
	// two calls: then this lock is on a file that nobody else can see.
	if now, err := Lstat(filepath.Join(d.path, LockName)); err != nil || !os.SameFile(mine, now) {
		return nil, true, f.Close()
	}
	return f, false, nil
}

// Unlock closes a lock of Lock, and gives it up at once, also where a program that is
// just being started has inherited the file for the moment.
func Unlock(lock *os.File) error {
	return errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_UN), lock.Close())
}
