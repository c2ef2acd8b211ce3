package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// ReadHeader reads the header of the segment called name, with one small
// read, and checks that it belongs there. One that was altered or moved is a
// *snapshot.DamagedError, which wraps repository.ErrUnsigned where nobody who is trusted
// signed it; one that a newer version wrote
// snapshot.ErrNewerFormat; sinks.ErrNotFound says that there is none.
func ReadHeader(ctx context.Context, repo *repository.Repository, name string) (Header, error) {
	r, err := repo.Sink().Open(ctx, name, 0, HeaderSize)
	if err != nil {
		return Header{}, err
	}
	h, err := header(r, repo, name)
	return h, errors.Join(err, r.Close())
}

// header reads the header block from the beginning of an object.
func header(r io.Reader, repo *repository.Repository, name string) (Header, error) {
	// Not io.ReadFull: a connection that broke is no short object.
	b, err := io.ReadAll(io.LimitReader(r, HeaderSize))
	if err != nil {
		return Header{}, fmt.Errorf("read %s in %s: %w", name, repo, err)
	}
	h, err := parseBlock(b, repo, name)
	switch {
	case errors.Is(err, snapshot.ErrNewerFormat):
		return Header{}, fmt.Errorf("%s in %s: %w", name, repo, err)
	case err != nil:
		if repo.Checks() && !errors.Is(err, repository.ErrUnsigned) {
			err = fmt.Errorf("%w; so no signature shows whose it is, and it may be anybody's: find out who wrote it, then remove it", err)
		}
		return Header{}, damaged(repo, name, 0, err)
	}
	n, err := repository.ParseSegmentName(name)
	if err != nil {
		return Header{}, err
	}
	if n != h.name() {
		return Header{}, damaged(repo, name, 0, fmt.Errorf("it is the header of %s: it was moved or copied here", h.Name()))
	}
	return h, nil
}

// Read reads the whole segment called name. Entries are returned only after
// all of these agreed: the header with the name; sizes and sums of the stored
// and of the raw bytes with the header; the records' order; indexes without a
// hole; terms; the chain's value from Before to After; the marks. Whatever does
// not is a *snapshot.DamagedError. An encrypted segment without a fitting
// identity is a *codec.IdentityError.
//
// Entries share one piece of memory, which lives as long as any of them.
func Read(ctx context.Context, repo *repository.Repository, name string, identities ...age.Identity) (Header, Batch, error) {
	return readUpTo(ctx, repo, repo.Sink(), name, rawLimit, identities)
}

// readUpTo takes the bytes from a sink, which may be another one that keeps what was read.
func readUpTo(ctx context.Context, repo *repository.Repository, from sinks.Sink, name string, most int64, identities []age.Identity) (Header, Batch, error) {
	r, err := from.Open(ctx, name, 0, -1)
	if err != nil {
		return Header{}, Batch{}, err
	}
	h, b, err := read(ctx, r, repo, name, most, identities)
	if err := errors.Join(err, r.Close()); err != nil {
		return Header{}, Batch{}, err
	}
	return h, b, nil
}

// read refuses one with more than most raw bytes as ErrNotAsNamed.
func read(ctx context.Context, r io.Reader, repo *repository.Repository, name string, most int64, identities []age.Identity) (Header, Batch, error) {
	h, err := header(r, repo, name)
	if err != nil {
		return Header{}, Batch{}, err
	}
	if h.Object.RawSize > most {
		return Header{}, Batch{}, ErrNotAsNamed
	}
	raw, err := decodeBody(ctx, r, h, identities)
	if err != nil {
		return Header{}, Batch{}, bodyError(repo, name, err)
	}
	b, err := parseRecords(raw, h.Entries, h.Marks)
	if err != nil {
		return Header{}, Batch{}, damaged(repo, name, -1, err)
	}
	after, err := chain(h, b)
	if err == nil && after != h.After {
		err = fmt.Errorf("the chain ends with %s, not %s", after, h.After)
	}
	if err != nil {
		return Header{}, Batch{}, damaged(repo, name, -1, err)
	}
	return h, b, nil
}

