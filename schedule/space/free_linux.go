package space

import (
	"os"

	"golang.org/x/sys/unix"
)

// free asks the file system.
func free(dir string) (free int64, known bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, true, nil
}
