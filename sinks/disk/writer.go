package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/store/safedir"
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
	root, err := s.openForWriting(ctx)
	if err != nil {
		return nil, err
	}
	d, err := s.draft(root, name)
	if err != nil {
		return nil, errors.Join(withSpace(root, err), root.Close())
	}
	return &writer{ctx: ctx, sink: s, root: root, name: name, draft: d, file: safedir.NewWriteback(d.file)}, nil
}

func (s *Sink) draft(root *os.Root, name string) (*draft, error) {
	if info, err := root.Lstat(name); err == nil {
		return nil, taken(info) // early: nobody has sent bytes yet
	}
	if err := sweep(root); err != nil {
		return nil, fmt.Errorf("remove what an interrupted write left: %w", err)
	}
	return newDraft(root)
}

// taken is the error for a name at which something is.
func taken(info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return sinks.ErrExists
	}
	return fmt.Errorf("%s of that name is there, which is not an object: move it away", notAnObject(info))
}

const (
	// writeChunk is how much is written between two looks at the context.
	writeChunk = 1 << 20
	// publishTries bounds how often a Delete may remove the object's folder
	// between its making and the link: once is rare.
	publishTries = 100
)

type writer struct {
	ctx     context.Context
	sink    *Sink
	root    *os.Root
	name    string
	draft   *draft
	file    *safedir.Writeback // the draft's
	written int64
	err     error // of a Write; Commit repeats it
	closed  bool
}

func (w *writer) Write(p []byte) (int, error) {
	if w.closed {
		return 0, sinks.ErrClosed
	}
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.write(p)
	w.written += int64(n)
	if err != nil {
		w.err = w.sink.failed("write", w.name, w.explain(err))
	}
	return n, w.err
}

func (w *writer) write(p []byte) (written int, err error) {
	for written < len(p) {
		if err := w.ctx.Err(); err != nil {
			return written, err
		}
		part := p[written : written+w.sink.up.Most(min(len(p)-written, writeChunk))]
		if err := w.sink.up.Wait(w.ctx, len(part)); err != nil {
			return written, err
		}
		n, err := w.file.Write(part)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, w.ctx.Err()
}

func (w *writer) explain(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w; %d bytes of the object were written", withSpace(w.root, err), w.written)
	}
	return err
}

// Commit implements sinks.Writer.
func (w *writer) Commit(ctx context.Context) (sinks.Object, error) {
	if w.closed {
		return sinks.Object{}, sinks.ErrClosed
	}
	w.closed = true
	if w.err != nil {
		return sinks.Object{}, errors.Join(w.err, w.draft.close(), w.root.Close())
	}
	object, err := w.commit(ctx)
	err = errors.Join(w.explain(err), w.root.Close())
	if err != nil {
		return sinks.Object{}, w.sink.failed("commit", w.name, err)
	}
	return object, nil
}

func (w *writer) commit(ctx context.Context) (sinks.Object, error) {
	info, err := w.publish(ctx)
	if err != nil {
		return sinks.Object{}, errors.Join(err, w.draft.close())
	}
	// A sync that failed is not repeated: the kernel may have dropped the
	// pages and call the next one a success.
	err = w.sink.syncFolders(w.root, path.Dir(w.name))
	if err := errors.Join(err, w.draft.close()); err != nil {
		if undo := w.withdraw(info); undo != nil {
			err = errors.Join(err, fmt.Errorf("%w: taking it back failed: %w", sinks.ErrUncertain, undo))
		}
		return sinks.Object{}, err
	}
	return describe(w.name, info), nil
}

// publish syncs the file and gives it its name.
func (w *writer) publish(ctx context.Context) (fs.FileInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := w.sink.sync(w.draft.file); err != nil {
		return nil, err
	}
	info, err := w.draft.file.Stat()
	if err != nil {
		return nil, err
	}
	for range publishTries {
		err = makeFolders(w.root, path.Dir(w.name))
		if err == nil {
			err = w.draft.publish(w.name)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break // a folder that a concurrent Delete removed is made again
		}
	}
	if err == nil {
		return info, nil
	}
	if errors.Is(err, fs.ErrExist) {
		there, statErr := w.root.Lstat(w.name)
		switch {
		case statErr == nil && os.SameFile(there, info):
			return info, nil // ours: NFS may answer a repeated link like that
		case statErr == nil:
			return nil, taken(there)
		}
		return nil, sinks.ErrExists // and deleted again meanwhile
	}
	return nil, errors.Join(err, prune(w.root, path.Dir(w.name)))
}

// withdraw takes an object back that has its name and may not be durable.
func (w *writer) withdraw(info fs.FileInfo) error {
	there, err := w.root.Lstat(w.name)
	if err != nil || !os.SameFile(there, info) {
		return ignoreAbsent(err)
	}
	if err := remove(w.root, w.name); err != nil {
		return err
	}
	return prune(w.root, path.Dir(w.name))
}

// Abort implements sinks.Writer.
func (w *writer) Abort() error {
	if w.closed {
		return nil
	}
	w.closed = true
	if err := errors.Join(w.draft.close(), w.root.Close()); err != nil {
		return w.sink.failed("abort", w.name, err)
	}
	return nil
}
