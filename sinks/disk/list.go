package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks"
)

// listBatch is how many names of a folder are read at once. The names of one
// folder that are in range are all held, to sort them; nothing else is.
const listBatch = 1024

// List implements sinks.Sink. Only folders that can hold a name in range are
// read.
func (s *Sink) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	return func(yield func(sinks.Object, error) bool) {
		l := &listing{ctx: ctx, prefix: prefix, after: after, yield: yield}
		if err := l.start(s); err != nil && !errors.Is(err, errStop) {
			yield(sinks.Object{}, s.failed("list", prefix+"*", err))
		}
	}
}

// errStop ends a listing whose caller has seen enough.
var errStop = errors.New("stop")

type listing struct {
	ctx           context.Context
	prefix, after string
	yield         func(sinks.Object, error) bool
}

// start lists the one folder that the prefix names, or the whole root.
func (l *listing) start(s *Sink) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	folder := strings.TrimSuffix(l.prefix[:strings.LastIndexByte(l.prefix, '/')+1], "/")
	if strings.HasPrefix(l.prefix, "/") || folder != "" && !valid(folder) {
		return nil // no name starts like that
	}
	opened, err := s.openRoot(l.ctx)
	if err != nil {
		return ignoreAbsent(err)
	}
	defer opened.Close() //nolint:errcheck // a folder that was only read
	if folder == "" {
		return l.folder(opened, "")
	}
	return l.enter(opened, folder, folder+"/")
}

// enter lists the folder name of parent; full is its path with a slash at its
// end.
func (l *listing) enter(parent *os.Root, name, full string) error {
	folder, err := parent.OpenRoot(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // also where somebody has made it since
	}
	if err != nil {
		if info, statErr := parent.Stat(name); errors.Is(absent(statErr), sinks.ErrNotFound) || statErr == nil && !info.IsDir() {
			return nil // it is gone; or the prefix goes on below an object, where nothing is
		}
		return err
	}
	defer folder.Close() //nolint:errcheck // a folder that was only read
	return l.folder(folder, full)
}

// folder yields what is in folder in the order of full names: a folder sorts
// as its name and a slash, so that "a-b" comes before "a/b", and both before
// "ab".
func (l *listing) folder(folder *os.Root, full string) error {
	keys, err := l.keys(folder, full)
	if err != nil {
		return err
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		if name, isFolder := strings.CutSuffix(key, "/"); isFolder {
			err = l.enter(folder, name, full+key)
		} else {
			err = l.object(folder, key, full+key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keys reads what in a folder can be in range: names, of folders with a slash.
func (l *listing) keys(folder *os.Root, full string) (keys []string, err error) {
	dir, err := folder.Open(".")
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	defer dir.Close() //nolint:errcheck // a folder that was only read
	for {
		entries, err := dir.ReadDir(listBatch)
		for _, entry := range entries {
			key, keyErr := l.key(folder, full, entry)
			if keyErr != nil {
				return nil, keyErr
			}
			if key != "" {
				keys = append(keys, key)
			}
		}
		if err == io.EOF {
			return keys, nil
		}
		if err != nil {
			return nil, ignoreAbsent(err)
		}
	}
}

// key is what entry is sorted by, or empty where it is out of range or not
// ours.
func (l *listing) key(folder *os.Root, full string, entry fs.DirEntry) (string, error) {
	name := entry.Name()
	switch {
	case !valid(full + name):
	case entry.IsDir():
		if l.reaches(full + name + "/") {
			return name + "/", nil
		}
	case entry.Type().IsRegular():
		if strings.HasPrefix(full+name, l.prefix) && full+name > l.after {
			return name, nil
		}
	case entry.Type()&fs.ModeSymlink != 0 && l.reaches(full+name+"/"):
		return "", refuseLinkedFolder(folder, full, name)
	}
	return "", nil
}

func valid(name string) bool { return sinks.ValidName(name) == nil }

// reaches says whether a name that starts with folder can be in range.
func (l *listing) reaches(folder string) bool {
	if !strings.HasPrefix(folder, l.prefix) && !strings.HasPrefix(l.prefix, folder) {
		return false
	}
	return folder > l.after || strings.HasPrefix(l.after, folder)
}

// refuseLinkedFolder fails for a link to a folder. Objects in it would be
// missing from the list without a word.
func refuseLinkedFolder(folder *os.Root, full, name string) error {
	switch info, err := folder.Stat(name); {
	case err == nil && !info.IsDir(), errors.Is(absent(err), sinks.ErrNotFound):
		return nil
	}
	return fmt.Errorf("%s is a symbolic link, and links to folders or out of the root are not followed: mount the folder there (mount --bind) or move it", path.Join(full, name))
}

func (l *listing) object(folder *os.Root, name, full string) error {
	info, err := folder.Lstat(name)
	if err != nil {
		return ignoreAbsent(err) // deleted meanwhile
	}
	if info.Mode().IsRegular() && !l.yield(describe(full, info), nil) {
		return errStop
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Delete implements sinks.Sink. Folders that it empties go too; a Commit that
// needs one at that moment makes it again.
func (s *Sink) Delete(ctx context.Context, name string) error {
	if err := s.delete(ctx, name); err != nil {
		return s.failed("delete", name, err)
	}
	return nil
}

func (s *Sink) delete(ctx context.Context, name string) error {
	root, _, err := s.find(ctx, name)
	if errors.Is(err, sinks.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	folder := path.Dir(name)
	err = ignoreAbsent(remove(root, name))
	if err == nil {
		// Before pruning: an object must not come back after a power failure.
		err = s.syncFolders(root, folder)
	}
	if err == nil {
		err = prune(root, folder)
	}
	return errors.Join(err, root.Close())
}
