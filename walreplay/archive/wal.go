package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/walreplay/walfile"
)

// pendingLimit bounds what of a member's log is in memory and not known to be
// committed, in bytes.
const pendingLimit = 16 << 20

// walLog is the log that a running member writes.
type walLog struct{ *walfile.Tail }

func openWAL(dir string, from uint64, pinLimit int64) (Log, error) {
	t, err := walfile.OpenTail(dir, walfile.TailOptions{From: from, PinLimit: pinLimit, PendingLimit: pendingLimit})
	if err != nil {
		return nil, err
	}
	return walLog{t}, nil
}

// Identity implements Log.
func (l walLog) Identity() Identity { return Identity(l.Tail.Identity()) }

// Poll implements Log.
func (l walLog) Poll(ctx context.Context) error {
	err := l.Tail.Poll(ctx)
	var gap *walfile.GapError
	var purged *walfile.PurgedError
	switch {
	case errors.As(err, &gap):
		return &overtaken{After: gap.After, Next: gap.Next, Err: err}
	case errors.As(err, &purged):
		return &overtaken{After: purged.Want - 1, Next: purged.First, Err: err}
	case errors.Is(err, walfile.ErrReplaced):
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return err
}

// Overwritten implements Log.
func (l walLog) Overwritten() uint64 {
	lowest := uint64(0)
	for _, o := range l.Tail.Overwritten() {
		if lowest == 0 || o.Index < lowest {
			lowest = o.Index
		}
	}
	return lowest
}

// isNewer tells that a newer etcd wrote the log.
func isNewer(err error) bool { return errors.Is(err, walfile.ErrNewer) }
