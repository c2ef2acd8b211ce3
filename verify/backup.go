package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/structure"
	"github.com/requorum/requorum/walreplay"
)

// checkDamaged reports a backup that the catalog cannot use.
func (e *examination) checkDamaged(ctx context.Context, d snapshot.Unusable) error {
	name := fullName(d.Timeline, d.ID)
	c, err := e.check(ctx, report.Checksum, name, func(c *report.Check) error {
		c.Compared = "the manifest with its own SHA-256 and place, and the size of its object with it"
		// A manifest that can be read has an object that is gone or has another size.
		kind := report.KindManifest
		m, err := snapshot.ReadManifest(ctx, e.repo, d.Timeline, d.ID)
		switch {
		case errors.Is(err, sinks.ErrNotFound):
			return errPruned
		case err == nil && errors.Is(d.Err, sinks.ErrNotFound):
			kind = report.KindMissing
		case err == nil:
			kind = report.KindSize
		}
		object := repository.ManifestName(d.Timeline, d.ID)
		if err == nil {
			object = m.Object.Name
		}
		took(c, kind, object, d.Err)
		return nil
	})
	if err != nil || c == nil {
		return err
	}
	e.refuseHigher(name, "its manifest or its object cannot be used: see the level checksum")
	return nil
}

// refuseHigher adds the checks above the level checksum that were asked for and
// cannot be done.
func (r *run) refuseHigher(object, reason string) {
	for _, level := range report.Levels() {
		if r.Level.Includes(level) && level != report.Checksum {
			r.add(report.Check{Level: level, Object: object, Reason: reason})
		}
	}
}

// checkBackup takes one backup up the levels. newest says that the log behind it is
// looked at too.
func (h *history) checkBackup(ctx context.Context, m *snapshot.Manifest, newest bool) (err error) {
	name := fullName(m.Timeline, m.ID)
	unpacked, noCopy := h.makeCopy(m)
	var sealed error
	c, err := h.check(ctx, report.Checksum, name, func(c *report.Check) (err error) {
		sealed, err = h.readBackup(ctx, c, m, unpacked)
		return err
	})
	if err != nil || c == nil {
		return errors.Join(err, unpacked.remove())
	}
	c.Manifest = m.Stored.SHA256
	reason := ""
	switch {
	case !h.Level.Includes(report.Structure):
		return nil
	case c.Status != report.Passed:
		reason = "its bytes could not be proved: see the level checksum"
	case sealed != nil:
		reason = sealed.Error()
	case noCopy != nil:
		reason = fmt.Sprintf("there is nowhere to unpack it: %v", noCopy)
	case unpacked.err != nil:
		reason = fmt.Sprintf("it could not be unpacked: %v", unpacked.err)
	}
	if reason != "" {
		h.refuseHigher(name, reason)
		return unpacked.remove()
	}
	unpacked.took = c.Took
	h.copies[m.ID] = unpacked
	return h.runLevels(ctx, m, unpacked, newest)
}

// readBackup reads a stored snapshot whole, into unpacked where there is one. What
// cannot be decrypted is sealed: its stored bytes are compared, and that it is
// sealed is no fault of the backup. The error is errPruned.
func (e *examination) readBackup(ctx context.Context, c *report.Check, m *snapshot.Manifest, unpacked *scratchCopy) (sealed, err error) {
	err = e.readRaw(ctx, c, m, unpacked)
	var identity *codec.IdentityError
	if errors.As(err, &identity) {
		sealed = identity
		e.sealed.Add(1)
		c.Compared = "the manifest with its own SHA-256 and place; the object's stored bytes, size and SHA-256, with the manifest. It is encrypted and was not decrypted: its content was compared with nothing"
		err = e.readStored(ctx, c, m.ID, m.Object)
	}
	if m.Object.Encrypted() && sealed == nil && err == nil {
		e.opened.Add(1)
	}
	if e.prunedMeanwhile(ctx, m.Timeline, m.ID, err) {
		return nil, errPruned
	}
	took(c, report.KindObject, m.Object.Name, err)
	if err := e.catalog.CheckEncrypted(m); err != nil && (e.Backup == All || e.Backup == Latest) {
		found(c, report.Finding{Kind: report.KindObject, Object: m.Object.Name, Text: err.Error()})
	}
	return sealed, e.readAttachments(ctx, c, m)
}

