package restore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
)

// SnapshotFileRequest asks for one plain snapshot file instead of data
// directories, for k3s, RKE2, Talos and others that own their directories and
// restore from a file. The fields are those of Request.
type SnapshotFileRequest struct {
	Image                snapshot.Image
	Repository, BackupID string
	Target               string
	Notes                []string
	Path                 string
	Owner                *Owner
	Bump                 BumpRequest
	HighestKnownRevision int64
	TargetVersion        string
}

// SnapshotFilePlan is what was decided about such a file: pure data.
type SnapshotFilePlan struct {
	Format        int              `json:"format"`
	ID            string           `json:"id"`
	CreatedAt     time.Time        `json:"created_at"`
	Source        Source           `json:"source"`
	Path          string           `json:"path"`
	Owner         *Owner           `json:"owner,omitempty"`
	Bump          *Bump            `json:"bump,omitempty"`
	ClearAlarms   []snapshot.Alarm `json:"clear_alarms,omitempty"`
	OldestTarget  string           `json:"oldest_target"`
	TargetVersion string           `json:"target_version,omitempty"`
	Bytes         int64            `json:"bytes"`
	Notes         []string         `json:"notes,omitempty"`
}

// SnapshotFileResult is what was written.
type SnapshotFileResult struct {
	Plan           *SnapshotFilePlan `json:"plan"`
	Path           string            `json:"path"`
	Size           int64             `json:"size"`            // with the trailer, in bytes
	DatabaseSHA256 string            `json:"database_sha256"` // what the trailer says
	RevisionBefore int64             `json:"revision_before"`
	RevisionAfter  int64             `json:"revision_after"`
	AlarmsCleared  []snapshot.Alarm  `json:"alarms_cleared,omitempty"`
	DowngradeEnded string            `json:"downgrade_ended,omitempty"`
	Phases         []PhaseTime       `json:"phases"`
}

// NewSnapshotFilePlan decides everything and touches nothing.
func NewSnapshotFilePlan(ctx context.Context, req SnapshotFileRequest) (*SnapshotFilePlan, error) {
	if req.Image == nil || req.Path == "" {
		return nil, badRequest("restore: a snapshot file needs an image and a path")
	}
	if err := req.Bump.check(); err != nil {
		return nil, &RequestError{err}
	}
	facts, err := req.Image.Facts(ctx)
	if err != nil {
		return nil, fmt.Errorf("restore: look into %s: %w", req.Image.Name(), err)
	}
	p := &SnapshotFilePlan{
		Format:        PlanFormat,
		ID:            randomID(),
		CreatedAt:     time.Now().UTC().Truncate(time.Second),
		Source:        sourceOf(req.Image, req.Repository, req.BackupID, facts),
		Owner:         req.Owner,
		ClearAlarms:   facts.Alarms,
		TargetVersion: req.TargetVersion,
	}
	p.Source.Target = req.Target
	p.Bytes = p.Source.Size + editBytes
	if p.Path, err = filepath.Abs(req.Path); err != nil {
		return nil, err
	}
	if p.OldestTarget, err = planTarget(req.TargetVersion, facts); err != nil {
		return nil, err
	}
	var notes []string
	highest := req.HighestKnownRevision
	if req.Bump.Mode == BumpOff {
		highest = 0 // a file serves nobody yet: here an older state is to be had as it was
	}
	if p.Bump, notes, err = planBump(req.Bump, facts, highest); err != nil {
		return nil, err
	}
	p.Notes = append(append(imageNotes(p.Source, p.OldestTarget, p.ClearAlarms), req.Notes...), notes...)
	if p.Bump != nil {
		p.Notes = append(p.Notes, "the bump and the compaction mark are inside the file: restore it without asking for another bump")
	}
	return p, nil
}

// Check looks, without changing anything, whether the file could be written.
func (p *SnapshotFilePlan) Check(context.Context) ([]FileSystem, error) {
	there, err := exists(p.Path)
	if err == nil && there {
		err = fmt.Errorf("%s %w: name another file", p.Path, ErrExists)
	}
	if err != nil {
		return nil, err
	}
	if err := checkInside(p.Path); err != nil {
		return nil, err
	}
	folder := filepath.Dir(p.Path)
	there, err = directory(folder)
	if err == nil && !there {
		err = fmt.Errorf("there is no folder %s: make it, or name a file in another one", folder)
	}
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", p.Path, err)
	}
	if err := writable(folder, true); err != nil {
		return nil, err
	}
	systems, err := fileSystems(map[string]int64{p.Path: p.Bytes})
	for _, f := range systems {
		err = errors.Join(err, f.check())
	}
	return systems, err
}

