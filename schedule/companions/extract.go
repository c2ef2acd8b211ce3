package companions

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// ErrNone says that a backup has no companion of that name.
var ErrNone = errors.New("no such companion")

// Find is the companion of a backup that has a name.
func Find(m *snapshot.Manifest, name string) (snapshot.Companion, error) {
	var names []string
	for _, c := range m.Companions {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	there := "it has none"
	if len(names) > 0 {
		there = "it has " + strings.Join(names, ", ")
	}
	return snapshot.Companion{}, fmt.Errorf("backup %s: %w %q: %s", m.ID, ErrNone, name, there)
}

// Extract writes a companion's files into a folder, which is made where it is not
// there: files for their owner alone (0600), folders too (0700). What is there
// already is never overwritten: a file of the same name is an error. After an
// error nothing that Extract made is left.
func Extract(ctx context.Context, repo *repository.Repository, c snapshot.Companion, identities []age.Identity, dir string) (_ snapshot.CompanionContent, err error) {
	stream, err := snapshot.OpenCompanion(ctx, repo, c, identities...)
	if err != nil {
		return snapshot.CompanionContent{}, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	return unpack(stream, dir)
}

// unpack writes a tar stream into a folder.
func unpack(stream io.Reader, dir string) (_ snapshot.CompanionContent, err error) {
	existed := true
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		existed = false
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return snapshot.CompanionContent{}, err
	}
	// The kernel keeps every name below it, whatever links there are.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return snapshot.CompanionContent{}, err
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
			return snapshot.CompanionContent{}, err
		}
	}
	// The stream's own checks are at its end.
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return snapshot.CompanionContent{}, err
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
	content snapshot.CompanionContent
}

type link struct{ name, target string }

func (u *unpacker) entry(h *tar.Header, in io.Reader) error {
	name := path.Clean(h.Name)
	if !filepath.IsLocal(name) || name == "." {
		return fmt.Errorf("the companion holds %q, which would not lie within %s: it was not made by requorum", h.Name, u.dir)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(name)
	case tar.TypeReg:
		return u.file(name, in)
	case tar.TypeSymlink:
		if !staysInside(name, h.Linkname) {
			return fmt.Errorf("the companion holds the link %q to %q, which leads out of %s: it was not made by requorum", h.Name, h.Linkname, u.dir)
		}
		u.links = append(u.links, link{name, h.Linkname})
		return nil
	}
	return fmt.Errorf("the companion holds %q of the kind %q: it was not made by requorum", h.Name, h.Typeflag)
}

// folder makes a folder and those above it, where they are not there.
func (u *unpacker) folder(name string) error {
	if above := path.Dir(name); above != "." {
		if err := u.folder(above); err != nil {
			return err
		}
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
	if above := path.Dir(name); above != "." {
		if err := u.folder(above); err != nil {
			return err
		}
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
		if above := path.Dir(l.name); above != "." {
			if err := u.folder(above); err != nil {
				return err
			}
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
