package drill

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/pages"
	"github.com/requorum/requorum/verify/report"
)

// expected is what the cluster has to serve, read from the database before it
// boots: afterwards the members write to it.
type expected struct {
	revision, compacted int64
	hash                snapshot.HashKV
	rows                int64

	probes []*probe
	spans  []*span
	live   int64

	// changes are the newest ones, all after changesFrom.
	changesFrom int64
	changes     []change

	leases map[int64]*lease
	// orphans are keys with a lease that is not there: they never end.
	orphans map[string]int64
}

// span is a stretch of the keys, up to the next one's beginning, and how many
// there are in it.
type span struct {
	from string
	keys int64
}

// newestRevisions is how far back a watch is resumed.
const newestRevisions = 100

// readExpected reads what has to be served, and puts what the drill needs into
// the copies. A database that makes no sense is a finding; it is booted all the
// same, as only that shows what it is good for.
func (d *drill) readExpected(ctx context.Context) error {
	path := database(d.plan.Members[0])
	f, err := os.Open(path)
	if err != nil {
		return unable("read the built database: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return unable("read the built database: %w", err)
	}
	e := &expected{orphans: map[string]int64{}}
	// Two read the whole file; it was written a moment ago and is in memory.
	group, reading := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		e.hash, err = snapshot.ReadHashKV(reading, f, info.Size())
		return err
	})
	group.Go(func() error { return e.read(reading, f, info.Size(), d.options, d.facts) })
	auth, err := readAuth(f, info.Size())
	if err := errors.Join(group.Wait(), err); err != nil {
		var disk *fs.PathError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &disk):
			return unable("read the built database: %w", err)
		}
		d.findings.add(report.Finding{Kind: report.KindServe, Text: "what it should serve cannot be read: " + err.Error()})
		return nil
	}
	d.expect, d.auth = e, auth
	if err := d.auth.prepare(d.plan.Members); err != nil {
		return unable("put passwords into the copies: %w", err)
	}
	return nil
}

func (e *expected) read(ctx context.Context, r *os.File, size int64, o Options, facts snapshot.Facts) error {
	db, err := pages.Open(r, size)
	if err != nil {
		return err
	}
	e.revision, e.compacted = facts.Revision, facts.CompactedRevision
	e.changesFrom = max(e.compacted, e.revision-newestRevisions)
	if e.leases, err = readLeases(db, o); err != nil {
		return err
	}
	s, err := chooseRows(ctx, db, o)
	if err != nil {
		return err
	}
	e.rows = s.rows
	e.plan(s)
	return e.count(ctx, db)
}

// eachRow calls do for all rows in the order of revisions, but for those that
// no client sees: the ones without a key, which a bump of the revision writes.
func eachRow(ctx context.Context, db *pages.File, do func(row) error) error {
	keys, err := db.Bucket([]byte("key"))
	if err != nil {
		return err
	}
	if keys == nil {
		return errors.New("the database has no bucket key")
	}
	n := 0
	return keys.ForEach(func(k, v []byte) error {
		if n++; n%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r, err := parseRow(k, v)
		if err != nil || len(r.key) == 0 {
			return err
		}
		return do(r)
	})
}