// readRaw reads it through its codecs, which check the hashes of the stored and
// of the raw bytes.
func (e *examination) readRaw(ctx context.Context, c *report.Check, m *snapshot.Manifest, unpacked *scratchCopy) error {
	c.Compared = "the manifest with its own SHA-256 and place; the object's sizes and SHA-256, stored and raw, every frame of its codecs, and the SHA-256 that etcd sent after the database, with the manifest and with each other"
	stored := snapshot.OpenStored(e.repo, m, e.Identities...)
	var sums snapshot.Sums
	r, err := stored.OpenSummed(ctx, &sums)
	if err != nil {
		return err
	}
	defer r.Close() // its end was seen, or an error is on its way
	to := []io.Writer{e.counter(c, m.ID, stored.Size())}
	if unpacked != nil {
		to = append(to, unpacked)
	}
	if _, err := io.Copy(io.MultiWriter(to...), r); err != nil {
		return err
	}
	c.Bytes = m.Object.StoredSize
	if unpacked != nil {
		unpacked.Write(sums.Trailer) //nolint:errcheck // unpacked.err has it
	}
	if err := checkTrailer(m, &sums); err != nil {
		return &snapshot.DamagedError{Object: m.Object.Name, Offset: -1, Err: err}
	}
	return nil
}

// checkTrailer holds the database's sum against the one that the manifest names
// and against the one that etcd sent behind it.
func checkTrailer(m *snapshot.Manifest, sums *snapshot.Sums) error {
	if got := hex.EncodeToString(sums.Database[:]); got != m.DatabaseSHA256 {
		return fmt.Errorf("the database's SHA-256 is %s, the manifest says %s", got, m.DatabaseSHA256)
	}
	if !bytes.Equal(sums.Database[:], sums.Trailer) {
		return errors.New("what follows the database is not its SHA-256")
	}
	return nil
}

