package rebuilding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// attempts at one piece of a file: a control process that is started anew is back
// by then.
const attempts = 4

const partSuffix = ".part"

// bring copies what a way needs of another host. What is here already, of an
// earlier request, is not copied again.
func (s *session) bring(ctx context.Context, o *owned) (copied int64, err error) {
	for _, f := range o.files {
		n, err := s.bringFile(ctx, o, f)
		copied += n
		if err != nil {
			return copied, fmt.Errorf("copy the data of %s from host %s: %w", o.name, o.at.Address, err)
		}
	}
	return copied, nil
}

// brought is how much of a file is here, and was compared with the sender's sum.
// The last piece of a part may not have been: it is copied again.
func (s *session) brought(path string, size int64) (whole bool, offset int64, err error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() == size {
		return true, size, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, 0, err
	}
	info, err = os.Stat(path + partSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	return false, max(0, (min(info.Size(), size)-1)/s.pieceSize) * s.pieceSize, nil
}

func (s *session) bringFile(ctx context.Context, o *owned, f protocol.File) (copied int64, err error) {
	path := filepath.Join(o.place.DataDir, filepath.FromSlash(f.Name))
	whole, offset, err := s.brought(path, f.Size)
	if whole || err != nil {
		return 0, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return 0, err
	}
	out, err := os.OpenFile(path+partSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for offset < f.Size {
		n := min(s.pieceSize, f.Size-offset)
		if err := s.bringPiece(ctx, o, f.Name, out, offset, n); err != nil {
			return copied, err
		}
		offset, copied = offset+n, copied+n
	}
	if err := out.Truncate(f.Size); err != nil {
		return copied, err
	}
	return copied, os.Rename(path+partSuffix, path)
}

// bringPiece copies a piece and syncs it: behind a piece that is here all before it
// is.
func (s *session) bringPiece(ctx context.Context, o *owned, name string, out *os.File, offset, length int64) error {
	for attempt := 1; ; attempt++ {
		err := s.copyPiece(ctx, o, name, io.NewOffsetWriter(out, offset), offset, length)
		if err == nil {
			return out.Sync()
		}
		var refused *client.RefusedError
		if attempt == attempts || ctx.Err() != nil || errors.As(err, &refused) {
			return errors.Join(err, out.Truncate(offset))
		}
		s.logger.Warn("a piece of a file is copied again", "file", name, "offset", offset, "from", o.at.Address, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(s.wait << (attempt - 1)):
		}
	}
}

// copyPiece gives up a copy that stands still.
func (s *session) copyPiece(ctx context.Context, o *owned, name string, w io.Writer, offset, length int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(s.stall, func() { cancel(fmt.Errorf("nothing came for %v", s.stall)) })
	defer watch.Stop()
	err := o.peer.client.Copy(ctx, lively{w, watch, s.stall}, protocol.Aside, name, offset, length)
	if err != nil {
		return because(ctx, err)
	}
	return nil
}

// lively tells a watch that something came.
type lively struct {
	io.Writer
	watch *time.Timer
	stall time.Duration
}

func (l lively) Write(p []byte) (int, error) {
	l.watch.Reset(l.stall)
	return l.Writer.Write(p)
}
