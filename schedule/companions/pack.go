package companions

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/snapshot"
)

// source packs what one Spec lists.
type source struct{ Spec }

// Name is the companion's.
func (s *source) Name() string { return s.Spec.Name }

// Pack writes the files as a tar stream, by name, with their permissions and
// times but without owners, so that the same files are the same bytes.
//
// Symbolic links that stay within the folder are kept as links; of one that leads
// out of it the file that it leads to is kept under its name. Sockets, pipes and
// devices have no content and are left out. A file that cannot be read, or that
// does not stand still, is an error.
func (s *source) Pack(ctx context.Context, w io.Writer) (snapshot.CompanionContent, error) {
	p := &packer{ctx: ctx, tar: tar.NewWriter(w), base: s.Path}
	err := p.pack()
	if err == nil {
		err = p.tar.Close()
	}
	if err == nil && p.content.Files == 0 {
		err = fmt.Errorf("there is no file in %s: check the path", s.Path)
	}
	return p.content, err
}

// packer is one Pack under way.
type packer struct {
	ctx     context.Context
	tar     *tar.Writer
	base    string // the path that is listed
	root    *os.Root
	content snapshot.CompanionContent
}

func (p *packer) pack() error {
	info, err := os.Stat(p.base)
	switch {
	case err != nil:
		return err
	case info.Mode().IsRegular():
		return p.file(filepath.Base(p.base), p.base, func() (*os.File, error) { return os.Open(p.base) })
	case !info.IsDir():
		return fmt.Errorf("%s is neither a file nor a folder", p.base)
	}
	// Nothing below leads out of the folder unnoticed.
	if p.root, err = os.OpenRoot(p.base); err != nil {
		return err
	}
	defer p.root.Close()                         //nolint:errcheck // it was read from
	return fs.WalkDir(p.root.FS(), ".", p.entry) // in the order of names
}

func (p *packer) entry(name string, d fs.DirEntry, err error) error {
	if err == nil {
		err = context.Cause(p.ctx)
	}
	if err != nil {
		return at(p.place(name), err)
	}
	switch d.Type() {
	case 0:
		return p.file(name, p.place(name), func() (*os.File, error) { return p.root.Open(name) })
	case fs.ModeDir:
		return p.folder(name, d)
	case fs.ModeSymlink:
		return p.link(name, d)
	default:
		p.content.LeftOut++
		return nil
	}
}

func (p *packer) place(name string) string { return filepath.Join(p.base, name) }

// at names the file that an error is about, once.
func at(place string, err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err
	}
	return fmt.Errorf("%s: %w", place, err)
}

func (p *packer) folder(name string, d fs.DirEntry) error {
	if name == "." {
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return at(p.place(name), err)
	}
	return p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(time.Second)})
}

// link keeps a link, or the file that it leads to outside.
func (p *packer) link(name string, d fs.DirEntry) error {
	target, err := p.root.Readlink(name)
	if err != nil {
		return at(p.place(name), err)
	}
	if staysInside(name, target) {
		if _, err := p.root.Stat(name); err == nil {
			info, err := d.Info()
			if err != nil {
				return at(p.place(name), err)
			}
			p.content.Links++
			return p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: info.ModTime().Truncate(time.Second)})
		}
	}
	outside := p.place(name)
	info, err := os.Stat(outside)
	switch {
	case err != nil:
		return fmt.Errorf("%s leads to %s: %w", outside, target, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s leads to %s, which is no file: list that as a companion of its own", outside, target)
	}
	return p.file(name, outside, func() (*os.File, error) { return os.Open(outside) })
}

// staysInside tells whether the target of the link called name is within the
// folder that both are in.
func staysInside(name, target string) bool {
	return target != "" && !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target)) && !strings.Contains(target, `\`)
}
