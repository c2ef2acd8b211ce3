package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/walfile"
)

// checkRunning reads the log of a running member to the end that it has now.
func (d *dataDir) checkRunning(ctx context.Context) error {
	_, err := d.check(ctx, report.Checksum, d.walDir, func(c *report.Check) error {
		t, err := walfile.OpenTail(d.walDir, walfile.TailOptions{})
		if err != nil {
			d.tookLog(c, err)
			return nil
		}
		defer t.Close() //nolint:errcheck // reading
		c.Bytes = sizeOf(d.walDir)
		first, last, err := d.follow(ctx, t)
		if err != nil {
			d.tookLog(c, err)
		}
		c.Compared = fmt.Sprintf("every record of the log, from index %d to %d, with the CRC that runs through all its files, and entries with their order", first, last)
		return nil
	})
	if err != nil {
		return err
	}
	d.note("a member runs on %s: its database changes all the time, and was not looked at. Stop the member to verify it, or verify a backup of it", d.dir)
	d.refuseHigher(d.db, "a member runs on it: stop the member to verify its database, or verify a backup of it")
	return nil
}

// follow reads on until nothing is new: the first and the last index read.
func (d *dataDir) follow(ctx context.Context, t *walfile.Tail) (first, last uint64, err error) {
	for {
		err := t.Poll(ctx)
		var gap *walfile.GapError
		var purged *walfile.PurgedError
		switch {
		case errors.As(err, &gap):
			d.note("the log has no entries between index %d and %d: a leader sent a snapshot in their place", gap.After, gap.Next)
		case errors.As(err, &purged):
			d.note("the member purged a part of its log while it was read")
		case err != nil:
			return first, last, err
		}
		if first == 0 {
			first = t.First()
		}
		if t.Last() == 0 {
			if err != nil {
				continue // behind the hole
			}
			return first, last, nil
		}
		last = t.Last()
		t.Release(last)
	}
}
