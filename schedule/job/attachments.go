package job

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
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
)

// Attachment lists a file, or a folder with all that is in it. What it may be called
// package config checks.
type Attachment struct {
	Name string // what it is called in backups, such as pki
	Path string // absolute
}

// Attachments read files that a cluster cannot be rebuilt without, stored beside
// its data: its PKI, an EncryptionConfiguration, the token of k3s. They go with
// each full snapshot, encrypted, and come back with ExtractAttachment.
//
// It promises:
//
//  1. An attachment holds every file that is listed, as it was at one moment each,
//     or the backup fails and says which file is why.
//  2. The same files give the same bytes, whoever packs them and when.
//  3. What is taken out again is readable by its owner alone, lies within the
//     folder that was named, and overwrites nothing; after an error nothing is
//     left of it.
//  4. Secrets stay out of errors: they name files, never content.
//
// They are what a snapshot.Request takes, and read the files each time.
func Attachments(specs []Attachment) []snapshot.AttachmentSource {
	var all []snapshot.AttachmentSource
	for _, s := range specs {
		all = append(all, &source{s})
	}
	return all
}

const (
	// steadyTries is how often a file is read that changes meanwhile, steadyPause
	// the time between: certificates are renewed in milliseconds.
	steadyTries = 5
	steadyPause = 200 * time.Millisecond
)

// errChanges says that a file did not stand still.
var errChanges = errors.New("it changes while it is read")

// file adds one file, as it was at one moment, under a name; place is where it is.
func (p *packer) file(name, place string, openRepo func() (*os.File, error)) error {
	header, data, err := p.read(openRepo)
	for try := 1; errors.Is(err, errChanges) && try < steadyTries; try++ {
		select {
		case <-p.ctx.Done():
			return atFile(place, context.Cause(p.ctx))
		case <-time.After(steadyPause):
		}
		header, data, err = p.read(openRepo)
	}
	if err != nil {
		return atFile(place, err)
	}
	header.Name = name
	p.content.Files++
	p.content.Bytes += int64(len(data))
	if err := p.tar.WriteHeader(header); err != nil {
		return atFile(place, err)
	}
	_, err = p.tar.Write(data)
	return err
}

// read reads a file whole. It holds no more than one in memory, and none that is
// larger than what attachments may have.
func (p *packer) read(openRepo func() (*os.File, error)) (*tar.Header, []byte, error) {
	f, err := openRepo()
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() //nolint:errcheck // it was read from
	before, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !before.Mode().IsRegular():
		return nil, nil, errChanges // it was a file when the folder was listed
	case before.Size() > snapshot.AttachmentLimit-p.content.Bytes:
		return nil, nil, fmt.Errorf("with its %d bytes the attachment has more than the %d that all may have together; list less", before.Size(), int64(snapshot.AttachmentLimit))
	}
	data := make([]byte, before.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = errChanges
		}
		return nil, nil, err
	}
	n, err := f.Read(make([]byte, 1))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if n > 0 || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, nil, errChanges
	}
	return &tar.Header{Typeflag: tar.TypeReg, Size: before.Size(), Mode: int64(before.Mode().Perm()), ModTime: before.ModTime().Truncate(time.Second)}, data, nil
}

// source packs what one Attachment lists.
type source struct{ Attachment }

// Name is the attachment's.
func (s *source) Name() string { return s.Attachment.Name }

// Pack writes the files as a tar stream, by name, with their permissions and
// times but without owners, so that the same files are the same bytes.
//
// Symbolic links that stay within the folder are kept as links; of one that leads
// out of it the file that it leads to is kept under its name, unless another user
// could have made it (package safedir). Sockets, pipes and devices have no content and
// are left out. A file that cannot be read, or that does not stand still, is an error.
func (s *source) Pack(ctx context.Context, w io.Writer) (snapshot.AttachmentContent, error) {
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
	content snapshot.AttachmentContent
}

func (p *packer) pack() error {
	info, err := safedir.Stat(p.base)
	switch {
	case err != nil:
		return err
	case info.Mode().IsRegular():
		return p.file(filepath.Base(p.base), p.base, func() (*os.File, error) { return safedir.Open(p.base) })
	case !info.IsDir():
		return fmt.Errorf("%s is neither a file nor a folder", p.base)
	}
	dir, err := safedir.OpenDir(p.base)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // it was read from
	// Nothing below leads out of the folder unnoticed.
	if p.root, err = os.OpenRoot(dir.Path()); err != nil {
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
		return atFile(p.place(name), err)
	}
	switch d.Type() {
	case 0:
		return p.file(name, p.place(name), func() (*os.File, error) { return safedir.Open(p.place(name)) })
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

// atFile names the file that an error is about, once.
func atFile(place string, err error) error {
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
		return atFile(p.place(name), err)
	}
	return p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(time.Second)})
}

// link keeps a link, or the file that it leads to outside.
func (p *packer) link(name string, d fs.DirEntry) error {
	target, err := p.root.Readlink(name)
	if err != nil {
		return atFile(p.place(name), err)
	}
	if staysInside(name, target) {
		if _, err := p.root.Stat(name); err == nil {
			info, err := d.Info()
			if err != nil {
				return atFile(p.place(name), err)
			}
			p.content.Links++
			return p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: info.ModTime().Truncate(time.Second)})
		}
	}
	outside := p.place(name)
	info, err := safedir.Stat(outside)
	switch {
	case err != nil:
		return fmt.Errorf("%s leads to %s: %w", outside, target, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s leads to %s, which is no file: list that as an attachment of its own", outside, target)
	}
	return p.file(name, outside, func() (*os.File, error) { return safedir.Open(outside) })
}

