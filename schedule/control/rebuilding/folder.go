package rebuilding

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/space"
)

// bringFolder is where a run gathers: in the data directory, whose file system has
// to have the room, or beside it while there is none. Several members may have
// their directories beside each other: each has folders of its own.
func bringFolder(q *request) string {
	return filepath.Join(nearest(q.DataDir), restore.BringPrefix+q.Run+"@"+q.Member)
}

func nearest(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// removeOld removes what other runs left, and what this one left elsewhere.
func removeOld(q *request, keep string) error {
	var errs []error
	for _, dir := range []string{q.DataDir, nearest(filepath.Dir(q.DataDir))} {
		list, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, err)
		for _, e := range list {
			path := filepath.Join(dir, e.Name())
			if strings.HasPrefix(e.Name(), restore.BringPrefix) && strings.HasSuffix(e.Name(), "@"+q.Member) && path != keep {
				errs = append(errs, os.RemoveAll(path))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what earlier recoveries gathered: %w", err)
	}
	return nil
}

// ownerFolder is where the copy of an owner's data goes. Another location is
// another folder: pieces of two are never put together.
func ownerFolder(bring, owner string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{owner}, parts...), "\x00")))
	return filepath.Join(bring, hex.EncodeToString(sum[:8]))
}

// checkRoom fails where a folder's file system has no room for so many bytes.
func checkRoom(dir string, need int64, what string) error {
	free, known, err := space.Free(dir)
	if err != nil || !known || free >= need {
		return err
	}
	return fmt.Errorf("file system of %s: %w: %d bytes are needed for %s, %d are free, %d short", dir, restore.ErrNoSpace, need, what, free, need-free)
}
