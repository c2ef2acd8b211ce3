package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/requorum/requorum/sinks"
)

// Open implements sinks.Sink.
func (s *Sink) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	r, err := s.open(ctx, name, offset, length)
	if err != nil {
		return nil, s.failed("open", name, err)
	}
	return r, nil
}

func (s *Sink) open(ctx context.Context, name string, offset, length int64) (*reader, error) {
	root, info, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // a folder that was only read
	size := info.Size()
	if offset < 0 || offset > size {
		return nil, fmt.Errorf("offset %d is outside of its %d bytes", offset, size)
	}
	left := size - offset
	if length >= 0 {
		left = min(left, length)
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, absent(err)
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &reader{ctx: ctx, sink: s, name: name, file: file, left: left}, nil
}

// Stat implements sinks.Sink.
func (s *Sink) Stat(ctx context.Context, name string) (sinks.Object, error) {
	root, info, err := s.find(ctx, name)
	if err != nil {
		return sinks.Object{}, s.failed("stat", name, err)
	}
	return describe(name, info), root.Close()
}

// find returns the open root and what is known of an object in it.
func (s *Sink) find(ctx context.Context, name string) (*os.Root, fs.FileInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := sinks.ValidName(name); err != nil {
		return nil, nil, err
	}
	root, err := s.openRoot(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, sinks.ErrNotFound
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		err = absent(err)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%w: %s of that name is there", sinks.ErrNotFound, notAnObject(info))
	default:
		return root, info, nil
	}
	return nil, nil, errors.Join(err, root.Close())
}

// absent turns "no such file", also below a file, into sinks.ErrNotFound.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return sinks.ErrNotFound
	}
	return err
}

func describe(name string, info fs.FileInfo) sinks.Object {
	return sinks.Object{Name: name, Size: info.Size(), ModTime: info.ModTime()}
}

// reader reads a range whose length is known from the start, so that a file
// that somebody truncates under it is found out.
type reader struct {
	ctx  context.Context
	sink *Sink
	name string
	file *os.File
	left int64
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, r.sink.failed("read", r.name, err)
	}
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.file.Read(p[:min(int64(r.sink.down.Most(len(p))), r.left)])
	r.left -= int64(n)
	if waited := r.sink.down.Wait(r.ctx, n); waited != nil && err == nil {
		err = waited
	}
	switch {
	case err == io.EOF && r.left > 0:
		return n, r.sink.failed("read", r.name, fmt.Errorf("%d bytes are missing at its end: %w", r.left, io.ErrUnexpectedEOF))
	case err != nil && err != io.EOF:
		return n, r.sink.failed("read", r.name, err)
	}
	return n, nil
}

// Close closes the file.
func (r *reader) Close() error { return r.file.Close() }
