//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package disk

import (
	"errors"
	"os"
)

// tryLock makes writing fail: without locks and synced folders there is no
// promise to keep.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func remove(root *os.Root, name string) error { return root.Remove(name) }

func removeEmpty(*os.Root, string) (bool, error) { return false, nil }
