package walreplay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/pages"
	"github.com/requorum/requorum/walreplay/engine"
)

// Change is the last change of a key that a search found.
type Change struct {
	Key      string
	Deleted  bool
	Revision int64
	Index    uint64
	Time     string // when, in words; empty where nothing tells
}

func (c Change) String() string {
	what := "changed"
	if c.Deleted {
		what = "deleted"
	}
	text := fmt.Sprintf("key %q was last %s at revision %d, raft index %d", c.Key, what, c.Revision, c.Index)
	if c.Time != "" {
		text += ", " + c.Time
	}
	return text
}

// resolveBefore finds the last change of a key: it replays from the newest image
// to the end of the log and, where nothing changed there, from older ones up to
// where it has looked already. Where the log has more that no replay leads to, the
// change that was found need not be the last one: it is told, and refused.
func (h *History) resolveBefore(ctx context.Context, p *Point, o Options) error {
	begin, last := h.end()
	if p.Base != nil {
		begin, last = p.Base, h.Reach(p.Base)
	}
	if begin == nil {
		return &NotCoveredError{Target: p.Target, History: h.Name, Reason: "there is no full snapshot to begin from"}
	}
	if err := h.damageBehind(begin, last, 0); err != nil {
		return err
	}
	end := last
	for b := begin; b != nil; b = h.older(b) {
		if h.Reach(b) < last {
			return h.notFound(p, b, end, fmt.Sprintf("it did not change in entries %d to %d, and entries %d to %d, which may have changed it, are missing", last+1, end, h.Reach(b)+1, last))
		}
		if b.Index() == last && p.Base != nil {
			return h.notFound(p, b, end, fmt.Sprintf("no log goes on from %s, which was asked for", b.Name))
		}
		if b.Index() == last {
			continue // an image without an entry after it shows no change
		}
		change, reached, err := h.search(ctx, p.Target, b, last, o)
		if err != nil {
			return err
		}
		p.Reached = max(p.Reached, reached)
		if lost := h.behind(end); lost != "" && change != nil {
			return &NotCoveredError{
				Target: p.Target, History: h.Name,
				Reason: fmt.Sprintf("%s, and a later change may be among all these; %s, as far as is known: --index %d restores the point before that", lost, change, change.Index-1),
			}
		}
		if change == nil {
			last = b.Index()
			if p.Base != nil {
				return h.notFound(p, b, end, fmt.Sprintf("it did not change in entries %d to %d", last+1, end))
			}
			continue
		}
		p.Change, p.Base, p.Last = change, b, change.Index-1
		// The state before the change: at the revision before it, whatever that
		// many entries did to leases and users.
		p.Revision = change.Revision - 1
		return nil
	}
	if last == end {
		return h.notFound(p, begin, end, "no log tells of changes")
	}
	return h.notFound(p, nil, end, fmt.Sprintf("it did not change in entries %d to %d, and no full snapshot with a log that goes on from before them is there", last+1, end))
}

// older is the next image before b that is of an older state, or nil.
func (h *History) older(b *Base) *Base {
	return h.newest(func(o *Base) bool { return o.Index() < b.Index() })
}

func (h *History) notFound(p *Point, before *Base, end uint64, reason string) error {
	e := &NotCoveredError{Target: p.Target, History: h.Name, Reason: reason}
	if lost := h.behind(end); lost != "" {
		e.Reason += "; " + lost
	}
	if before != nil {
		e.Before = h.nearReach(before)
	}
	return e
}

// search replays from b to last and looks out for the keys of the target.
func (h *History) search(ctx context.Context, t Target, b *Base, last uint64, o Options) (_ *Change, revision int64, err error) {
	key, end := t.keyRange()
	r, err := h.replay(ctx, b, PhaseSearch, o, engine.RunOptions{Last: last, Watch: &engine.Watch{Key: key, End: end}})
	if err != nil {
		return nil, 0, fmt.Errorf("look for the last change: %w", err)
	}
	defer func() { err = errors.Join(err, r.scratch.remove()) }()
	found := r.stopped.Change
	if found == nil {
		return nil, r.stopped.Revision, nil
	}
	c := &Change{Key: t.Key, Revision: found.Revision, Index: found.Index}
	if err := c.describe(r.scratch.database(), key, end); err != nil {
		return nil, 0, fmt.Errorf("look for the last change: %w", err)
	}
	c.Time, err = h.about(ctx, c.Index)
	return c, r.stopped.Revision, err
}

// deletedRow is the size of a row's key, eight bytes, '_', eight bytes, where the
// row stands for a deletion: a 't' is behind it then.
const deletedRow = 18

// describe finds out which key it was, and whether it was deleted. A row that is
// gone was the mark of a deletion: compaction keeps the last value of a key.
func (c *Change) describe(path string, key, end []byte) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	db, err := pages.Open(f, info.Size())
	if err != nil {
		return err
	}
	rows, err := db.Bucket([]byte("key"))
	if err != nil || rows == nil {
		return errors.Join(err, errors.New("the rebuilt database has no key bucket"))
	}
	c.Deleted = true
	from := append(binary.BigEndian.AppendUint64(nil, uint64(c.Revision)), '_')
	cursor := rows.Cursor()
	for k, v, err := cursor.Seek(from); k != nil || err != nil; k, v, err = cursor.Next() {
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(k, from) {
			break
		}
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(v, &kv); err != nil {
			return fmt.Errorf("row of revision %d: %w", c.Revision, err)
		}
		if within(kv.Key, key, end) {
			c.Key, c.Deleted = string(kv.Key), len(k) == deletedRow
			return nil
		}
	}
	return nil
}

func within(k, key, end []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(k, key)
	case len(end) == 1 && end[0] == 0:
		return bytes.Compare(k, key) >= 0
	}
	return bytes.Compare(k, key) >= 0 && bytes.Compare(k, end) < 0
}
