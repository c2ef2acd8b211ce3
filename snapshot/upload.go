package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
)

// cleanupTime bounds the removal of objects that turned out not to do, after
// the backup's own context may have ended.
const cleanupTime = 30 * time.Second

// upload is the stored object of one backup on its way.
type upload struct {
	codec  *codec.Writer
	hash   *streamHash
	object sinks.Writer
	name   string // of the object
	sum    string // of the database, once the stream was whole
}

// startUpload starts the object in the repository.
func (t *taking) startUpload(ctx context.Context, id string) (*upload, error) {
	attempt, err := t.freeAttempt(ctx, id)
	if err != nil {
		return nil, err
	}
	u := &upload{hash: newStreamHash(), name: repository.SnapshotName(t.timeline.ID, id, attempt, len(t.Codec.Recipients) > 0)}
	if u.object, err = t.Sink.Create(ctx, u.name, sinks.CreateOptions{Lock: repository.Locked(u.name)}); err != nil {
		return nil, err
	}
	opts := t.Codec
	opts.RawHash = u.hash
	if u.codec, err = codec.NewWriter(ctx, u.object, opts); err != nil {
		return nil, errors.Join(err, u.object.Abort())
	}
	return u, nil
}

// close ends the stored bytes and checks the stream's trailer.
func (u *upload) close() error {
	if err := u.codec.Close(); err != nil {
		return err
	}
	sum, err := u.hash.Check()
	if err != nil {
		return &memberError{err}
	}
	u.sum = sum
	return nil
}

// identity opens what was stored, where it is encrypted.
func (u *upload) identity() []age.Identity {
	if k := u.codec.FileKeyIdentity(); k != nil {
		return []age.Identity{k}
	}
	return nil
}

// abort leaves nothing. After commit it does nothing.
func (u *upload) abort() {
	u.codec.Abort()
	// What Abort could not clear away is unreachable without a manifest, and
	// the error that led here is the one to report.
	u.object.Abort() //nolint:errcheck // see above
}

// removeObject removes an object that has no manifest. One that is locked
// already stays, which harms nothing: without a manifest it is no backup.
func (t *taking) removeObject(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	err := t.Sink.Delete(ctx, name)
	if errors.Is(err, sinks.ErrLocked) || errors.Is(err, sinks.ErrDenied) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s in %s, which belongs to no backup: %w", name, t.Sink, err)
	}
	return nil
}

// stream reads a member's snapshot into the upload, to its end.
func (t *taking) stream(ctx context.Context, member client.MemberStatus, up *upload) error {
	s, err := t.Client.Stream(ctx, member)
	if err != nil {
		return &memberError{err}
	}
	defer s.Close() //nolint:errcheck // reading; its end was seen or an error is on its way
	var done int64
	for {
		chunk, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return &memberError{err}
		}
		if _, err := up.codec.Write(chunk); err != nil {
			return err
		}
		done += int64(len(chunk))
		t.Progress(Progress{Phase: "stream", Done: done, Total: done + s.Remaining()})
	}
	t.Progress(Progress{Phase: "store"})
	return up.close()
}

// bodyReader reads the first bytes of a stream, a database, and lets its end
// decide: io.EOF comes only when the stream had them all and end, which looks
// at what follows, returned nil.
type bodyReader struct {
	src  io.Reader
	left int64
	end  func() error
	err  error
}

func (r *bodyReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.left == 0 {
		if r.err = r.end(); r.err == nil {
			r.err = io.EOF
		}
		return 0, r.err
	}
	n, err := r.src.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	if err == io.EOF && r.left > 0 {
		err = fmt.Errorf("%d bytes are missing at the end: %w", r.left, io.ErrUnexpectedEOF)
	}
	if err != nil && err != io.EOF {
		r.err = err
		return n, err
	}
	return n, nil
}

// minPage is the smallest page that a bbolt database can have in practice, in
// bytes. A snapshot is whole pages and a SHA-256, which distinguishes it from a bare
// database, as etcdutl does.
const minPage = 512

// HasTrailer reports from a file's size whether a SHA-256 follows the database.
func HasTrailer(size int64) bool { return size%minPage == sha256.Size }

// streamHash is the SHA-256 of an etcd snapshot stream, a database and the
// SHA-256 of it, and checks that trailer in the same pass.
type streamHash struct {
	hash.Hash
	// held are the last bytes seen, at most a sum's length: they are the
	// trailer if nothing follows, and part of the database otherwise.
	held  []byte
	total int64
	// hashed says that the database goes through Hash where it is read, and not by Write:
	// where its sum is not sent along, it is to be known before the last bytes are written.
	hashed   bool
	database []byte // the database's sum, once Sum was called
}

func newStreamHash() *streamHash { return &streamHash{Hash: sha256.New()} }

// Write takes the next bytes of the stream.
func (h *streamHash) Write(p []byte) (int, error) {
	h.total += int64(len(p))
	if h.hashed {
		h.held = append(h.held, p[max(0, len(p)-sha256.Size):]...)
		h.held = h.held[max(0, len(h.held)-sha256.Size):]
		return len(p), nil
	}
	if keep := len(p) - sha256.Size; keep >= 0 {
		h.Hash.Write(h.held)
		h.Hash.Write(p[:keep])
		h.held = append(h.held[:0], p[keep:]...)
		return len(p), nil
	}
	h.held = append(h.held, p...)
	if over := len(h.held) - sha256.Size; over > 0 {
		h.Hash.Write(h.held[:over])
		h.held = append(h.held[:0], h.held[over:]...)
	}
	return len(p), nil
}

// Sum ends the stream and appends the sum of all its bytes to b.
func (h *streamHash) Sum(b []byte) []byte {
	if h.database == nil {
		h.database = h.Hash.Sum(nil)
		h.Hash.Write(h.held)
	}
	return h.Hash.Sum(b)
}

// Check compares the trailer, after Sum, and returns the database's sum in
// hexadecimal.
func (h *streamHash) Check() (string, error) {
	if !HasTrailer(h.total) || h.total < 2*minPage+sha256.Size {
		return "", fmt.Errorf("%w: %d bytes are not a database and its SHA-256", errShortStream, h.total)
	}
	if string(h.database) != string(h.held) {
		return "", fmt.Errorf("the stream ends with the SHA-256 %x, its content has %x: bytes were lost or altered between the member and here", h.held, h.database)
	}
	return hex.EncodeToString(h.database), nil
}

var errShortStream = fmt.Errorf("the stream ended early: %w", io.ErrUnexpectedEOF)

// databaseSize is a database's size without the trailer that may follow.
func databaseSize(size int64) (int64, error) {
	switch {
	case size <= 2*minPage:
		return 0, errors.New("too small to be an etcd database")
	case HasTrailer(size):
		return size - sha256.Size, nil
	case size%minPage == 0:
		return size, nil
	}
	return 0, fmt.Errorf("%d bytes are neither whole pages nor whole pages and a SHA-256: the file was cut short, or is no etcd snapshot", size)
}
