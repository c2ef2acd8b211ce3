// Files travel between hosts in pieces, through the coordinator: a copy that was cut goes on
// where it was, and a piece that came changed, or that stands still, is copied again.

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/requorum/requorum/store/safedir"
)

// attempts at one piece of a file: a host process that is started anew is back by
// then.
const attempts = 4

const partSuffix = ".part"

// Copier copies files of another host, in pieces that are each compared with the sender's sum.
type Copier struct {
	// Fetch asks for a piece: the sum comes once all of it was written to w.
	Fetch  func(ctx context.Context, a DataArguments, w io.Writer) (*Sent, error)
	Logger *slog.Logger
	tuning
}

// brought is how much of a file is here, and was compared with the sender's sum.
// The last piece of a part may not have been: it is copied again. Nothing is synced: a copy
// that was begun before the machine was started anew is not gone on with (see bringFolder).
func (c *Copier) brought(path string, size int64) (whole bool, offset int64, err error) {
	info, err := safedir.Stat(path)
	if err == nil && info.Size() == size {
		return true, size, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, 0, err
	}
	info, err = safedir.Stat(path + partSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	return false, max(0, (min(info.Size(), size)-1)/c.pieceSize) * c.pieceSize, nil
}

// Copy copies a file to a path, from where an earlier copy of it ended. It returns how many
// bytes came.
func (c *Copier) Copy(ctx context.Context, of DataArguments, size int64, path string) (copied int64, err error) {
	c.tuning = c.orDefault()
	whole, offset, err := c.brought(path, size)
	if whole || err != nil {
		return 0, err
	}
	if err := safedir.MkdirAll(filepath.Dir(path)); err != nil {
		return 0, err
	}
	out, err := safedir.OpenWritable(path + partSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		out, err = safedir.Create(path + partSuffix)
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for offset < size {
		n := min(c.pieceSize, size-offset)
		of.Offset, of.Length = offset, n
		sent, err := c.piece(ctx, of, out)
		if err != nil {
			return copied, err
		}
		offset, copied = offset+n, copied+sent
	}
	if err := out.Truncate(size); err != nil {
		return copied, err
	}
	return copied, safedir.Rename(path+partSuffix, path)
}

// piece copies a piece, again where that fails, and gives how many bytes came: the zeros
// at its end are a hole in the file.
func (c *Copier) piece(ctx context.Context, of DataArguments, out *os.File) (int64, error) {
	for attempt := 1; ; attempt++ {
		if err := out.Truncate(of.Offset); err != nil { // of what came before, and was not compared
			return 0, err
		}
		sent, err := c.fetch(ctx, of, io.NewOffsetWriter(out, of.Offset))
		if err == nil {
			return sent, nil
		}
		var refused *RefusedError
		if attempt == attempts || ctx.Err() != nil || errors.As(err, &refused) && refused.Refusal.Code != Failed {
			return 0, err
		}
		c.Logger.Warn("a piece of a file is copied again", "file", of.File, "offset", of.Offset, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(c.wait << (attempt - 1)):
		}
	}
}

// fetch gives up a copy that stands still.
func (c *Copier) fetch(ctx context.Context, of DataArguments, w io.Writer) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(c.stall, func() { cancel(fmt.Errorf("nothing came for %v", c.stall)) })
	defer watch.Stop()
	sum := newSummedWriter(lively{w, watch, c.stall}, of.Length)
	sent, err := c.Fetch(ctx, of, sum)
	if err == nil && sum.left != sent.Zeros {
		err = fmt.Errorf("%d bytes are missing, of which the sender says that %d are zeros", sum.left, sent.Zeros)
	}
	if err == nil {
		err = sum.Check(sent)
	}
	if err != nil {
		return 0, because(ctx, err)
	}
	return of.Length - sent.Zeros, nil
}

// lively reports to a watch that something came.
type lively struct {
	io.Writer
	watch *time.Timer
	stall time.Duration
}

func (l lively) Write(p []byte) (int, error) {
	l.watch.Reset(l.stall)
	return l.Writer.Write(p)
}

// because is why a context ended, where that is the reason of an error.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// maxFiles is more than the files of a member can have: sums of sizes do not overflow.
const maxFiles = 1 << 50

// CheckFiles looks at what a host lists: the names become names here.
func CheckFiles(files []File) error {
	left := int64(maxFiles)
	for _, f := range files {
		if !filepath.IsLocal(f.Name) || f.Name == "." || f.Size < 0 || f.Size > left {
			return fmt.Errorf("it lists a file %q of %d bytes: that is no file of a member", f.Name, f.Size)
		}
		left -= f.Size
	}
	return nil
}
