package pages

import (
	"context"
	"io"
)

// OpenContext is Open of a database that can be read until the context ends: then
// its cause is the error.
func OpenContext(ctx context.Context, r io.ReaderAt, size int64) (*File, error) {
	return Open(contextReaderAt{ctx, r}, size)
}

// contextReaderAt stops reading when the context has ended.
type contextReaderAt struct {
	ctx context.Context
	r   io.ReaderAt
}

// ReadAt reads on unless the context has ended.
func (c contextReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.ReadAt(p, off)
}
