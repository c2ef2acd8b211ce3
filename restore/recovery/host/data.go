package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/store/safedir"
)

const copyBuffer = 256 << 10

// data lists the files of the stopped member, or of what a run set aside, or streams a
// piece of one.
func (h *host) data(ctx context.Context, a *DataArguments, out io.Writer) (any, error) {
	folders, err := h.folders(a)
	if err != nil {
		return nil, err
	}
	if a.File == "" {
		files, err := folders.list()
		return &Sent{Files: files}, err
	}
	f, size, err := folders.open(a.File)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	sent, err := SendPiece(ctx, f, size, a, out)
	if err == nil && a.Run == "" {
		err = h.idle() // it may have been started meanwhile
	}
	return sent, err
}

// SendPiece streams a piece of a file of so many bytes.
func SendPiece(ctx context.Context, f io.ReaderAt, size int64, a *DataArguments, out io.Writer) (*Sent, error) {
	if a.Offset < 0 || a.Length < 0 || a.Offset > size || a.Length > size-a.Offset {
		return nil, refused(BadRequest, fmt.Errorf("%s has %d bytes, and %d from %d on were asked for", a.File, size, a.Length, a.Offset))
	}
	sum := newSummedWriter(untilDone{ctx, out}, a.Length)
	zeros, err := zerosAtEnd(f, a.Offset, a.Length)
	if err == nil {
		var n int64
		n, err = io.CopyBuffer(struct{ io.Writer }{sum}, io.NewSectionReader(f, a.Offset, a.Length-zeros), make([]byte, copyBuffer))
		if err == nil && n < a.Length-zeros {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s could not be sent: %w", a.File, err)
	}
	return &Sent{Sum: sum.Sum(), Zeros: zeros}, nil
}

// zerosAtEnd counts the zeros that a piece of a file ends with, in blocks.
func zerosAtEnd(f io.ReaderAt, offset, length int64) (zeros int64, err error) {
	block, none := make([]byte, copyBuffer), make([]byte, copyBuffer)
	for zeros < length {
		n := min(copyBuffer, length-zeros)
		if _, err := f.ReadAt(block[:n], offset+length-zeros-n); err != nil {
			return 0, err
		}
		if !bytes.Equal(block[:n], none[:n]) {
			break
		}
		zeros += n
	}
	return zeros, nil
}

// untilDone ends a stream that nobody waits for any more.
type untilDone struct {
	ctx context.Context
	w   io.Writer
}

func (u untilDone) Write(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(p)
}

// survey streams the summary of the stopped member's data, or of what a run set aside.
func (h *host) survey(ctx context.Context, run *string, out io.Writer) (any, error) {
	survivor, done, err := h.surveyed(ctx, *run)
	if err != nil {
		return nil, err
	}
	defer done()
	sum := newSummedWriter(untilDone{ctx, out}, math.MaxInt64)
	err = sources.WriteSummary(ctx, sum, survivor, sources.SummaryOptions{CheckBase: h.CheckBase})
	if err == nil && *run == "" {
		err = h.idle()
	}
	if err != nil {
		return nil, err
	}
	return &Sent{Sum: sum.Sum()}, nil
}

// hash is the HashKV of the stopped member's database, or of that which a run set aside.
func (h *host) hash(ctx context.Context, a *hashArguments, _ io.Writer) (any, error) {
	survivor, done, err := h.surveyed(ctx, a.Run)
	if err != nil {
		return nil, err
	}
	defer done()
	hash, err := sources.HashDatabase(ctx, filepath.Join(survivor.DataDir, "member", "snap", "db"), a.Revision)
	if err == nil && a.Run == "" {
		err = h.idle()
	}
	return hash, err
}

// surveyed is what is read, as a data directory. The caller calls done.
func (h *host) surveyed(ctx context.Context, run string) (_ sources.Survivor, done func(), err error) {
	m := h.Config.Member
	if run == "" {
		if err := h.Controller.Stopped(ctx); err != nil {
			return sources.Survivor{}, nil, err
		}
		return sources.Survivor{Name: m.Name, DataDir: m.DataDir, WALDir: m.WALDir}, func() {}, h.idle()
	}
	aside, err := h.asideOf(run)
	if err != nil {
		return sources.Survivor{}, nil, err
	}
	folder, err := os.MkdirTemp(h.Config.StateDir, "survey-") //nolint:forbidigo // this process's own folder
	if err != nil {
		return sources.Survivor{}, nil, err
	}
	done = func() { _ = safedir.RemoveAll(folder) } // a link
	survivor := sources.Survivor{Name: m.Name}
	if survivor.DataDir, survivor.WALDir, err = aside.View(folder); err != nil {
		done()
		return sources.Survivor{}, nil, err
	}
	return survivor, done, nil
}

func (h *host) idle() error {
	return restore.CheckMemberIdle(h.Config.Member.DataDir, h.Config.Member.WALDir)
}

// folders are those that may be read, by the first part of a file's name. A link in the
// place of one is not followed.
type folders map[string]string

func (h *host) folders(a *DataArguments) (folders, error) {
	m := h.Config.Member
	if a.Run != "" {
		aside, err := h.asideOf(a.Run)
		if err != nil {
			return nil, err
		}
		return foldersOf(aside.Folder, aside.Log), nil
	}
	if err := h.idle(); err != nil {
		return nil, err
	}
	if left, err := restore.Placeholder(m.DataDir, m.WALDir); left || err != nil {
		return nil, err // no folder, so no file
	}
	return foldersOf(path.Join(m.DataDir, "member"), m.WALDir), nil
}

// foldersOf takes empty names for folders that are not there.
func foldersOf(member, wal string) folders {
	f := folders{"member": member, "wal": wal}
	maps.DeleteFunc(f, func(_, folder string) bool { return folder == "" })
	return f
}

// checkFolder refuses a folder that is a link, whoever made it: the list and the files
// would be those of another folder.
func checkFolder(folder string) error {
	info, err := safedir.Lstat(folder)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder: where it links to another one, name that one in the cluster file (data-dir, wal-dir)", folder)
	}
	return err
}

