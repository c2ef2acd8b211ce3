package archive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// spool is a small repository on the local disk: what could not be stored yet
// lies in it under the same names and byte for byte as it will be stored. So it
// is whole, synced, for its owner alone, and encrypted where the archive is.
type spool struct {
	repo     *repository.Repository
	segments []segment.Header // ordered by timeline and first index
	marks    []repository.MarkName
	bytes    int64
	damaged  []error         // what cannot be used; it is left alone
	disputed map[string]bool // what the archive contradicts; it is left alone, too
}

// openSpool reads what an earlier process left.
func openSpool(ctx context.Context, place sinks.Sink, now time.Time) (*spool, error) {
	repo, err := repository.Init(ctx, place, now)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	p := &spool{repo: repo, disputed: map[string]bool{}}
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
		h, err := segment.ReadHeader(ctx, p.repo.Sink(), l.String())
		var damage *snapshot.DamagedError
		switch {
		case errors.As(err, &damage):
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
	err := segment.Put(ctx, p.repo.Sink(), h, object)
	if errors.Is(err, sinks.ErrExists) {
		if err := p.remove(h.Name()); err != nil {
			return err
		}
		err = segment.Put(ctx, p.repo.Sink(), h, object)
	}
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	p.segments = append(p.segments, h)
	p.bytes += h.Size()
	p.sort()
	return nil
}

// get reads a segment as it is to be stored, and checks that it still is what
// was put there.
func (p *spool) get(h segment.Header) ([]byte, error) {
	data, err := sinks.Get(context.Background(), p.repo.Sink(), h.Name(), h.Size())
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	sum := sha256.Sum256(data[min(len(data), segment.HeaderSize):])
	if hex.EncodeToString(sum[:]) != h.Object.StoredSHA256 {
		return nil, &snapshot.DamagedError{Object: h.Name() + " in the spool " + p.repo.String(), Offset: -1, Err: errors.New("its bytes are not those that were written")}
	}
	return data, nil
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

// passed tells that something is spooled that the archive of a timeline went past.
func (p *spool) passed(t repository.TimelineID, index uint64) bool {
	return slices.ContainsFunc(p.segments, func(h segment.Header) bool {
		return h.Timeline == t && h.FirstIndex <= index && !p.disputed[h.Name()]
	})
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

// removeThrough forgets all up to an index of a timeline. Before it is called,
// what the archive does not cover was stored, by storeSpooled.
func (p *spool) removeThrough(t repository.TimelineID, index uint64) error {
	for _, h := range slices.Clone(p.segments) {
		if h.Timeline == t && h.LastIndex <= index && !p.disputed[h.Name()] {
			if err := p.remove(h.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// lane is what is spooled behind an archive that ends at index last with the
// chain's value after: segment after segment, joined by the chain.
func (p *spool) lane(t repository.TimelineID, last uint64, after raftlog.Sum) []segment.Header {
	var lane []segment.Header
	for _, h := range p.segments {
		if h.Timeline == t && h.FirstIndex == last+1 && h.Before == after {
			lane = append(lane, h)
			last, after = h.LastIndex, h.After
		}
	}
	return lane
}

// overlapping is the lane that begins at or before index last and goes beyond
// it: what another archiver stored meanwhile ends in the middle of a segment.
func (p *spool) overlapping(t repository.TimelineID, last uint64) []segment.Header {
	for _, h := range p.segments {
		if h.Timeline == t && h.FirstIndex <= last && h.LastIndex > last {
			return append([]segment.Header{h}, p.lane(t, h.LastIndex, h.After)...)
		}
	}
	return nil
}

// firstLane is what is spooled for a timeline in which nothing is archived yet.
func (p *spool) firstLane(t repository.TimelineID) []segment.Header {
	for _, h := range p.segments {
		if h.Timeline == t && h.Anchor {
			return p.lane(t, h.FirstIndex-1, h.Before)
		}
	}
	return nil
}

// addMark keeps an alive mark.
func (p *spool) addMark(t repository.TimelineID, m raftlog.Mark, stamp *segment.Stamp) error {
	if err := segment.WriteMark(context.Background(), p.repo, t, m, stamp); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	p.marks = append(p.marks, repository.MarkName{Timeline: t, Index: m.Index, Time: m.Time.UTC().Round(0), Member: m.Member})
	return nil
}

// moveMark stores one spooled mark in the repository.
func (p *spool) moveMark(ctx context.Context, repo *repository.Repository, n repository.MarkName) error {
	a, err := segment.ReadMark(ctx, p.repo, n)
	if err == nil {
		err = segment.WriteMark(ctx, repo, a.Timeline, a.Mark, a.Stamp)
	}
	if err != nil {
		return err
	}
	return p.repo.Sink().Delete(ctx, n.String())
}
