package control

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control/protocol"
)

const (
	copyBuffer = 256 << 10
	// stallTimeout is how long a client may take none of a file.
	stallTimeout = 30 * time.Second
)

// wanted is what Copy is asked for, all of it in the query: file and, of the file,
// offset and length; of (current or set-aside) and, with set-aside, run.
type wanted struct {
	file           string // empty: the list
	offset, length int64  // length -1: to the end
	of, run        string
}

func parseWanted(q url.Values) (w wanted, err error) {
	w = wanted{length: -1, of: protocol.Current}
	for key, values := range q {
		if len(values) != 1 {
			return w, fmt.Errorf("%s is given more than once", key)
		}
		v := values[0]
		switch key {
		case "file":
			w.file = v
		case "of":
			w.of = v
		case "run":
			w.run = v
		case "offset", "length":
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < 0 {
				return w, fmt.Errorf("%s %q: want a number of bytes", key, v)
			}
			if key == "offset" {
				w.offset = n
			} else {
				w.length = n
			}
		default:
			return w, fmt.Errorf("unknown parameter %q", key)
		}
	}
	switch {
	case w.of != protocol.Current && w.of != protocol.Aside:
		return w, fmt.Errorf("of %q: want %s or %s", w.of, protocol.Current, protocol.Aside)
	case w.of == protocol.Aside:
		return w, protocol.CheckRun(w.run)
	case w.run != "":
		return w, fmt.Errorf("run is for %s", protocol.Aside)
	}
	return w, nil
}

// data answers Copy: the list of a member's files, or a piece of one.
func (s *server) data(c *call) {
	// The audit has the names as they were asked for, whether there are such.
	c.line.File = c.r.URL.Query().Get("file")
	c.line.Run = c.r.URL.Query().Get("run")
	w, err := parseWanted(c.r.URL.Query())
	if err != nil {
		s.refuse(c, refused(protocol.BadRequest, err))
		return
	}
	folders, err := s.folders(w)
	if err != nil {
		s.refuse(c, err)
		return
	}
	if w.file == "" {
		files, err := folders.list()
		if err != nil {
			s.refuse(c, err)
			return
		}
		if s.allow(c) {
			send(c.w, http.StatusOK, protocol.Files{Files: files})
		}
		return
	}
	f, size, err := folders.open(w.file)
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer func() { _ = f.Close() }() // only read
	if w.length < 0 {
		w.length = max(size-w.offset, 0)
	}
	if w.offset+w.length > size || w.offset+w.length < 0 {
		s.refuse(c, refused(protocol.BadRequest, fmt.Errorf("%s has %d bytes, and %d from %d on were asked for", w.file, size, w.length, w.offset)))
		return
	}
	if s.allow(c) {
		s.stream(c, f, w)
	}
}

// stream sends a piece, with its sum behind it. What goes wrong on the way breaks
// the connection off, so that nobody takes a part for the whole.
func (s *server) stream(c *call, f *os.File, w wanted) {
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Time{}) // there was no body
	c.w.Header().Set("Content-Type", "application/octet-stream")
	c.w.Header().Set("Trailer", protocol.SumTrailer)
	sum := sha256.New()
	in := io.NewSectionReader(f, w.offset, w.length)
	buffer := make([]byte, copyBuffer)
	sent := int64(0)
	for sent < w.length {
		n, err := in.Read(buffer)
		if n > 0 {
			_ = control.SetWriteDeadline(time.Now().Add(stallTimeout))
			sum.Write(buffer[:n])
			if _, err := c.w.Write(buffer[:n]); err != nil {
				panic(http.ErrAbortHandler) // the client has gone
			}
			sent += int64(n)
		}
		if err != nil && sent < w.length {
			s.Logger.Error("a file could not be sent whole", "file", w.file, "error", err)
			panic(http.ErrAbortHandler)
		}
	}
	if w.of == protocol.Current {
		if err := s.idle(); err != nil {
			s.Logger.Error("the member was started while a file of it was sent", "file", w.file, "error", err)
			panic(http.ErrAbortHandler)
		}
	}
	_ = control.SetWriteDeadline(time.Now().Add(stallTimeout))
	c.w.Header().Set(protocol.SumTrailer, hex.EncodeToString(sum.Sum(nil)))
}

func (s *server) idle() error {
	return restore.CheckMemberIdle(s.Config.Member.DataDir, s.Config.Member.WALDir)
}

// folders are those that may be read, by the first part of a file's name.
type folders map[string]string

func (s *server) folders(w wanted) (folders, error) {
	m := s.Config.Member
	if w.of == protocol.Aside {
		a := s.Journal.Aside(w.run)
		if a == nil || !a.Done || a.Undoing || a.Folder == "" {
			return nil, refused(protocol.NotFound, fmt.Errorf("nothing is set aside by run %s", w.run))
		}
		if err := s.sameDirectories(a); err != nil {
			return nil, err
		}
		f := folders{"member": a.Folder}
		if a.Log != "" {
			f["wal"] = a.Log
		}
		return f, nil
	}
	if err := s.idle(); err != nil {
		return nil, err
	}
	if left, err := restore.Placeholder(m.DataDir, m.WALDir); left || err != nil {
		return nil, err // no folder, so no file
	}
	f := folders{"member": path.Join(m.DataDir, "member")}
	if m.WALDir != "" {
		f["wal"] = m.WALDir
	}
	return f, nil
}

// open opens a file for reading. A name can't lead out of its folder: not by its
// parts, and not by a link (os.Root).
func (f folders) open(name string) (*os.File, int64, error) {
	first, rest, _ := strings.Cut(name, "/")
	folder, known := f[first]
	if !fs.ValidPath(name) || !known || rest == "" || strings.Contains(name, "\\") {
		return nil, 0, refused(protocol.BadRequest, fmt.Errorf("%q is no file of the member: names are those of the list", name))
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, 0, notFound(err)
	}
	defer func() { _ = root.Close() }() // the file stays open
	// O_NONBLOCK: a pipe would wait for somebody to write.
	file, err := root.OpenFile(rest, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, notFound(err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refused(protocol.BadRequest, fmt.Errorf("%q is no ordinary file", name))
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return refused(protocol.NotFound, err)
	}
	return refused(protocol.BadRequest, err)
}

// list names all files. A link is an error and not left out: the copy would look
// whole.
func (f folders) list() ([]protocol.File, error) {
	files := []protocol.File{}
	for first, folder := range f {
		root, err := os.OpenRoot(folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && first == "wal" && name != ".":
				return fs.SkipDir // what others or we set aside
			case d.IsDir():
				return nil
			case !d.Type().IsRegular():
				return fmt.Errorf("%s is no ordinary file: where it links to another folder, configure that one (member.data-dir, member.wal-dir)", path.Join(folder, name))
			}
			info, err := d.Info()
			if err == nil {
				files = append(files, protocol.File{Name: path.Join(first, name), Size: info.Size(), Time: info.ModTime().UTC()})
			}
			return err
		})
		if err := errors.Join(err, root.Close()); err != nil {
			return nil, fmt.Errorf("list the files of the member: %w", err)
		}
	}
	return files, nil
}
