package structure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// source reads the database, until the context ends, and counts. It may be used
// by several goroutines.
type source struct {
	ctx  context.Context
	r    io.ReaderAt
	read atomic.Int64
	// extended are the bytes of the pages that extend over others, each time that
	// one is loaded.
	extended atomic.Int64
}

// readAt fills b. Its errors are the place's, not the database's: whoever calls
// it has made sure that the bytes are within the size.
func (s *source) readAt(b []byte, at int64) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	n, err := s.r.ReadAt(b, at)
	s.read.Add(int64(n))
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read the database at byte %d: %w", at, err)
}

// ReadAt is for readers of single pages.
func (s *source) ReadAt(b []byte, at int64) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	n, err := s.r.ReadAt(b, at)
	s.read.Add(int64(n))
	return n, err
}