// staysInside reports whether the target of the link called name is within the
// folder that both are in.
func staysInside(name, target string) bool {
	return target != "" && !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target)) && !strings.Contains(target, `\`)
}

// ErrNoAttachment says that a backup has no attachment of that name.
var ErrNoAttachment = errors.New("no such attachment")

// FindAttachment is the attachment of a backup that has a name.
func FindAttachment(m *snapshot.Manifest, name string) (snapshot.Attachment, error) {
	var names []string
	for _, c := range m.Attachments {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	there := "it has none"
	if len(names) > 0 {
		there = "it has " + strings.Join(names, ", ")
	}
	return snapshot.Attachment{}, fmt.Errorf("backup %s: %w %q: %s", m.ID, ErrNoAttachment, name, there)
}

// ExtractAttachment writes an attachment's files into a folder, which is made where it is not
// there: files for their owner alone (0600), folders too (0700). What is there
// already is never overwritten: a file of the same name is an error. After an
// error nothing that ExtractAttachment made is left.
func ExtractAttachment(ctx context.Context, repo *repository.Repository, c snapshot.Attachment, identities []age.Identity, dir string) (_ snapshot.AttachmentContent, err error) {
	stream, err := snapshot.OpenAttachment(ctx, repo, c, identities...)
	if err != nil {
		return snapshot.AttachmentContent{}, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	return unpack(stream, dir)
}

// unpack writes a tar stream into a folder.
func unpack(stream io.Reader, dir string) (_ snapshot.AttachmentContent, err error) {
	existed := true
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		existed = false
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return snapshot.AttachmentContent{}, err
	}
	// The kernel keeps every name below it, whatever links there are.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return snapshot.AttachmentContent{}, err
	}
	u := &unpacker{root: root, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.undo())
		}
		err = errors.Join(err, root.Close())
		if err != nil && !existed {
			_ = os.Remove(dir) // it stays where somebody else put something into it
		}
	}()
	in := tar.NewReader(stream)
	for {
		header, err := in.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = u.entry(header, in)
		}
		if err != nil {
			return snapshot.AttachmentContent{}, err
		}
	}
	// The stream's own checks are at its end.
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return snapshot.AttachmentContent{}, err
	}
	err = u.makeLinks()
	return u.content, err
}

// unpacker is one unpack under way.
type unpacker struct {
	root    *os.Root
	dir     string
	made    []string // in order
	links   []link   // made last, so that nothing is written through one
	content snapshot.AttachmentContent
}

type link struct{ name, target string }

func (u *unpacker) entry(h *tar.Header, in io.Reader) error {
	name := path.Clean(h.Name)
	if !filepath.IsLocal(name) || name == "." {
		return fmt.Errorf("the attachment holds %q, which would not lie within %s: it was not made by requorum", h.Name, u.dir)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(name)
	case tar.TypeReg:
		return u.file(name, in)
	case tar.TypeSymlink:
		if !staysInside(name, h.Linkname) {
			return fmt.Errorf("the attachment holds the link %q to %q, which leads out of %s: it was not made by requorum", h.Name, h.Linkname, u.dir)
		}
		u.links = append(u.links, link{name, h.Linkname})
		return nil
	}
	return fmt.Errorf("the attachment holds %q of the kind %q: it was not made by requorum", h.Name, h.Typeflag)
}

// folder makes a folder and those above it, where they are not there.
func (u *unpacker) folder(name string) error {
	if name == "." {
		return nil
	}
	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	err := u.root.Mkdir(name, 0o700)
	if errors.Is(err, os.ErrExist) {
		info, err := u.root.Lstat(name)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is there already and no folder: nothing is overwritten; name an empty folder", filepath.Join(u.dir, name))
		}
		return err
	}
	if err == nil {
		u.made = append(u.made, name)
	}
	return err
}

func (u *unpacker) file(name string, in io.Reader) error {
	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return u.taken(name, err)
	}
	u.made = append(u.made, name)
	n, err := io.Copy(f, in)
	if err == nil {
		err = f.Sync()
	}
	u.content.Files++
	u.content.Bytes += n
	return errors.Join(err, f.Close())
}

func (u *unpacker) makeLinks() error {
	for _, l := range u.links {
		if err := u.folder(path.Dir(l.name)); err != nil {
			return err
		}
		if err := u.root.Symlink(l.target, l.name); err != nil {
			return u.taken(l.name, err)
		}
		u.made = append(u.made, l.name)
		u.content.Links++
	}
	return nil
}

// taken says what to do about a name that is taken.
func (u *unpacker) taken(name string, err error) error {
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already: nothing is overwritten; name an empty folder: %w", filepath.Join(u.dir, name), os.ErrExist)
	}
	return err
}

// undo removes what was made.
func (u *unpacker) undo() error {
	var errs []error
	for _, name := range slices.Backward(u.made) {
		if err := u.root.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