func decodeBody(ctx context.Context, r io.Reader, h Header, identities []age.Identity) ([]byte, error) {
	body, err := codec.NewReader(ctx, r, h.Object, identities...)
	if err != nil {
		return nil, err
	}
	var raw bytes.Buffer
	// What has come so far is good: the header is believed for an ordinary size, and as soon
	// as that has come, for all.
	for _, size := range []int64{1, min(h.Object.RawSize, MaxRaw), h.Object.RawSize} {
		raw.Grow(int(size) - raw.Len() + bytes.MinRead) // with less room than MinRead it would take twice as much
		if _, err = io.CopyN(&raw, body, size-int64(raw.Len())); err != nil {
			break
		}
	}
	if err == nil {
		_, err = io.Copy(&raw, body) // which finds what is too much, and the end
	}
	return raw.Bytes(), errors.Join(err, body.Close())
}

// probe reads the header of a segment, and the first byte of its body.
func probe(ctx context.Context, repo *repository.Repository, name string, identities []age.Identity) (h Header, err error) {
	r, err := repo.Sink().Open(ctx, name, 0, -1)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if h, err = header(r, repo, name); err != nil {
		return h, err
	}
	body, err := codec.NewReader(ctx, r, h.Object, identities...)
	if err == nil {
		_, err = io.CopyN(io.Discard, body, 1)
		err = errors.Join(err, body.Close())
	}
	if err != nil {
		return h, bodyError(repo, name, err)
	}
	return h, nil
}

// What is fetched ahead of the one who reads: enough bodies at once to hide the
// round trips, and no more raw bytes than a few large segments have.
const (
	parallelBodies = 8
	prefetchBytes  = 4 * MaxRaw
)

// errChanged says that an object is not the one that was listed under its
// name.
var errChanged = errors.New("it was deleted and stored anew since it was listed")

// fetched is a segment on its way.
type fetched struct {
	header Header // as it was listed
	read   Header
	batch  Batch
	err    error
	done   chan struct{}
}

// prefetcher reads segments in their order, some ahead.
type prefetcher struct {
	log    *Log
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	left  []Header   // not started
	queue []*fetched // started, not taken
	bytes int64      // raw ones in the queue
}

func (l *Log) prefetch(ctx context.Context, path []Header) *prefetcher {
	p := &prefetcher{log: l, left: path}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// next waits for the next segment.
func (p *prefetcher) next() *fetched {
	p.start()
	f := p.queue[0]
	<-f.done // ends with the context
	p.queue = p.queue[1:]
	p.bytes -= f.header.Object.RawSize
	p.start()
	return f
}

// start starts what fits.
func (p *prefetcher) start() {
	for len(p.left) > 0 && len(p.queue) < parallelBodies {
		size := p.left[0].Object.RawSize
		if len(p.queue) > 0 && p.bytes+size > prefetchBytes {
			return
		}
		f := &fetched{header: p.left[0], done: make(chan struct{})}
		p.left, p.queue, p.bytes = p.left[1:], append(p.queue, f), p.bytes+size
		p.wg.Go(func() {
			defer close(f.done)
			f.read, f.batch, f.err = p.log.body(p.ctx, f.header)
		})
	}
}

// end stops what is under way, and returns when it has stopped.
func (p *prefetcher) end() {
	p.cancel()
	p.wg.Wait()
}

// body is Read. Where the segment is damaged that is remembered, and where it is a
// merged one the log is listed anew: what it replaced may still be there.
func (l *Log) body(ctx context.Context, listed Header) (Header, Batch, error) {
	h, b, err := l.Read(ctx, listed)
	if snapshot.IsDamaged(err) {
		l.spoil(listed.name(), err)
		if listed.Level > 0 && !l.current().byNames { // one by names is listed anew anyway
			if failed := l.Refresh(ctx); failed != nil {
				err = failed
			}
		}
	}
	return h, b, err
}

// KeepIn keeps the segments that are read from now on in a file, so that they are not
// fetched again. It comes before any reading, and the caller closes the file after all.
func (l *Log) KeepIn(f *os.File) { l.source = sinks.KeepIn(l.source, f) }

// Read reads one of the segments that Headers gives, as the function Read does. Where
// only its name was known, and it is not what names said, the error is ErrNotAsNamed.
func (l *Log) Read(ctx context.Context, listed Header) (Header, Batch, error) {
	most := int64(rawLimit)
	if !listed.isRead() {
		most = 2 * MaxRaw // several are in memory, and how large they are nobody knew
	}
	h, b, err := readUpTo(ctx, l.repo, l.source, listed.Name(), most, l.identities)
	switch {
	case err != nil:
	case !listed.isRead() && (h.LastIndex != listed.LastIndex || l.isPlain(h)):
		err = ErrNotAsNamed
	case listed.isRead() && (h.end() != listed.end() || h.begin() != listed.begin()):
		err = errChanged
	}
	return h, b, err
}
