//go:build !linux

package disk

import (
	"errors"
	"os"
)

// newUnnamed is for Linux, the only system with such files.
func newUnnamed(*os.Root) (draft, error) { return nil, errors.ErrUnsupported }
