package replaying

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/structure"
	"github.com/requorum/requorum/walreplay"
)

// CheckBase refuses a database that etcd cannot have written: its store ends the
// process over some of these, or waits without end, and a verification has to
// tell of them.
func CheckBase(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	result, err := structure.Check(ctx, r, size, structure.Options{MaxFindings: 1})
	if err != nil || len(result.Findings) == 0 {
		return err
	}
	return &snapshot.DamagedError{Object: name, Offset: -1, Err: fmt.Errorf("%w: %s", errUnsound, result.Findings[0])}
}

var errUnsound = errors.New("its structure is damaged")

// unsound is why a replay from a database that is not sound cannot be done: the
// fault itself is the structure rung's.
func unsound(err error) error {
	var log *walreplay.LogError
	if errors.Is(err, errUnsound) && !errors.As(err, &log) {
		return unchecked("%v: see the rung structure", err)
	}
	return err
}