// open opens a file for reading. A name can't lead out of its folder: not by its
// parts, and not by a link that etcd's user made.
func (f folders) open(name string) (*os.File, int64, error) {
	first, rest, _ := strings.Cut(name, "/")
	folder, known := f[first]
	if !fs.ValidPath(name) || !known || rest == "" || strings.Contains(name, "\\") {
		return nil, 0, refused(BadRequest, fmt.Errorf("%q is no file of the member: names are those of the list", name))
	}
	if err := checkFolder(folder); err != nil {
		return nil, 0, notFound(err)
	}
	file, err := safedir.Open(filepath.Join(folder, rest))
	if err != nil {
		return nil, 0, notFound(err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return refused(NotFound, err)
	}
	return refused(BadRequest, err)
}

// list names all files. A link is an error and not left out: the copy would look
// whole.
func (f folders) list() ([]File, error) {
	files := []File{}
	for first, folder := range f {
		err := checkFolder(folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			files, err = listFolder(files, folder, first, first != "wal") // in which others or we set aside
		}
		if err != nil {
			return nil, fmt.Errorf("list the files of the member: %w", err)
		}
	}
	return files, nil
}

// listFolder adds a folder's files, and with deep those of the folders in it.
func listFolder(files []File, folder, name string, deep bool) ([]File, error) {
	all, err := safedir.ReadDir(folder)
	for _, e := range all {
		if err != nil {
			return nil, err
		}
		place, name := filepath.Join(folder, e.Name()), path.Join(name, e.Name())
		switch {
		case e.IsDir() && deep:
			files, err = listFolder(files, place, name, deep)
		case e.IsDir():
		case !e.Type().IsRegular():
			err = fmt.Errorf("%s is no ordinary file: where it links to another folder, name that one in the cluster file (data-dir, wal-dir)", place)
		default:
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				files = append(files, File{Name: name, Size: info.Size(), Time: info.ModTime().UTC()})
			}
		}
	}
	return files, err
}
