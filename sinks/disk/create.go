package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/requorum/requorum/sinks"
)

// Create implements sinks.Sink. It makes the root where there is none, and
// sweeps what a process that died left there. Folders are made by Commit.
func (s *Sink) Create(ctx context.Context, name string, _ sinks.CreateOptions) (sinks.Writer, error) {
	w, err := s.create(ctx, name)
	if err != nil {
		return nil, s.failed("create", name, err)
	}
	return w, nil
}

func (s *Sink) create(ctx context.Context, name string) (*writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := sinks.ValidName(name); err != nil {
		return nil, err
	}
	root, err := s.openForWriting()
	if err != nil {
		return nil, err
	}
	d, err := s.draft(root, name)
	if err != nil {
		return nil, errors.Join(withSpace(root, err), root.Close())
	}
	return &writer{ctx: ctx, sink: s, root: root, name: name, draft: d}, nil
}

func (s *Sink) draft(root *os.Root, name string) (draft, error) {
	if info, err := root.Lstat(name); err == nil {
		return nil, taken(info) // early: nobody has sent bytes yet
	}
	if err := sweep(root); err != nil {
		return nil, fmt.Errorf("remove what an interrupted write left: %w", err)
	}
	if !s.named {
		d, err := newUnnamed(root)
		if !errors.Is(err, errors.ErrUnsupported) {
			return d, err
		}
	}
	return newNamed(root)
}

// taken is the error for a name at which something is.
func taken(info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return sinks.ErrExists
	}
	return fmt.Errorf("%s of that name is there, which is not an object: move it away", notAnObject(info))
}
