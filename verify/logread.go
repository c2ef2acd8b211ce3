package verify

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/segment"
)

// What is read of a log at once: enough to hide the round trips, and no more raw
// bytes than a few segments have. One that is larger than all is read alone.
const (
	parallelSegments = 8
	segmentBytes     = 4 * segment.MaxRaw
)

// readAll reads the segments that were not read yet. Those that are gone since
// they were listed are its result.
func (l *logCheck) readAll(ctx context.Context) (gone []string, err error) {
	l.headers = l.inPart()
	l.sample.renew(l.part.timeline, l.headers, l.log.Damaged())
	old := l.chain
	l.chain = newChainMap(l.headers, l.interesting())
	if old != nil {
		l.chain.take(old)
	}
	var mu sync.Mutex
	var done, total int64
	var unread []segment.Header
	for _, h := range l.headers {
		if name := h.Name(); !l.read[name] && !l.sample.leaves(name) {
			unread = append(unread, h)
			total += h.Size()
		}
	}
	room := semaphore.NewWeighted(segmentBytes)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSegments)
	for _, h := range unread {
		name := h.Name()
		weight := min(h.Object.RawSize, segmentBytes)
		if err := room.Acquire(groupCtx, weight); err != nil {
			break // ctx has ended: Wait tells
		}
		group.Go(func() error {
			defer room.Release(weight)
			seen, sealed, err := l.readSegment(groupCtx, h)
			if groupCtx.Err() != nil {
				return context.Cause(groupCtx)
			}
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, sinks.ErrNotFound) {
				gone = append(gone, name)
				return nil
			}
			l.read[name] = true
			done += h.Size()
			l.check.Bytes += h.Size()
			l.Progress("read the log", done, total)
			if err != nil {
				took(l.check, report.KindSegment, name, err)
				return nil
			}
			l.whole[name] = true
			switch {
			case sealed:
				l.sealed++
				l.examination.sealed.Add(1)
			case h.Object.Encrypted():
				l.opened.Add(1)
			}
			l.chain.add(h, seen)
			return nil
		})
	}
	err = group.Wait()
	return gone, err
}

// readSegment reads one segment and keeps of it what it has in common with
// others. Where it cannot be decrypted its stored bytes are compared.
func (l *logCheck) readSegment(ctx context.Context, listed segment.Header) (seen within, sealed bool, err error) {
	h, batch, err := segment.Read(ctx, l.repo.Sink(), listed.Name(), l.Identities...)
	switch {
	case isSealed(err):
		return within{}, true, l.readSealed(ctx, listed)
	case err != nil:
		return within{}, false, err
	case h.Before != listed.Before || h.After != listed.After || h.LastIndex != listed.LastIndex:
		return within{}, false, &snapshot.DamagedError{Object: h.Name(), Offset: -1, Err: errors.New("it was replaced while it was read")}
	}
	return l.chain.look(h, batch.Entries), false, nil
}

// readSealed compares the bytes behind the header with it.
func (l *logCheck) readSealed(ctx context.Context, h segment.Header) error {
	r, err := l.repo.Sink().Open(ctx, h.Name(), segment.HeaderSize, -1)
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("read %s in %s: %w", h.Name(), l.repo, err)
	}
	return storedAs(h.Name(), h.Object, n, sum)
}
