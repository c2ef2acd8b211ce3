package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/walfile"
)

// compareSnaps holds the database's index against the raft snapshot that etcd
// begins with: the newest file *.snap that is whole and that the log knows. etcd
// brings its database up to an index before it writes such a file, so it lags only
// behind one that a leader sent, and then that leader's database is there too.
func (d *dataDir) compareSnaps(ctx context.Context, c *report.Check, log *walfile.Summary) {
	var newest walfile.Mark
	for _, m := range d.snaps {
		if m.Index > newest.Index && slices.Contains(log.Snapshots, m) {
			newest = m
		}
	}
	facts, ok := d.facts(ctx)
	if newest.Index == 0 || !ok {
		return
	}
	c.Compared += fmt.Sprintf("; its raft index with that of the newest *.snap file that the log knows, %d", newest.Index)
	if newest.Index <= facts.RaftIndex {
		return
	}
	received := filepath.Join(filepath.Dir(d.db), fmt.Sprintf("%016x.snap.db", newest.Index))
	switch _, err := os.Stat(received); {
	case err == nil: // etcd takes it for its own when it starts
		return
	case !errors.Is(err, fs.ErrNotExist):
		unchecked(c, err)
		if c.Status == report.Passed {
			c.Status = report.Unchecked
		}
		return
	}
	c.Status = report.Damaged
	found(c, report.Finding{Kind: report.KindFacts, Where: fmt.Sprintf("index %d", facts.RaftIndex),
		Text: fmt.Sprintf("the database ends here, and %016x-%016x.snap says that it holds the entries up to index %d: it is an older one than the rest of the folder. Without %s etcd refuses to start (failed to recover v3 backend from snapshot). "+
			"Where the cluster has a quorum, remove this member and add it anew; else 'requorum restore --from-data-dir' builds a cluster from this database and the log, as far as the rung replay passes", newest.Term, newest.Index, newest.Index, filepath.Base(received))})
}

// facts are those of the member's database, where they can be read.
func (d *dataDir) facts(ctx context.Context) (snapshot.Facts, bool) {
	image, err := snapshot.OpenFile(d.db)
	if err != nil {
		return snapshot.Facts{}, false // the structure rung tells
	}
	facts, err := image.Facts(ctx)
	return facts, err == nil
}
