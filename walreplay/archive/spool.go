package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// spool is a small repository on the local disk for segments that could not be stored yet.
// They are whole, synced, readable by their owner only, and never encrypted: the member's own
// WAL holds the same entries, and so an agent without an identity can cut them again.
type spool struct {
	repo     *repository.Repository
	segments []segment.Header // ordered by timeline and first index
	marks    []repository.MarkName
	bytes    int64
	damaged  []error // what cannot be used; it is left alone
}

// openSpool reads what an earlier process left.
func openSpool(ctx context.Context, place sinks.Sink, now time.Time) (*spool, error) {
	repo, err := repository.Init(ctx, place, now)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	p := &spool{repo: repo}
	ids, err := repo.TimelineIDs(ctx)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	for _, id := range ids {
		if err := p.readTimeline(ctx, id); err != nil {
			return nil, fmt.Errorf("spool: %w", err)
		}
	}
	p.sort()
	return p, nil
}

func (p *spool) readTimeline(ctx context.Context, id repository.TimelineID) error {
	listed, err := p.repo.Segments(ctx, id)
	if err != nil {
		return err
	}
	for _, l := range listed {
		h, err := segment.ReadHeader(ctx, p.repo, l.String())
		switch {
		case snapshot.IsDamaged(err):
			p.damaged = append(p.damaged, err)
			continue
		case err != nil:
			return err
		}
		p.segments = append(p.segments, h)
		p.bytes += h.Size()
	}
	marks, err := p.repo.Marks(ctx, id)
	p.marks = append(p.marks, marks...)
	return err
}

func (p *spool) sort() {
	slices.SortFunc(p.segments, func(a, b segment.Header) int {
		return cmp.Or(cmp.Compare(a.Timeline.N, b.Timeline.N), cmp.Compare(a.FirstIndex, b.FirstIndex))
	})
}

// add stores a segment; it is on disk when add returns. An older one of the same
// name was read from the same log and cut elsewhere: the new one takes its place.
func (p *spool) add(h segment.Header, object []byte) error {
	ctx := context.Background() // local, and never to be left half done
	err := segment.Put(ctx, p.repo, h, object)
	if errors.Is(err, sinks.ErrExists) {
		if err := p.remove(h.Name()); err != nil {
			return err
		}
		err = segment.Put(ctx, p.repo, h, object)
	}
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	p.segments = append(p.segments, h)
	p.bytes += h.Size()
	p.sort()
	return nil
}

// remove forgets a segment that is durable elsewhere.
func (p *spool) remove(name string) error {
	if err := p.repo.Sink().Delete(context.Background(), name); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	p.segments = slices.DeleteFunc(p.segments, func(h segment.Header) bool {
		if h.Name() != name {
			return false
		}
		p.bytes -= h.Size()
		return true
	})
	return nil
}

// setAside leaves what is spooled for a timeline from an index on alone: the archive
// contradicts it. It stays on the disk.
func (p *spool) setAside(t repository.TimelineID, from uint64) {
	p.segments = slices.DeleteFunc(p.segments, func(h segment.Header) bool { return h.Timeline == t && h.FirstIndex >= from })
}

// keepBack leaves one segment on the disk, and does not know it any more.
func (p *spool) keepBack(h segment.Header) {
	p.segments = slices.DeleteFunc(p.segments, func(o segment.Header) bool { return o.Timeline == h.Timeline && o.Name() == h.Name() })
}

// of are the segments that are spooled for a timeline.
func (p *spool) of(t repository.TimelineID) []segment.Header {
	return slices.DeleteFunc(slices.Clone(p.segments), func(h segment.Header) bool { return h.Timeline != t })
}

// timelines are those that segments are spooled for, in order.
func (p *spool) timelines() []repository.TimelineID {
	var ids []repository.TimelineID
	for _, h := range p.segments {
		if !slices.Contains(ids, h.Timeline) {
			ids = append(ids, h.Timeline)
		}
	}
	return ids
}

