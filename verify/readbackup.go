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

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// readBackup reads a stored snapshot whole, into unpacked where there is one. What
// cannot be decrypted is sealed: its stored bytes are compared, and that it is
// sealed is no fault of the backup. Gone tells that the backup was pruned since it
// was listed.
func (e *examination) readBackup(ctx context.Context, c *report.Check, m *snapshot.Manifest, unpacked *scratchCopy) (sealed error, gone bool) {
	err := e.readRaw(ctx, c, m, unpacked)
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
		return nil, true
	}
	took(c, report.KindObject, m.Object.Name, err)
	if e.readCompanions(ctx, c, m) {
		return nil, true
	}
	return sealed, false
}

// readRaw reads it through its codecs, which check the hashes of the stored and
// of the raw bytes.
func (e *examination) readRaw(ctx context.Context, c *report.Check, m *snapshot.Manifest, unpacked *scratchCopy) error {
	c.Compared = "the manifest with its own SHA-256 and place; the object's sizes and SHA-256, stored and raw, every frame of its codecs, and the SHA-256 that etcd sent behind the database, with the manifest and with each other"
	stored := snapshot.OpenStored(e.repo, m, e.Identities...)
	var sums snapshot.Sums
	r, err := stored.OpenSummed(ctx, &sums)
	if err != nil {
		return err
	}
	defer r.Close() // its end was seen, or an error is on its way
	to := []io.Writer{&counter{run: &e.run, check: c, phase: "read " + m.ID, total: stored.Size()}}
	if unpacked != nil {
		to = append(to, unpacked)
	}
	if _, err := io.Copy(io.MultiWriter(to...), r); err != nil {
		return err
	}
	c.Bytes = m.Object.StoredSize
	if unpacked != nil {
		unpacked.close(sums.Trailer)
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
	count := &counter{run: &e.run, check: c, phase: "read " + backup, total: o.StoredSize}
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
type counter struct {
	run         *run
	check       *report.Check
	phase       string
	done, total int64
}

func (w *counter) Write(p []byte) (int, error) {
	w.done += int64(len(p))
	w.check.Bytes = w.done
	w.run.Progress(w.phase, w.done, w.total)
	return len(p), nil
}
