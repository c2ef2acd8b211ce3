package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/requorum/requorum/store/safedir"
)

// Owner is who the new files belong to.
type Owner struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// ParseOwner reads "user:group", both by name or number.
func ParseOwner(s string) (Owner, error) {
	name, group, ok := strings.Cut(s, ":")
	if !ok || name == "" || group == "" {
		return Owner{}, fmt.Errorf("owner %q: want user:group, such as etcd:etcd or 1000:1000", s)
	}
	uid, err := lookup(name, func(n string) (string, error) {
		u, err := user.Lookup(n)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
	if err != nil {
		return Owner{}, fmt.Errorf("owner %q: %w", s, err)
	}
	gid, err := lookup(group, func(n string) (string, error) {
		g, err := user.LookupGroup(n)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
	if err != nil {
		return Owner{}, fmt.Errorf("owner %q: %w", s, err)
	}
	return Owner{uid, gid}, nil
}

func lookup(name string, find func(string) (string, error)) (int, error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		return n, nil
	}
	id, err := find(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(id)
}

// traits are what new files take over from those that they replace.
type traits struct {
	owner    *Owner // nil: leave
	dirMode  fs.FileMode
	fileMode fs.FileMode
	label    []byte // SELinux; nil: leave
}

// traitsFrom looks at what exists, the best example first: the first path that
// is there gives the owner and the label, a member folder its mode as well.
// The owner that the user names wins.
func traitsFrom(owner *Owner, member string, others ...string) (traits, error) {
	t := traits{owner: owner, dirMode: 0o700, fileMode: 0o600}
	for _, path := range append([]string{member}, others...) {
		dir, err := safedir.OpenDir(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return t, err
		}
		f, err := dir.File()
		if err == nil {
			err = errors.Join(t.like(f, path == member), f.Close())
		}
		return t, errors.Join(err, dir.Close())
	}
	return t, nil
}

func (t *traits) like(dir *os.File, member bool) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if t.owner == nil {
		t.owner = ownerOf(info)
	}
	if member {
		t.dirMode = info.Mode().Perm() | 0o700
		if db, err := safedir.Lstat(filepath.Join(dir.Name(), "snap", "db")); err == nil && db.Mode().IsRegular() {
			t.fileMode = db.Mode().Perm() | 0o600
		}
	}
	t.label, err = labelOf(dir)
	return err
}

// apply gives the traits to all that is in a folder, and then to itself: whoever
// gets it finds nothing in it that is still to be changed.
func (t traits) apply(root string) error {
	return safedir.Walk(root, t.applyTo)
}

// applyTo gives the traits to one open file or folder.
func (t traits) applyTo(f *os.File, info fs.FileInfo) error {
	mode := t.fileMode
	if info.IsDir() {
		mode = t.dirMode
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := setLabel(f, t.label); err != nil {
		return err
	}
	return t.applyOwner(f, info)
}

func (t traits) applyOwner(f *os.File, info fs.FileInfo) error {
	if has := ownerOf(info); t.owner == nil || has != nil && *has == *t.owner {
		return nil
	}
	if err := f.Chown(t.owner.UID, t.owner.GID); err != nil {
		return fmt.Errorf("%w: run as root, or as the user that etcd runs as", err)
	}
	return nil
}

// applyToDir gives them to a folder that is open, with mode or without.
func (t traits) applyToDir(dir *safedir.Dir, apply func(traits, *os.File, fs.FileInfo) error) error {
	f, err := dir.File()
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = apply(t, f, info)
	}
	return errors.Join(err, f.Close())
}

// syncTree makes a folder with all that is in it durable.
func syncTree(root string) error {
	return safedir.Walk(root, func(f *os.File, _ fs.FileInfo) error { return f.Sync() })
}

// move renames and makes both folders' names durable.
func move(from, to string) error {
	if err := safedir.Rename(from, to); err != nil {
		return err
	}
	if err := safedir.Sync(filepath.Dir(to)); err != nil {
		return err
	}
	if filepath.Dir(from) == filepath.Dir(to) {
		return nil
	}
	return safedir.Sync(filepath.Dir(from))
}

// exists reports whether there is anything of that name.
func exists(path string) (bool, error) {
	_, err := safedir.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// entries are the names in a folder; none when the folder is not there.
func entries(path string) ([]string, error) {
	names, err := safedir.Names(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}
