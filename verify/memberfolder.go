package verify

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkMemberFolder refuses a folder that is no data directory: a mistyped path
// must not pass for one that has lost everything.
func checkMemberFolder(dir, walDir string) error {
	member := filepath.Join(dir, "member")
	if isFolder, err := folderAt(member); err != nil {
		return err
	} else if !isFolder {
		return fmt.Errorf("%s: no member's data directory there: want the folder that holds member/", dir)
	}
	if walDir == "" {
		return nil
	}
	if isFolder, err := folderAt(walDir); err != nil {
		return err
	} else if !isFolder {
		return fmt.Errorf("%s: no folder there: want the member's --wal-dir", walDir)
	}
	return nil
}

// folderAt tells whether there is a folder; the error is why that is not known.
func folderAt(path string) (bool, error) {
	info, err := os.Stat(path)
	var notFolder bool
	if err != nil {
		parent, errParent := os.Stat(filepath.Dir(path))
		notFolder = errParent == nil && !parent.IsDir()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), notFolder:
		return false, nil
	case err != nil:
		return false, err
	}
	return info.IsDir(), nil
}