// WriteSnapshotFile writes the planned file: aside, synced, and then under its
// name in one step. A file of that name is never overwritten. Of the options
// only Progress and Logger count.
func WriteSnapshotFile(ctx context.Context, p *SnapshotFilePlan, image snapshot.Image, opts ExecOptions) (_ *SnapshotFileResult, err error) {
	r := &run{plan: &Plan{ID: p.ID, Source: p.Source}, image: image, opts: opts, log: opts.Logger}
	r.fill()
	done := r.phase(PhaseCheck)
	if err := p.Source.check(ctx, image, p.ID); err != nil {
		return nil, err
	}
	if _, err := p.Check(ctx); err != nil {
		return nil, err
	}
	s, err := openSite(p.Path)
	if err != nil {
		return nil, errors.Join(err, s.close(false))
	}
	defer func() { err = errors.Join(err, s.close(true)) }()
	if err := s.sweep(); err != nil {
		return nil, err
	}
	done()

	aside := filepath.Join(s.staging(), "db")
	if err := r.writeOne(ctx, aside); err != nil {
		return nil, err
	}
	done = r.phase(PhaseEdit)
	out, err := edit{bump: p.Bump}.apply(aside)
	if err != nil {
		return nil, editError(image, err)
	}
	if err := out.compare(image, p.Source.Facts); err != nil {
		return nil, err
	}
	done()
	done = r.phase(PhaseSync)
	sum, size, err := appendSum(ctx, aside)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", p.Path, err)
	}
	if err := (traits{owner: p.Owner, fileMode: 0o600}).apply(aside); err != nil {
		return nil, err
	}
	done()
	done = r.phase(PhasePublish)
	r.opts.step("publish " + p.Path)
	if err := publishFile(aside, p.Path); err != nil {
		return nil, err
	}
	done()
	res := &SnapshotFileResult{
		Plan: p, Path: p.Path, Size: size, DatabaseSHA256: sum,
		RevisionBefore: out.revision, RevisionAfter: out.revision,
		AlarmsCleared: out.alarms, DowngradeEnded: out.downgrade, Phases: r.phases,
	}
	if p.Bump != nil {
		res.RevisionAfter = p.Bump.NewRevision
	}
	return res, nil
}

func (r *run) writeOne(ctx context.Context, path string) error {
	defer r.phase(PhaseWrite)()
	f, err := safedir.Create(path)
	if err != nil {
		return err
	}
	err = fetch(ctx, r.image, r.plan.Source, writers([]*os.File{f}), r.writeProgress)
	if err == nil && !r.plan.Source.Summed {
		err = checkStructure(ctx, r.image, path)
	}
	return errors.Join(err, f.Close())
}

// appendSum puts the SHA-256 of a database behind it, as etcd's own snapshots
// have it, and syncs the file. The size is the new one.
func appendSum(ctx context.Context, path string) (sum string, size int64, err error) {
	f, err := safedir.OpenWritable(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	size, err = io.CopyBuffer(struct{ io.Writer }{h}, &contextReader{ctx, f}, make([]byte, chunkSize))
	if err != nil {
		return "", 0, err
	}
	if size%512 != 0 { // etcdutl knows a trailer by the size
		return "", 0, fmt.Errorf("%d bytes are no whole pages", size)
	}
	n, err := f.Write(h.Sum(nil))
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size + int64(n), f.Sync()
}

// contextReader ends when its context does.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// publishFile gives a file its name, in one step, and fails where that is
// taken. Where a rename cannot promise that, a hard link does.
func publishFile(from, to string) error {
	err := safedir.RenameNew(from, to)
	if errors.Is(err, safedir.ErrNoExchange) {
		err = safedir.Link(from, to)
	}
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s %w: name another file", to, ErrExists)
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", to, err)
	}
	return safedir.Sync(filepath.Dir(to))
}

// randomID is 16 hexadecimal digits.
func randomID() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails: it ends the process instead
	return hex.EncodeToString(b)
}
