package job

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
)

// PackAttachments returns the tar of files, and of directories with all that is in them,
// at absolute paths. A cluster cannot be rebuilt without them: its PKI, an
// EncryptionConfiguration, the token of k3s.
//
// The tar holds each listed file as it was at one moment, or the error names the file
// and the reason, never its content. Names are paths without the slash in front. Owners
// are left out.
//
// Symbolic links that stay within a listed directory are stored as links. Of a link that
// leads out of it, the tar holds the file that it leads to, unless another user could
// have made the link (package safedir). Sockets, pipes and devices have no content and
// are left out.
func PackAttachments(ctx context.Context, paths []string) ([]byte, error) {
	p := &packer{ctx: ctx}
	p.tar = tar.NewWriter(&p.out)
	for _, path := range paths {
		p.base, p.files = path, 0
		err := p.pack()
		if err == nil && p.files == 0 {
			err = fmt.Errorf("there is no file in %s: check the path", path)
		}
		if err != nil {
			return nil, fmt.Errorf("attachments: %w", err)
		}
	}
	err := p.tar.Close()
	return p.out.Bytes(), err
}

// packer is one PackAttachments under way.
type packer struct {
	ctx   context.Context
	out   bytes.Buffer
	tar   *tar.Writer
	base  string // the path that is listed
	root  *os.Root
	files int // that were found there
}

func (p *packer) pack() error {
	info, err := safedir.Stat(p.base)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		if err := p.file(p.base); err != nil {
			return fmt.Errorf("%s: %w", p.base, err)
		}
		return nil
	}
	dir, err := safedir.OpenDir(p.base)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // it was read from
	// Nothing below leads out of the directory unnoticed.
	if p.root, err = os.OpenRoot(dir.Path()); err != nil {
		return err
	}
	defer p.root.Close() //nolint:errcheck // it was read from
	return fs.WalkDir(p.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		place := filepath.Join(p.base, name)
		if err == nil {
			err = context.Cause(p.ctx)
		}
		if err == nil {
			err = p.entry(name, place, d)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		return nil
	})
}

func (p *packer) entry(name, place string, d fs.DirEntry) error {
	switch d.Type() {
	case 0:
		return p.file(place)
	case fs.ModeDir, fs.ModeSymlink:
	default:
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	if d.IsDir() {
		return p.write(place, info, "", nil)
	}
	target, err := p.root.Readlink(name)
	if err != nil {
		return err
	}
	if _, err := p.root.Stat(name); err == nil { // it stays inside
		return p.write(place, info, target, nil)
	}
	if err := p.file(place); err != nil {
		return fmt.Errorf("it leads to %s: %w", target, err)
	}
	return nil
}

// file adds one file, as it was at one moment.
func (p *packer) file(place string) error {
	f, err := safedir.Open(place)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read from
	before, err1 := f.Stat()
	data, err2 := io.ReadAll(io.LimitReader(f, snapshot.AttachmentsLimit))
	after, err3 := f.Stat()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if int64(len(data)) != min(before.Size(), snapshot.AttachmentsLimit) || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return errors.New("it changes while it is read")
	}
	p.files++
	return p.write(place, before, "", data)
}

// write writes one entry, unless attachments are then larger than they may be.
func (p *packer) write(place string, info fs.FileInfo, target string, data []byte) error {
	const rest = 16 << 10 // more than the headers of an entry and the end of a tar take
	if p.out.Len()+len(data)+rest > snapshot.AttachmentsLimit {
		return fmt.Errorf("with it attachments have more than the %d bytes that all may have together; list less", snapshot.AttachmentsLimit)
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = strings.TrimPrefix(place, "/"), 0, 0, "", ""
	if info.IsDir() {
		h.Name += "/"
	}
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err = p.tar.Write(data)
	return err
}
