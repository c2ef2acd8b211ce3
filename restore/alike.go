package restore

import (
	"os"
)

// Alike gives a file the owner, mode and SELinux label of another one.
func Alike(path, like string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, info.Mode().Perm()); err != nil {
		return err
	}
	if err := (traits{owner: ownerOf(info)}).applyOwner(path); err != nil {
		return err
	}
	label, err := labelOf(like)
	if err != nil {
		return err
	}
	return setLabel(path, label)
}
