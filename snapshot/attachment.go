package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
)

// AttachmentsLimit is how many bytes the tar of a backup's attachments may have. They
// are keys, certificates and configuration; a directory that holds more was listed by
// mistake.
const AttachmentsLimit = 32 << 20

var (
	// ErrAttachmentsPlain reports attachments that are not encrypted.
	ErrAttachmentsPlain = errors.New("attachments are stored encrypted only")
	// ErrNoAttachments reports a backup without attachments.
	ErrNoAttachments = errors.New("it has no attachments")
)

// storeAttachments stores the attachments beside the object of the manifest, and
// describes them in the manifest.
func (t *taking) storeAttachments(ctx context.Context, m *Manifest) error {
	if len(t.Attachments) == 0 {
		return nil
	}
	t.Progress(Progress{Phase: "attachments"})
	if err := t.storeTar(ctx, m); err != nil {
		return fmt.Errorf("attachments: %w", err)
	}
	return nil
}

func (t *taking) storeTar(ctx context.Context, m *Manifest) error {
	id, backup, attempt, _, err := repository.ParseSnapshotName(m.Object.Name)
	if err != nil {
		return err
	}
	name := repository.AttachmentsName(id, backup, attempt)
	object, err := t.Sink.Create(ctx, name, sinks.CreateOptions{Lock: repository.Locked(name)})
	if err != nil {
		return err
	}
	defer object.Abort() //nolint:errcheck // does nothing after Commit; else another error is on its way
	w, err := codec.NewWriter(ctx, object, t.Codec)
	if err != nil {
		return err
	}
	defer w.Abort()
	_, err = w.Write(t.Attachments)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	if _, err := object.Commit(ctx); err != nil {
		return err
	}
	m.Attachments = &StoredObject{Name: name, Encoding: w.Description()}
	return nil
}

// removeBackup deletes the objects of a manifest that was not written.
func (t *taking) removeBackup(m *Manifest) error {
	err := t.removeObject(m.Object.Name)
	if m.Attachments != nil {
		err = errors.Join(err, t.removeObject(m.Attachments.Name))
	}
	return err
}

// checkAttachments refuses attachments that are not the manifest's own, in the clear, or
// larger than any that requorum stores.
func (m *Manifest) checkAttachments() error {
	o := m.Attachments
	if o == nil {
		return nil
	}
	t, id, _, err := repository.ParseAttachmentsName(o.Name)
	switch {
	case err != nil || t != m.Timeline || id != m.ID:
		return fmt.Errorf("it describes the object %s as its attachments, which is not its own", o.Name)
	case !o.Encrypted():
		return fmt.Errorf("its attachments are not encrypted, and %w: somebody else made them; find out who did, then remove the backup", ErrAttachmentsPlain)
	case o.RawSize > AttachmentsLimit:
		return fmt.Errorf("its attachments would have %d bytes, at most %d are possible", o.RawSize, int64(AttachmentsLimit))
	}
	return nil
}

// ReadAttachments returns the tar of a backup's attachments, after every check of its
// stored and raw bytes.
func ReadAttachments(ctx context.Context, repo *repository.Repository, m *Manifest, identities ...age.Identity) ([]byte, error) {
	if m.Attachments == nil {
		return nil, fmt.Errorf("backup %s: %w", m.ID, ErrNoAttachments)
	}
	s := OpenStored(repo, &Manifest{Object: *m.Attachments}, identities...)
	stored, err := repo.Sink().Open(ctx, m.Attachments.Name, 0, -1)
	if err != nil {
		return nil, s.damage(err)
	}
	defer stored.Close()
	raw, err := codec.NewReader(ctx, stored, m.Attachments.Encoding, identities...)
	if err != nil {
		return nil, s.damage(err)
	}
	data, err := io.ReadAll(raw)
	if err := errors.Join(err, raw.Close()); err != nil {
		return nil, s.damage(err)
	}
	return data, nil
}
