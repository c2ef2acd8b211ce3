//go:build !unix

package priority

import "errors"

var errPlatform = errors.New("cannot be honoured on this platform: leave it out")

func setNice(int) error { return errPlatform }

func setIONice(class, int) error { return errPlatform }
