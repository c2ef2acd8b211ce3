package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/walfile"
)

// checkSnaps looks at the files that say where the log may begin (*.snap). They
// are read by hand: etcd's own reader renames those that it finds broken. log is
// nil where it could not be read.
func (d *dataDir) checkSnaps(ctx context.Context, log *walfile.Summary) error {
	folder := filepath.Dir(d.db)
	names, err := d.beside(".snap")
	switch {
	case err != nil:
		return d.took(ctx, report.Checksum, folder, report.Check{}, err)
	case len(names) == 0:
		return nil
	}
	_, err = d.check(ctx, report.Checksum, folder, func(c *report.Check) error {
		c.Compared = fmt.Sprintf("the snapshots of raft in %s with the CRC in it, and the term and index with the name", report.Counted(len(names), "file *.snap", "files *.snap, each"))
		for _, name := range names {
			d.checkSnap(c, filepath.Join(folder, name), log)
		}
		return nil
	})
	return err
}

// checkSnap looks at one of them. One that is newer than what the log knows of was
// being written at a crash: etcd goes on with the one before.
func (d *dataDir) checkSnap(c *report.Check, path string, log *walfile.Summary) {
	name := strings.TrimSuffix(filepath.Base(path), ".snap")
	size, fault, err := walreplay.CheckSnapFile(path)
	if err != nil {
		unchecked(c, err)
		return
	}
	c.Bytes += size
	var term, index uint64
	_, scanned := fmt.Sscanf(name, "%016x-%016x", &term, &index)
	switch {
	case fault == "":
		d.snaps = append(d.snaps, walfile.Mark{Index: index, Term: term})
	case scanned == nil && log != nil && index > log.Snapshot.Index:
		d.note("%s is not whole (%s), as a crash leaves one that is being written: the log does not know it, and etcd goes on without", path, fault)
	default:
		found(c, report.Finding{Kind: report.KindObject, Object: path, Text: fault})
	}
}

// checkReceived looks at the databases that a leader sent (*.snap.db) and that
// etcd has not taken for its own yet.
func (d *dataDir) checkReceived(ctx context.Context) error {
	names, err := d.beside(".snap.db")
	if err != nil {
		return d.took(ctx, report.Structure, filepath.Dir(d.db), report.Check{}, err)
	}
	for _, name := range names {
		path := filepath.Join(filepath.Dir(d.db), name)
		if _, err := d.checkFile(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// beside are the files beside the database whose names end so.
func (d *dataDir) beside(suffix string) ([]string, error) {
	list, err := safedir.ReadDir(filepath.Dir(d.db))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the structure level reports it
	}
	var names []string
	for _, e := range list {
		if strings.HasSuffix(e.Name(), suffix) && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

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
	facts, ok := d.databaseFacts(ctx)
	if newest.Index == 0 || !ok {
		return
	}
	c.Compared += fmt.Sprintf("; its raft index with that of the newest *.snap file that the log knows, %d", newest.Index)
	if newest.Index <= facts.RaftIndex {
		return
	}
	received := filepath.Join(filepath.Dir(d.db), fmt.Sprintf("%016x.snap.db", newest.Index))
	switch _, err := safedir.Stat(received); {
	case err == nil: // etcd takes it for its own when it starts
		return
	case !errors.Is(err, fs.ErrNotExist):
		unchecked(c, err)
		return
	}
	found(c, report.Finding{Kind: report.KindFacts, Where: fmt.Sprintf("index %d", facts.RaftIndex),
		Text: fmt.Sprintf("the database ends here, and %016x-%016x.snap says that it holds the entries up to index %d: it is an older one than the rest of the folder. Without %s etcd refuses to start (failed to recover v3 backend from snapshot). "+
			"Where the cluster has a quorum, remove this member and add it anew; else 'requorum restore --from-data-dir' builds a cluster from this database and the log, as far as the level replay passes", newest.Term, newest.Index, newest.Index, filepath.Base(received))})
}

// databaseFacts are those of the member's database, where they can be read.
func (d *dataDir) databaseFacts(ctx context.Context) (snapshot.Facts, bool) {
	image, err := snapshot.OpenFile(d.db)
	if err != nil {
		return snapshot.Facts{}, false // the structure level reports it
	}
	facts, err := image.Facts(ctx)
	return facts, err == nil
}
