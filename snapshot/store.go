package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
)

// StoreRequest is a database to keep as a full snapshot.
type StoreRequest struct {
	Repo     *repository.Repository
	Timeline repository.TimelineID // it must have been opened
	// ID and Attempt are as in a Request.
	ID      string
	Attempt int
	// Image is the database. Its facts must be what its pages say.
	Image Image
	// Started is when the work on it began; now where zero.
	Started time.Time
	// Version is that of the members which the database's history is of.
	Version   string
	ClusterID ID // of the cluster that it is of; zero where that is not known
	Synthesis *Synthesis
	HashKV    HashKV
	Keys      Keys

	Codec    codec.Options
	Tool     string
	Labels   map[string]string
	ReadBack bool           // as in a Request
	Progress func(Progress) // may be nil; called from one goroutine
	Logger   *slog.Logger   // may be nil
	Now      func() time.Time
}

// Store keeps a database that was not streamed from a member as a full snapshot:
// the same object, with the SHA-256 behind the database that etcd appends to a
// stream, and a manifest that is written last. Its facts are read back out of what
// was stored, and must be the image's.
//
// What fails or is interrupted leaves no manifest, and no object unless it is
// locked. Where the backup of that ID is there already the error is ErrTaken.
func Store(ctx context.Context, req StoreRequest) (*Manifest, error) {
	if req.Now == nil {
		req.Now = time.Now
	}
	if req.Progress == nil {
		req.Progress = func(Progress) {}
	}
	if req.Started.IsZero() {
		req.Started = req.Now()
	}
	req.Started = req.Started.UTC()
	id := req.ID
	if id == "" {
		id = repository.NewBackupID(req.Started)
	} else if err := repository.ValidBackupID(id); err != nil {
		return nil, err
	}
	to := &target{sink: req.Repo.Sink(), repo: req.Repo, timeline: repository.Timeline{ID: req.Timeline}}
	t := &taking{
		Request: Request{Sinks: []sinks.Sink{to.sink}, Codec: req.Codec, Tool: req.Tool, Labels: req.Labels, ID: req.ID, Attempt: req.Attempt,
			ReadBack: req.ReadBack, Progress: req.Progress, Now: req.Now},
		targets: []*target{to},
	}
	err := t.keep(ctx, to, id, req)
	if err == nil {
		err = to.err
	}
	if err != nil {
		return nil, fmt.Errorf("keep %s as backup %s in %s: %w", req.Image.Name(), id, req.Repo, withCause(ctx, err))
	}
	return to.manifest, nil
}

// keep stores the image and writes its manifest.
func (t *taking) keep(ctx context.Context, to *target, id string, req StoreRequest) error {
	up, err := t.startUpload(ctx, id)
	if err != nil {
		return err
	}
	defer up.abort()
	if err := t.copyImage(ctx, req.Image, up); err != nil {
		return err
	}
	if err := up.commit(ctx); err != nil {
		return err
	}
	// From here on the object is visible, though no backup yet.
	if err := t.describeImage(ctx, to, up, id, req); err != nil {
		return errors.Join(err, removeObject(to, up.names[0]))
	}
	return t.writeManifests(ctx)
}

// copyImage writes the database, after all of the image's own checks, and the
// SHA-256 of what was written.
func (t *taking) copyImage(ctx context.Context, image Image, up *upload) (err error) {
	r, err := image.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	sum := sha256.New()
	counter := &progressWriter{report: func(n int64) {
		t.Progress(Progress{Phase: "store", Done: n, Total: image.Size()})
	}}
	if _, err := io.Copy(io.MultiWriter(up.codec, sum, counter), r); err != nil {
		return err
	}
	if counter.n != image.Size() {
		return fmt.Errorf("%s gave %d bytes of %d", image.Name(), counter.n, image.Size())
	}
	if _, err := up.codec.Write(sum.Sum(nil)); err != nil {
		return err
	}
	return up.close()
}

// describeImage makes the manifest from the bytes that the repository gives back.
func (t *taking) describeImage(ctx context.Context, to *target, up *upload, id string, req StoreRequest) error {
	t.Progress(Progress{Phase: "check"})
	want, err := req.Image.Facts(ctx)
	if err != nil {
		return err
	}
	m := &Manifest{
		Format: manifestFormat, Kind: KindFull, ID: id, Timeline: to.timeline.ID, Tool: t.Tool,
		Started: req.Started, Labels: t.Labels,
		Object:         StoredObject{Name: up.names[0], Encoding: up.codec.Description()},
		DatabaseSHA256: up.sum,
		Source:         Source{ClusterID: req.ClusterID, Version: req.Version}, Synthesis: req.Synthesis,
		HashKV: req.HashKV, Keys: req.Keys,
	}
	stored := OpenStored(to.repo, m, up.identity()...)
	if err := t.readFacts(ctx, stored, m); err != nil {
		return err
	}
	if f := m.Facts; f.RaftIndex != want.RaftIndex || f.RaftTerm != want.RaftTerm || f.Revision != want.Revision || f.CompactedRevision != want.CompactedRevision {
		return fmt.Errorf("the repository gives back raft index %d of term %d, revision %d, compacted at %d: what was stored is at %d, %d, %d, %d",
			f.RaftIndex, f.RaftTerm, f.Revision, f.CompactedRevision, want.RaftIndex, want.RaftTerm, want.Revision, want.CompactedRevision)
	}
	to.manifest = m
	return nil
}
