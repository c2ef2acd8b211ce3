package host

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store/safedir"
)

// attempts at one piece of a file: a host process that is started anew is back by
// then.
const attempts = 4

const partSuffix = ".part"

// bring copies what a way needs of another host. What is here already, of an
// earlier request, is not copied again.
func (s *rebuilding) bring(ctx context.Context, o *owned) (copied int64, err error) {
	for _, f := range o.files {
		n, err := s.bringFile(ctx, o, f)
		copied += n
		if err != nil {
			return copied, fmt.Errorf("copy the data of %s from host %s: %w", o.name, o.name, err)
		}
	}
	return copied, nil
}

// brought is how much of a file is here, and was compared with the sender's sum.
// The last piece of a part may not have been: it is copied again. Nothing is synced: a copy
// that was begun before the machine was started anew is not gone on with (see bringFolder).
func (s *rebuilding) brought(path string, size int64) (whole bool, offset int64, err error) {
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
	return false, max(0, (min(info.Size(), size)-1)/s.pieceSize) * s.pieceSize, nil
}

func (s *rebuilding) bringFile(ctx context.Context, o *owned, f File) (copied int64, err error) {
	path := filepath.Join(o.place.DataDir, filepath.FromSlash(f.Name))
	whole, offset, err := s.brought(path, f.Size)
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
	for offset < f.Size {
		n := min(s.pieceSize, f.Size-offset)
		sent, err := s.bringPiece(ctx, o, f.Name, out, offset, n)
		if err != nil {
			return copied, err
		}
		offset, copied = offset+n, copied+sent
	}
	if err := out.Truncate(f.Size); err != nil {
		return copied, err
	}
	return copied, safedir.Rename(path+partSuffix, path)
}

// bringPiece copies a piece, again where that fails, and gives how many bytes came: the zeros
// at its end are a hole in the file.
func (s *rebuilding) bringPiece(ctx context.Context, o *owned, name string, out *os.File, offset, length int64) (int64, error) {
	for attempt := 1; ; attempt++ {
		if err := out.Truncate(offset); err != nil { // of what came before, and was not compared
			return 0, err
		}
		sent, err := s.copyPiece(ctx, o, name, io.NewOffsetWriter(out, offset), offset, length)
		if err == nil {
			return sent, nil
		}
		var refused *RefusedError
		if attempt == attempts || ctx.Err() != nil || errors.As(err, &refused) && refused.Refusal.Code != Failed {
			return 0, err
		}
		s.Logger.Warn("a piece of a file is copied again", "file", name, "offset", offset, "from", o.name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(s.wait << (attempt - 1)):
		}
	}
}

// copyPiece gives up a copy that stands still.
func (s *rebuilding) copyPiece(ctx context.Context, o *owned, name string, w io.Writer, offset, length int64) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(s.stall, func() { cancel(fmt.Errorf("nothing came for %v", s.stall)) })
	defer watch.Stop()
	sum := newSummedWriter(lively{w, watch, s.stall}, length)
	sent, err := s.fetch(ctx, o.name, DataArguments{File: name, Offset: offset, Length: length}, sum)
	if err == nil && sum.left != sent.Zeros {
		err = fmt.Errorf("%d bytes are missing, of which the sender says that %d are zeros", sum.left, sent.Zeros)
	}
	if err == nil {
		err = sum.Check(sent)
	}
	if err != nil {
		return 0, because(ctx, err)
	}
	return length - sent.Zeros, nil
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

// fetch asks the coordinator for what the run set aside on the host of another member.
func (s *rebuilding) fetch(ctx context.Context, member string, a DataArguments, w io.Writer) (*Sent, error) {
	a.Run = s.run
	var sent Sent
	err := s.conn.Call(ctx, Header{}, verbFetch, FetchArguments{Member: member, DataArguments: a}, &sent, w)
	return &sent, err
}

// held is what a host has of the run.
type held struct {
	files       []File
	separateLog bool
}

// heldBy asks the host of a member for the list of it, once.
func (s *rebuilding) heldBy(ctx context.Context, member string) (*held, error) {
	if h := s.held[member]; h != nil {
		return h, nil
	}
	files, err := s.list(ctx, member)
	if err == nil {
		err = checkFiles(files)
	}
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", member, err)
	}
	h := &held{files, slices.ContainsFunc(files, func(f File) bool { return strings.HasPrefix(f.Name, "wal/") })}
	s.held[member] = h
	return h, nil
}

// list lists the files that the run has set aside on the host of a member.
func (s *rebuilding) list(ctx context.Context, member string) ([]File, error) {
	if member == s.Config.Member.Name {
		folders, err := s.folders(&DataArguments{Run: s.run})
		if err != nil {
			return nil, err
		}
		return folders.list()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.stall, fmt.Errorf("no answer in %v", s.stall))
	defer cancel()
	sent, err := s.fetch(ctx, member, DataArguments{}, nil)
	return sent.Files, err
}

