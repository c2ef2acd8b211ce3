package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// freeSpace is how many bytes this user may still write in a file system.
func freeSpace(dir string) (free int64, known bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, true, nil
}
