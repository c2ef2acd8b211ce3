package difference

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/pages"
	"github.com/requorum/requorum/snapshot/rowkey"
)

// side is an open database.
type side struct {
	Side
	db                  *pages.File
	scheduled, finished int64 // compactions; 0: none
	storage             bool  // it has a storage version: from etcd 3.6 on
}

func openSide(ctx context.Context, s Side) (*side, error) {
	db, err := pages.OpenContext(ctx, s.R, s.Size)
	if err != nil {
		return nil, damage(s.Name, err)
	}
	o := &side{Side: s, db: db}
	meta, err := db.Bucket([]byte("meta"))
	if err != nil {
		return nil, damage(s.Name, err)
	}
	if meta == nil {
		return nil, &snapshot.DamagedError{Object: s.Name, Offset: -1, Err: errors.New("no bucket meta: a bbolt database, but not one of etcd")}
	}
	for key, at := range map[string]*int64{"scheduledCompactRev": &o.scheduled, "finishedCompactRev": &o.finished} {
		v, err := meta.Get([]byte(key))
		if err != nil {
			return nil, damage(s.Name, err)
		}
		if v == nil {
			continue
		}
		r, err := rowkey.Parse(v)
		if err != nil {
			return nil, &snapshot.DamagedError{Object: s.Name, Offset: -1, Err: fmt.Errorf("%s in bucket meta is no revision", key)}
		}
		*at = r.Main
	}
	storage, err := meta.Get([]byte("storageVersion"))
	o.storage = storage != nil
	return o, damage(s.Name, err)
}

// compacted is the revision that etcd would open the database with: a compaction
// that was scheduled and not finished counts.
func (s *side) compacted() int64 { return max(s.scheduled, s.finished) }

// damage names the database in what pages says of it.
func damage(name string, err error) error {
	var page *pages.PageError
	switch {
	case errors.As(err, &page):
		return &snapshot.DamagedError{Object: name, Offset: page.Offset, Err: err}
	case errors.Is(err, pages.ErrNotDatabase), errors.Is(err, pages.ErrBigEndian):
		return &snapshot.DamagedError{Object: name, Offset: -1, Err: err}
	case err != nil:
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}