// maxFiles is more than the files of a member can have: sums of sizes do not overflow.
const maxFiles = 1 << 50

// checkFiles looks at what a host lists: the names become names here.
func checkFiles(files []File) error {
	left := int64(maxFiles)
	for _, f := range files {
		if !filepath.IsLocal(f.Name) || f.Name == "." || f.Size < 0 || f.Size > left {
			return fmt.Errorf("it lists a file %q of %d bytes: that is no file of a member", f.Name, f.Size)
		}
		left -= f.Size
	}
	return nil
}

// bringFolder is where a run gathers: in the data directory, whose file system has
// to have the room, or beside it while there is none. Several members may have
// their directories beside each other: each has folders of its own. So has each start of the
// machine: what is gathered lives for minutes, and to sync it would take as long as to copy it.
func (s *rebuilding) bringFolder() (string, error) {
	m := s.Config.Member
	dir, _, err := safedir.Nearest(m.DataDir)
	return filepath.Join(dir, restore.BringPrefix+s.run+"-"+machineStart()+"@"+m.Name), err
}

// machineStart distinguishes one start of this machine from another. Where the system has no such
// name, nothing is gone on with.
func machineStart() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id") //nolint:forbidigo // the kernel's file
	if err != nil || len(id) < 8 {
		return rand.Text()
	}
	return string(id[:8])
}

// gather is a folder that only this user gets into, whoever owns the directory it
// lies in: etcd's user can give it another name, and put something else in its place.
type gather struct {
	path string
	dir  *safedir.Dir
	lock *os.File
}

func openGather(path string) (*gather, error) {
	dir, err := safedir.Private(path)
	if err != nil {
		return nil, fmt.Errorf("a folder to gather in: %w", err)
	}
	g, err := lockGather(path, dir)
	if err != nil {
		return nil, fmt.Errorf("a folder to gather in: %w", err)
	}
	return g, nil
}

// lockGather takes the folder over, and closes it where it fails.
func lockGather(path string, dir *safedir.Dir) (*gather, error) {
	g := &gather{path: path, dir: dir}
	var gone bool
	var err error
	if g.lock, gone, err = g.dir.Lock(); err == nil && gone {
		err = fmt.Errorf("%s was replaced while it was opened", path)
	}
	if errors.Is(err, safedir.ErrLocked) {
		err = fmt.Errorf("%w: let the other 'requorum host' end, or end it", err)
	}
	if err != nil {
		return nil, errors.Join(err, g.dir.Close())
	}
	return g, nil
}

func (g *gather) close() error { return errors.Join(safedir.Unlock(g.lock), g.dir.Close()) }

// remove removes what was gathered. The lock file goes last: without it the next
// attempt would not know the folder.
func (g *gather) remove() error {
	if err := g.dir.Empty(safedir.LockName); err != nil {
		return err
	}
	return errors.Join(g.dir.Remove(safedir.LockName), safedir.Remove(g.path))
}

// removeOld removes what other runs left, and what this one left elsewhere. Anything
// else of such a name, as etcd's user can give it to a folder of root's, stays.
func (s *rebuilding) removeOld(keep string) error {
	var errs []error
	m := s.Config.Member
	above, _, err := safedir.Nearest(filepath.Dir(m.DataDir))
	if err != nil {
		return err
	}
	for _, dir := range []string{m.DataDir, above} {
		names, err := safedir.Names(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, err)
		for _, name := range names {
			path := filepath.Join(dir, name)
			if !strings.HasPrefix(name, restore.BringPrefix) || !strings.HasSuffix(name, "@"+m.Name) || path == keep {
				continue
			}
			d, err := safedir.OpenPrivate(path)
			if err != nil { // it may be anybody's
				continue
			}
			g, err := lockGather(path, d)
			if err == nil {
				err = errors.Join(g.remove(), g.close())
			}
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what earlier recoveries gathered: %w", err)
	}
	return nil
}

// ownerFolder is where the copy of an owner's data goes. Another owner has another folder:
// pieces of two are never put together.
func ownerFolder(bring, owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return filepath.Join(bring, hex.EncodeToString(sum[:8]))
}

// checkSpace fails where a folder's file system has no room for so many bytes.
func checkSpace(dir string, need int64, what string) error {
	free, known, err := safedir.Free(dir)
	if err != nil || !known || free >= need {
		return err
	}
	return fmt.Errorf("file system of %s: %w: %d bytes are needed for %s, %d are free, %d short", dir, restore.ErrNoSpace, need, what, free, need-free)
}
