package disk

import (
	"context"
	"errors"
	"path"

	"github.com/requorum/requorum/sinks"
)

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
