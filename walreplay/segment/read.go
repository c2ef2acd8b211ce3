package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// ReadHeader reads the header of the segment called name, with one small
// read, and checks that it belongs there. One that was altered or moved is a
// *snapshot.DamagedError, one that a newer version wrote
// snapshot.ErrNewerFormat; sinks.ErrNotFound says that there is none.
func ReadHeader(ctx context.Context, s sinks.Sink, name string) (Header, error) {
	r, err := s.Open(ctx, name, 0, HeaderSize)
	if err != nil {
		return Header{}, err
	}
	h, err := header(r, s, name)
	return h, errors.Join(err, r.Close())
}

// header reads the header block from the beginning of an object.
func header(r io.Reader, s sinks.Sink, name string) (Header, error) {
	// Not io.ReadFull: a connection that broke is no short object.
	b, err := io.ReadAll(io.LimitReader(r, HeaderSize))
	if err != nil {
		return Header{}, fmt.Errorf("read %s in %s: %w", name, s, err)
	}
	h, err := parseBlock(b)
	switch {
	case errors.Is(err, snapshot.ErrNewerFormat):
		return Header{}, fmt.Errorf("%s in %s: %w", name, s, err)
	case err != nil:
		return Header{}, damaged(s, name, 0, err)
	}
	n, err := repository.ParseSegmentName(name)
	if err != nil {
		return Header{}, err
	}
	if n != h.name() {
		return Header{}, damaged(s, name, 0, fmt.Errorf("it is the header of %s: it was moved or copied here", h.Name()))
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
func Read(ctx context.Context, s sinks.Sink, name string, identities ...age.Identity) (Header, Batch, error) {
	r, err := s.Open(ctx, name, 0, -1)
	if err != nil {
		return Header{}, Batch{}, err
	}
	h, b, err := read(ctx, r, s, name, identities)
	if err := errors.Join(err, r.Close()); err != nil {
		return Header{}, Batch{}, err
	}
	return h, b, nil
}

func read(ctx context.Context, r io.Reader, s sinks.Sink, name string, identities []age.Identity) (Header, Batch, error) {
	h, err := header(r, s, name)
	if err != nil {
		return Header{}, Batch{}, err
	}
	raw, err := decodeBody(ctx, r, h, identities)
	if err != nil {
		return Header{}, Batch{}, bodyError(s, name, err)
	}
	b, err := parseRecords(raw, h.Entries)
	if err != nil {
		return Header{}, Batch{}, damaged(s, name, -1, err)
	}
	after, err := chain(h, b)
	if err == nil && after != h.After {
		err = fmt.Errorf("the chain ends with %s, not %s", after, h.After)
	}
	if err != nil {
		return Header{}, Batch{}, damaged(s, name, -1, err)
	}
	return h, b, nil
}

func decodeBody(ctx context.Context, r io.Reader, h Header, identities []age.Identity) ([]byte, error) {
	body, err := codec.NewReader(ctx, r, h.Object, identities...)
	if err != nil {
		return nil, err
	}
	var raw bytes.Buffer
	// On the header's word for an ordinary size; more comes with the bytes.
	raw.Grow(int(min(h.Object.RawSize, MaxRaw)))
	_, err = io.Copy(&raw, body)
	return raw.Bytes(), errors.Join(err, body.Close())
}
