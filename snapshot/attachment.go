package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
)

// AttachmentLimit is how many bytes all attachments of a backup may have before
// they are compressed. They are keys, certificates and configuration; a folder
// that holds more was listed by mistake.
const AttachmentLimit = 64 << 20

// mostPacked is more than an attachment can have as a tar stream. One that says it has
// more would fill the disk that it is written to.
const mostPacked = 16 * AttachmentLimit

// AttachmentSource gives files that are stored, encrypted, with a full snapshot:
// what a cluster cannot be rebuilt without, beside its data.
type AttachmentSource interface {
	// Name is what repository.ValidAttachmentName accepts.
	Name() string
	// Pack writes the files as a tar stream: the same one as long as they are the
	// same. It may be called more than once.
	Pack(ctx context.Context, w io.Writer) (AttachmentContent, error)
}

// AttachmentContent is what a AttachmentSource has packed.
type AttachmentContent struct {
	Files int   `json:"files"`
	Links int   `json:"links,omitempty"`
	Bytes int64 `json:"bytes"` // of the files
	// LeftOut are what has no content to keep: sockets, pipes, devices.
	LeftOut int `json:"left_out,omitempty"`
}

// Attachment describes a stored attachment.
type Attachment struct {
	Name string `json:"name"`
	// Host is where the files were: those of members differ.
	Host   string       `json:"host,omitempty"`
	Object StoredObject `json:"object"`
	AttachmentContent
}

// ErrAttachmentsPlain says that attachments would be stored for everybody to read.
var ErrAttachmentsPlain = errors.New("attachments are stored encrypted only")

// checkAttachments packs all attachments for nobody, so that what is wrong with one
// is found before a member is read.
func (t *taking) checkAttachments(ctx context.Context) error {
	if len(t.Attachments) == 0 {
		return nil
	}
	if len(t.Codec.Recipients) == 0 {
		return fmt.Errorf("%w, and no recipient is named: name recipients, or no attachments", ErrAttachmentsPlain)
	}
	var bytes int64
	var names []string
	for _, source := range t.Attachments {
		if err := repository.ValidAttachmentName(source.Name()); err != nil {
			return err
		}
		if slices.Contains(names, source.Name()) {
			return fmt.Errorf("there are two attachments %q: give each a name of its own", source.Name())
		}
		names = append(names, source.Name())
		content, err := source.Pack(ctx, io.Discard)
		if err != nil {
			return fmt.Errorf("attachment %s: %w", source.Name(), err)
		}
		if bytes += content.Bytes; bytes > AttachmentLimit {
			return fmt.Errorf("attachment %s: with it, attachments have %d bytes: more than the %d that all may have together; list less", source.Name(), bytes, int64(AttachmentLimit))
		}
	}
	return nil
}

// storeAttachments stores them beside the object of the upload in every repository
// that has it, and in the manifests. A repository that does not take one has
// failed, and has nothing of the backup left.
func (t *taking) storeAttachments(ctx context.Context, up *upload) error {
	for _, source := range t.Attachments {
		t.Progress(Progress{Phase: "attachments"})
		if err := t.storeAttachment(ctx, up, source); err != nil {
			return errors.Join(fmt.Errorf("attachment %s: %w", source.Name(), err), t.removeStored())
		}
	}
	return t.anyLeft()
}

func (t *taking) storeAttachment(ctx context.Context, up *upload, source AttachmentSource) error {
	var (
		to      []sinks.Target
		targets []*target
	)
	for i, target := range up.targets {
		if target.err != nil {
			continue
		}
		_, id, attempt, _, err := repository.ParseSnapshotName(up.names[i])
		if err != nil {
			return err
		}
		name := repository.AttachmentName(target.timeline.ID, id, attempt, source.Name())
		targets = append(targets, target)
		to = append(to, sinks.Target{Sink: target.sink, Name: name, Options: sinks.CreateOptions{Lock: repository.Locked(name)}})
	}
	if len(to) == 0 {
		return nil
	}
	fan, err := sinks.NewFanOut(ctx, to)
	if err != nil {
		return err
	}
	defer fan.Abort() //nolint:errcheck // a no-op after Commit; else another error is on its way
	w, err := codec.NewWriter(ctx, fan, t.Codec)
	if err != nil {
		return err
	}
	defer w.Abort()
	content, err := source.Pack(ctx, w)
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	for i, r := range fan.Commit(ctx) {
		target, object := targets[i], StoredObject{Name: to[i].Name, Encoding: w.Description()}
		if r.Err != nil {
			target.err = errors.Join(fmt.Errorf("attachment %s: %w", source.Name(), r.Err), removeBackup(target, target.manifest))
			continue
		}
		target.manifest.Attachments = append(target.manifest.Attachments, Attachment{Name: source.Name(), Host: host, Object: object, AttachmentContent: content})
	}
	return nil
}

// removeStored takes all objects of the backup out of all repositories again.
func (t *taking) removeStored() error {
	var errs []error
	for _, target := range t.targets {
		if target.err == nil && target.manifest != nil {
			errs = append(errs, removeBackup(target, target.manifest))
		}
	}
	return errors.Join(errs...)
}

// removeBackup removes what a manifest describes that was not written.
func removeBackup(target *target, m *Manifest) error {
	err := removeObject(target, m.Object.Name)
	for _, c := range m.Attachments {
		err = errors.Join(err, removeObject(target, c.Object.Name))
	}
	return err
}

// checkAttachments refuses attachments that are not the manifest's own, and those in the
// clear, which nobody stores.
func (m *Manifest) checkAttachments() error {
	for _, c := range m.Attachments {
		t, id, _, name, err := repository.ParseAttachmentName(c.Object.Name)
		if err != nil || t != m.Timeline || id != m.ID || name != c.Name {
			return fmt.Errorf("it describes the object %s as its attachment %s, which is not its own", c.Object.Name, c.Name)
		}
		if !c.Object.Encrypted() {
			return fmt.Errorf("its attachment %s is not encrypted, and %w: somebody else made it; find out who did, then remove the backup", c.Name, ErrAttachmentsPlain)
		}
	}
	return nil
}

// OpenAttachment reads an attachment's tar stream, with the identities that open it.
// Every check of its stored and raw bytes happens on the way, the last before
// io.EOF. The caller closes it.
func OpenAttachment(ctx context.Context, repo *repository.Repository, c Attachment, identities ...age.Identity) (io.ReadCloser, error) {
	s := OpenStored(repo, &Manifest{Object: c.Object}, identities...)
	if size := c.Object.RawSize; size > mostPacked {
		return nil, s.damage(&codec.CorruptError{Offset: -1, Err: fmt.Errorf("it would have %d bytes, at most %d are possible", size, int64(mostPacked))})
	}
	stored, err := repo.Sink().Open(ctx, c.Object.Name, 0, -1)
	if err != nil {
		return nil, s.damage(err)
	}
	raw, err := codec.NewReader(ctx, stored, c.Object.Encoding, identities...)
	if err != nil {
		return nil, errors.Join(s.damage(err), stored.Close())
	}
	return &storedReader{stored: stored, raw: raw, body: raw, owner: s}, nil
}
