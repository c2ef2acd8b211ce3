package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
)

// Stored is a full snapshot in a repository. It is an Image.
type Stored struct {
	repo       *repository.Repository
	manifest   *Manifest
	identities []age.Identity
}

// OpenStored gives access to the snapshot that a manifest describes, with the
// identities that an encrypted one needs. It reads nothing yet.
func OpenStored(repo *repository.Repository, m *Manifest, identities ...age.Identity) *Stored {
	return &Stored{repo, m, identities}
}

// Name is the backup's ID and its repository.
func (s *Stored) Name() string { return s.manifest.ID + " in " + s.repo.String() }

// Size is the database's size in bytes.
func (s *Stored) Size() int64 {
	n, err := databaseSize(s.manifest.Object.RawSize)
	if err != nil {
		return s.manifest.Object.RawSize
	}
	return n
}

// DatabaseSHA256 is the sum over the database, in hexadecimal.
func (s *Stored) DatabaseSHA256() string { return s.manifest.DatabaseSHA256 }

// Manifest describes the snapshot.
func (s *Stored) Manifest() *Manifest { return s.manifest }

// Facts are the manifest's, which were read out of the stored bytes.
func (s *Stored) Facts(context.Context) (Facts, error) { return s.manifest.Facts, nil }

// Open reads the database. Every check there is happens on the way: the hashes
// and sizes of the stored and of the raw bytes, and the SHA-256 that etcd put
// at the stream's end.
func (s *Stored) Open(ctx context.Context) (io.ReadCloser, error) {
	return s.OpenSummed(ctx, &Sums{})
}

// Sums are of a database as it was read.
type Sums struct {
	Database [sha256.Size]byte // the SHA-256 of the database
	Trailer  []byte            // what follows it: the SHA-256 that etcd sent
}

// OpenSummed is Open, and fills in the sums before it returns io.EOF.
func (s *Stored) OpenSummed(ctx context.Context, sums *Sums) (io.ReadCloser, error) {
	name := s.manifest.Object.Name
	stored, err := s.repo.Sink().Open(ctx, name, 0, -1)
	if err != nil {
		return nil, s.damage(err)
	}
	prefix := &codec.Prefix{Size: s.Size()}
	raw, err := codec.NewPrefixReader(ctx, stored, s.manifest.Object.Encoding, prefix, s.identities...)
	if err != nil {
		return nil, errors.Join(s.damage(err), stored.Close())
	}
	// The raw hash covers the trailer, which was compared when it came.
	body := &bodyReader{src: raw, left: s.Size(), end: func() error {
		trailer, err := io.ReadAll(raw) // then codec's own checks
		if err == nil {
			sums.Database, sums.Trailer = prefix.SHA256, trailer
		}
		return err
	}}
	return &storedReader{stored: stored, raw: raw, body: body, owner: s}, nil
}

// ReaderAt reads ranges of the raw bytes, without the checks of Open: what it
// reads is checked frame by frame only. It stays open until ctx ends.
func (s *Stored) ReaderAt(ctx context.Context) (io.ReaderAt, error) {
	object := &objectReaderAt{ctx, s.repo.Sink(), s.manifest.Object.Name}
	r, err := codec.OpenAt(object, s.manifest.Object.StoredSize, s.manifest.Object.Encoding, s.identities...)
	if err != nil {
		return nil, s.damage(err)
	}
	return r, nil
}

// damage turns what codec or the sink say of the object into a *DamagedError,
// where it means that the object is not what was stored.
func (s *Stored) damage(err error) error {
	var corrupt *codec.CorruptError
	object := s.manifest.Object.Name + " in " + s.repo.String()
	switch {
	case errors.As(err, &corrupt):
		return &DamagedError{Object: object, Offset: corrupt.Offset, Err: corrupt.Err}
	case errors.Is(err, sinks.ErrNotFound):
		return &DamagedError{Object: object, Offset: -1, Err: err}
	}
	return err
}

// storedReader reads the database out of a stored snapshot.
type storedReader struct {
	stored, raw io.ReadCloser
	body        io.Reader
	owner       *Stored
}

func (r *storedReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if err != nil && err != io.EOF {
		err = r.owner.damage(err)
	}
	return n, err
}

// Close ends the reading.
func (r *storedReader) Close() error { return errors.Join(r.raw.Close(), r.stored.Close()) }

// objectReaderAt reads ranges of an object.
type objectReaderAt struct {
	ctx  context.Context // io.ReaderAt has no room for one
	sink sinks.Sink
	name string
}

// ReadAt reads one range.
func (o *objectReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r, err := o.sink.Open(o.ctx, o.name, off, int64(len(p)))
	if err != nil {
		return 0, fmt.Errorf("read %d bytes at %d: %w", len(p), off, err)
	}
	n, err := io.ReadFull(r, p)
	closeErr := r.Close()
	switch err {
	case nil:
		return n, closeErr
	case io.EOF, io.ErrUnexpectedEOF:
		return n, io.EOF // io.ReaderAt's word for an object that ends here
	}
	return n, err
}
