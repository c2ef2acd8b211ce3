package restore

import (
	"fmt"
	"os"
	"path/filepath"
)

// View makes folder, which it makes as well, look like the data directory before
// the set-aside, by a link: for those who read a data directory. walDir is empty
// where the log is in it. What is removed with folder is the link alone. Where
// nothing was set aside, the data directory is one without a member.
func (a *Aside) View(folder string) (dataDir, walDir string, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", "", fmt.Errorf("a view of what was set aside: %w", err)
	}
	link := filepath.Join(folder, "member")
	if target, err := os.Readlink(link); a.Folder != "" && (err != nil || target != a.Folder) {
		if err := os.Symlink(a.Folder, link); err != nil {
			return "", "", fmt.Errorf("a view of what was set aside: %w", err)
		}
	}
	return folder, a.Log, nil
}