// removeThrough forgets all up to an index of a timeline.
func (p *spool) removeThrough(t repository.TimelineID, index uint64) error {
	for _, h := range p.of(t) {
		if h.LastIndex <= index {
			if err := p.remove(h.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// behind are the segments spooled for a timeline that end behind an index, as far
// as one goes on from the other.
func (p *spool) behind(t repository.TimelineID, index uint64) []segment.Header {
	all := slices.DeleteFunc(p.of(t), func(h segment.Header) bool { return h.LastIndex <= index })
	for i := range all[min(1, len(all)):] {
		if !all[i].GoesOn(all[i+1]) {
			return all[:i+1]
		}
	}
	return all
}

// following are those that go on from the last segment of a timeline's archive, or
// that begin it where there is none.
func (p *spool) following(t repository.TimelineID, last segment.Header) []segment.Header {
	all := p.behind(t, last.LastIndex)
	if len(all) > 0 && (last.Entries == 0 && all[0].ChainStart || last.Entries > 0 && last.GoesOn(all[0])) {
		return all
	}
	return nil
}

// addMark keeps an alive mark.
func (p *spool) addMark(t repository.TimelineID, m raftlog.Mark) error {
	if err := segment.WriteMark(context.Background(), p.repo, t, m); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	p.marks = append(p.marks, repository.MarkName{Timeline: t, Index: m.Index, Time: m.Time.UTC().Round(0), Member: m.Member})
	return nil
}

// moveMark stores one spooled mark in the repository.
func (p *spool) moveMark(ctx context.Context, repo *repository.Repository, n repository.MarkName) error {
	a, err := segment.ReadMark(ctx, p.repo, n)
	if err == nil {
		err = segment.WriteMark(ctx, repo, a.Timeline, a.Mark)
	}
	if err != nil {
		return err
	}
	return p.repo.Sink().Delete(ctx, n.String())
}

// folder is the local disk: the spool, and the position.
//
// A full disk is an alarm and no error: what is not written stays in memory, and in the
// member's log.
type folder struct {
	*base
	spool    *spool
	position position
	saved    time.Time
	spaceAt  time.Time // no segment is spooled before
	fullAt   time.Time // when the spool was seen full last
	unbound  bool      // the spool may exceed its bound
}

// spaceAgain is how soon a segment is spooled again where there was no room: it is cut
// anew each time.
const spaceAgain = 5 * time.Second

// isFull reports that a disk, or a quota on it, is used up.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// spoolWritten notes how a write to the spool's folder ended. Want of space is an alarm,
// and no error: what is not spooled stays in memory, and in the member's files, as
// far as the bound; what is spooled already is stored without any space.
func (f *folder) spoolWritten(err error) error {
	if !isFull(err) {
		return err
	}
	f.spaceAt = time.Now().Add(spaceAgain)
	f.spoolFull(f.noSpace(err))
	return nil
}

func (f *folder) noSpace(err error) string {
	return fmt.Sprintf("the disk of the spool %s is full: make room there, or choose another folder (archive.spool-dir); until then what the repository does not take waits in memory and in the member's own files, and what the member purges may be lost: %v", f.SpoolDir, err)
}

// openSpool opens the spool, which takes a little space the first time only.
func (f *folder) openSpool(ctx context.Context) (*spool, error) {
	place, err := f.place(filepath.Join(f.SpoolDir, "objects"))
	if err != nil {
		err = fmt.Errorf("spool: %w", err)
	} else {
		var p *spool
		if p, err = openSpool(ctx, place, f.Now()); err == nil {
			return p, nil
		}
	}
	if isFull(err) {
		f.spoolFull(f.noSpace(err))
		return nil, f.reported(err)
	}
	return nil, err
}

// position is what an archiver remembers: enough to go on capturing when it is
// started while the repository is away.
type position struct {
	Identity Identity       `json:"identity"`
	End      segment.Header `json:"end,omitzero"`   // the last segment known to be archived
	Gap      *Gap           `json:"gap,omitempty"`  // a full snapshot is due for it
	Place    place          `json:"place,omitzero"` // the repository that it archives to
}

const positionFile = "position.json"

// readPosition gives the zero position where there is none, or none that is
// whole: it only saves time.
func readPosition(dir string) (position, error) {
	var p position
	data, err := safedir.ReadFile(filepath.Join(dir, positionFile), repository.DocumentLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("read the archiver's position: %w", err)
	}
	if err := repository.Unseal(data, &p); err != nil {
		p = position{}
	}
	return p, nil
}

// write replaces the position at once.
func (p position) write(dir string) error {
	data, err := repository.Seal(p)
	if err != nil {
		return err
	}
	if err := safedir.Replace(filepath.Join(dir, positionFile), data); err != nil {
		return fmt.Errorf("write the archiver's position: %w", err)
	}
	return nil
}

// lockFolder keeps a second archiver out of the spool folder, and refuses one that belongs to
// another user. The lock ends with the process, however that ends.
func lockFolder(dir string) (unlock func() error, err error) {
	info, err := safedir.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("archive: the spool folder %s: %w", dir, err)
	}
	st, known := info.Sys().(*syscall.Stat_t)
	if uid := os.Geteuid(); known && st.Uid != 0 && int(st.Uid) != uid {
		return nil, fmt.Errorf("archive: the spool folder %s belongs to user %d, who could delete or replace what waits there: chown -R %d %s, or choose another archive.spool-dir", dir, st.Uid, uid, shell.Quote(dir))
	}
	path := filepath.Join(dir, "lock")
	f, err := safedir.Create(path)
	if errors.Is(err, fs.ErrExist) {
		f, err = safedir.OpenWritable(path)
	}
	if err != nil {
		return nil, fmt.Errorf("archive: lock the spool folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("archive: the spool folder %s is in use by another archiver; each needs one of its own: %w", dir, errors.Join(err, f.Close()))
	}
	return f.Close, nil
}
