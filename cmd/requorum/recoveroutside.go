package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
)

// keepsOut refuses new members that would be built inside of what is left of the old
// ones: that is only read. In the place of one they are allowed, where --set-aside
// moves it away whole.
func keepsOut(plan *restore.Plan, only string, survivors []recovery.Survivor) error {
	for _, m := range plan.Members {
		if only != "" && m.Name != only {
			continue
		}
		for _, dir := range []string{m.DataDir, m.WALDir} {
			if dir == "" {
				continue
			}
			if err := outside(dir, survivors); err != nil {
				return fmt.Errorf("member %s: %w", m.Name, err)
			}
		}
		for _, s := range survivors {
			if within(s.DataDir, filepath.Join(m.DataDir, "member")) {
				return usageError{fmt.Errorf("member %s: the data of %s lies inside of %s, where it would be built: name another directory", m.Name, s.Name, filepath.Join(m.DataDir, "member"))}
			}
		}
	}
	return nil
}

// outside refuses a path inside of a survivor's directory.
func outside(path string, survivors []recovery.Survivor) error {
	for _, s := range survivors {
		for _, dir := range []string{s.DataDir, s.WALDir} {
			if dir != "" && within(path, dir) && !sameFolder(path, dir) {
				return usageError{fmt.Errorf("%s lies inside of %s, the data of %s, which is only read: name another place", path, dir, s.Name)}
			}
		}
	}
	return nil
}

// within tells whether a path lies below a folder, wherever symbolic links lead. What
// is not there yet counts as well.
func within(path, folder string) bool {
	rest, err := filepath.Rel(realPath(folder), realPath(path))
	return err == nil && rest != "." && rest != ".." && !strings.HasPrefix(rest, "../")
}

// realPath is a path without symbolic links, as far as it exists.
func realPath(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	rest := ""
	for at := path; ; at = filepath.Dir(at) {
		if found, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(found, rest)
		}
		if at == filepath.Dir(at) {
			return path
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}
