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
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return t, err
		}
		if t.owner == nil {
			t.owner = ownerOf(info)
		}
		if path == member {
			t.dirMode = info.Mode().Perm() | 0o700
			if db, err := os.Stat(filepath.Join(member, "snap", "db")); err == nil {
				t.fileMode = db.Mode().Perm() | 0o600
			}
		}
		t.label, err = labelOf(path)
		return t, err
	}
	return t, nil
}

// apply gives the traits to a folder and all that is in it.
func (t traits) apply(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := t.fileMode
		if d.IsDir() {
			mode = t.dirMode
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
		if err := t.applyOwner(path); err != nil {
			return err
		}
		return setLabel(path, t.label)
	})
}

func (t traits) applyOwner(path string) error {
	if t.owner == nil {
		return nil
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if has := ownerOf(info); has != nil && *has == *t.owner {
		return nil
	}
	if err := os.Lchown(path, t.owner.UID, t.owner.GID); err != nil {
		return fmt.Errorf("%w: run as root, or as the user that etcd runs as", err)
	}
	return nil
}
