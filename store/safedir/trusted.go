package safedir

// TrustedFile and TrustedFolder refuse configurations, keys and identities that other local
// users could have written: whoever writes the configuration of a process that
// runs as root is root. It promises:
//
//  1. A file passes only where it, each folder and each link on the way to it
//     belong to root or to the user of this process (under sudo, to the user who
//     called it as well), and nobody else may write there. A sticky folder such as
//     /tmp may be everybody's; a group may write where it is root's, or the
//     owner's own of the same number, and no ACL names further users.
//  2. The modes of folders on a file system that is mounted read-only do not count:
//     Kubernetes mounts Secrets so, in folders that everybody may write to. Owners
//     and the modes of files do.
//  3. An error names what is wrong and the command that mends it.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/requorum/requorum/store/shell"
)

// ErrOthers is within each refusal.
var ErrOthers = errors.New("other users of this machine")

// TrustedFile checks a file that this process acts on.
func TrustedFile(path string) error {
	if strings.HasPrefix(filepath.Base(path), "AGE-SECRET-KEY-") { // errors go to logs
		return errors.New("a secret key was given where the path of the file that holds it is expected")
	}
	_, err := check(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, err) // which names the step that is not there
	}
	return err
}

// TrustedFolder checks a folder in which this process makes files.
func TrustedFolder(path string) error {
	at, err := check(path)
	if err == nil && at.info != nil && at.info.Mode()&fs.ModeSticky != 0 && open(at.path, at.info) {
		return fmt.Errorf("%w can write to %s (mode %04o): name a folder of this user's own", ErrOthers, path, at.info.Mode().Perm())
	}
	return err
}

// place is where a path has come to; info is nil for a descriptor of this process.
type place struct {
	path string
	info fs.FileInfo
}

// check walks a path as the kernel does, and looks at each step.
func check(path string) (place, error) {
	whole := path
	if !filepath.IsAbs(path) {
		wd, err := os.Getwd()
		if err != nil {
			return place{}, err
		}
		whole = wd + "/" + path // Join would take a link with its .. away
	}
	if descriptor(whole) {
		return place{path: whole}, nil // it was opened by whoever started this process
	}
	at := place{path: "/"}
	var err error
	if at.info, err = os.Lstat("/"); err != nil {
		return at, err
	}
	rest, links := strings.Split(strings.Trim(whole, "/"), "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		next := filepath.Join(at.path, name) // .. of a folder without links
		info, err := os.Lstat(next)
		if err != nil {
			return at, err
		}
		if err := checkOwner(next, info, path); err != nil {
			return at, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = place{next, info}
			continue
		}
		if links++; links > mostLinks {
			return at, fmt.Errorf("%s: %w", path, syscall.ELOOP)
		}
		to, err := os.Readlink(next)
		if err != nil {
			return at, err
		}
		if filepath.IsAbs(to) {
			if at.path = "/"; descriptor(to) {
				return place{path: to}, nil
			}
		}
		rest = append(strings.Split(strings.Trim(to, "/"), "/"), rest...)
	}
	return at, nil
}

// descriptor says that a path is one of this process's open files, as a shell
// gives <(…).
func descriptor(path string) bool {
	for _, folder := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if strings.HasPrefix(filepath.Clean(path), folder) {
			return true
		}
	}
	return filepath.Clean(path) == "/dev/stdin"
}

// checkOwner fails where others may change what lies at a step, or put something else there.
func checkOwner(at string, info fs.FileInfo, path string) error {
	of := ""
	if at != path {
		of = ", on the way to " + path
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("the owner of %s is not known", at)
	}
	if owner := int(st.Uid); !slices.Contains(trusted(), owner) {
		return fmt.Errorf("%w could have written %s: it belongs to user %d%s: look at what it holds, then chown -h %d %s", ErrOthers, at, owner, of, os.Geteuid(), shell.Quote(at))
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0: // everybody's, by its mode
	case info.IsDir() && info.Mode()&fs.ModeSticky != 0: // nobody replaces what is another's
	case !open(at, info) || info.IsDir() && readOnly(at):
	default:
		return fmt.Errorf("%w can write to %s (mode %04o)%s: look at what it holds, then chmod go-w %s", ErrOthers, at, info.Mode().Perm(), of, shell.Quote(at))
	}
	return nil
}

// trusted are the users who may write what this process reads.
func trusted() []int {
	all := []int{0, os.Geteuid()}
	if os.Geteuid() == 0 {
		if uid, err := strconv.Atoi(os.Getenv("SUDO_UID")); err == nil {
			all = append(all, uid)
		}
	}
	return all
}

// open says that others than the owner may write.
func open(path string, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	own := ok && (st.Gid == 0 || st.Gid == st.Uid) && !hasACL(path)
	return info.Mode().Perm()&0o002 != 0 || info.Mode().Perm()&0o020 != 0 && !own
}

func readOnly(path string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(path, &s) == nil && s.Flags&1 != 0 // ST_RDONLY, MNT_RDONLY
}