// readStored reads an object of a backup as it is stored.
func (e *examination) readStored(ctx context.Context, c *report.Check, backup string, o snapshot.StoredObject) error {
	r, err := e.repo.Sink().Open(ctx, o.Name, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close() // its end was seen, or an error is on its way
	sum := sha256.New()
	count := e.counter(c, backup, o.StoredSize)
	n, err := io.Copy(io.MultiWriter(sum, count), r)
	if err != nil {
		return err
	}
	return storedAs(o.Name, o.Encoding, n, sum)
}

// storedAs compares the bytes of an object with its description.
func storedAs(object string, e codec.Encoding, n int64, sum hash.Hash) error {
	got := hex.EncodeToString(sum.Sum(nil))
	switch {
	case n != e.StoredSize:
		return &snapshot.DamagedError{Object: object, Offset: -1, Err: fmt.Errorf("%d bytes are stored, not %d", n, e.StoredSize)}
	case got != e.StoredSHA256:
		return &snapshot.DamagedError{Object: object, Offset: -1, Err: fmt.Errorf("the stored bytes' SHA-256 is %s, not %s", got, e.StoredSHA256)}
	}
	return nil
}

// counter counts what is read, for the check and for who watches.
func (r *run) counter(c *report.Check, name string, total int64) io.Writer {
	return snapshot.CountBytes(func(n int64) {
		c.Bytes = n
		r.Progress("read "+name, n, total)
	})
}

// readAttachments reads the files that were stored with a snapshot, as they are stored: all
// bytes that were sealed are covered by that, and no secret is unpacked. The error is
// errPruned.
func (e *examination) readAttachments(ctx context.Context, c *report.Check, m *snapshot.Manifest) error {
	if m.Attachments == nil {
		return nil
	}
	c.Compared += "; the stored bytes, size and SHA-256 of its attachments with the manifest"
	read := c.Bytes
	err := e.readStored(ctx, c, m.ID, *m.Attachments)
	c.Bytes += read
	if e.prunedMeanwhile(ctx, m.Timeline, m.ID, err) {
		return errPruned
	}
	took(c, report.KindObject, m.Attachments.Name, err)
	return nil
}

// errPruned says that a backup was pruned since it was listed.
var errPruned = errors.New("it was pruned meanwhile")

// prunedMeanwhile reports whether an error is due to a backup that was pruned since
// its manifest was read: the manifest goes before the object. One whose manifest is
// still there has lost its object.
func (e *examination) prunedMeanwhile(ctx context.Context, t repository.TimelineID, id string, err error) bool {
	if !errors.Is(err, sinks.ErrNotFound) {
		return false
	}
	_, err = snapshot.ReadManifest(ctx, e.repo, t, id)
	return errors.Is(err, sinks.ErrNotFound)
}

// scratchCopy is a backup unpacked into a file, as etcdctl would have saved it:
// what looks at pages needs them in any order. It is written while the bytes are
// compared, so that they are fetched once.
type scratchCopy struct {
	file *os.File
	path string
	err  error         // of writing: it must not pass for damage of what was read
	took time.Duration // to read and write it
}

// fetched is the phase of a recovery that made it.
func (s *scratchCopy) fetched() report.Phase { return report.Phase{Name: "fetch", Took: s.took} }

// makeCopy makes the file for a backup; it is nil where there is no need of one, and
// where there is no room, which is an error.
func (e *examination) makeCopy(m *snapshot.Manifest) (*scratchCopy, error) {
	if !e.Level.Includes(report.Structure) {
		return nil, nil
	}
	if e.scratch == nil {
		s, err := walreplay.NewScratchFolder(e.ScratchDir)
		if err != nil {
			return nil, err
		}
		e.scratch = s
	}
	if err := e.scratch.Needs(m.Object.RawSize); err != nil {
		return nil, err
	}
	path := filepath.Join(e.scratch.Path(), m.ID+".db")
	f, err := safedir.Create(path)
	if err != nil {
		return nil, err
	}
	return &scratchCopy{file: f, path: path}, nil
}

// Write takes the database's next bytes.
func (s *scratchCopy) Write(p []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.file.Write(p)
	}
	return len(p), nil
}

// remove removes the file, if there is one.
func (s *scratchCopy) remove() error {
	if s == nil {
		return nil
	}
	err := s.file.Close()
	if rm := safedir.Remove(s.path); rm != nil && !errors.Is(rm, os.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

// checkStructure takes the database in a file up the structure level, with a
// manifest to compare it with where there is one. The result's hash is without a
// revision where it could not be computed.
func (r *run) checkStructure(ctx context.Context, name, path string, m *snapshot.Manifest) (structure.Result, error) {
	image, err := snapshot.OpenFile(path)
	return r.checkPages(ctx, name, image, err, m)
}

// checkPages is checkStructure of a file that was opened, or why it was not.
func (r *run) checkPages(ctx context.Context, name string, image *snapshot.File, openErr error, m *snapshot.Manifest) (result structure.Result, err error) {
	_, err = r.check(ctx, report.Structure, name, func(c *report.Check) error {
		if openErr != nil {
			took(c, report.KindPage, name, openErr)
			return nil //nolint:nilerr // the report has it
		}
		f, err := image.ReaderAt()
		if err != nil {
			took(c, report.KindPage, name, err)
			return nil
		}
		read, err := structure.Check(ctx, f, image.Size(), structure.Options{
			Manifest: m, Progress: func(done, total int64) { r.Progress("check the structure of "+name, done, total) },
		})
		if err := errors.Join(err, f.Close()); err != nil {
			unchecked(c, err)
			return nil
		}
		result = read
		c.Bytes, c.Findings, c.Compared = result.Bytes, result.Findings, strings.Join(result.Compared, "; ")
		for _, n := range result.Notes {
			r.note("%s: %s", name, n)
		}
		return nil
	})
	return result, err
}
