package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/shell"
)

// Image is a database image to restore from: a stored full snapshot, a file
// of `etcdctl snapshot save`, or a member's bare db file.
type Image interface {
	// Name is how messages call it: an ID with its repository, or a path.
	Name() string

	// Size is the database's size in bytes, without a trailing SHA-256.
	Size() int64

	// Open reads the database from its first byte to its last, in order,
	// without a trailing SHA-256. Every check that the image allows (hashes of
	// the raw and the stored bytes, sizes, the stream's own trailer) is done on
	// the way: io.EOF is returned only after all of them passed, a
	// *DamagedError otherwise. The reading ends when ctx does. The caller closes the
	// reader, and must not use what it read before io.EOF came.
	Open(ctx context.Context) (io.ReadCloser, error)

	// Facts is what is known about the content: from the manifest of a stored
	// snapshot, from the file's own pages otherwise.
	Facts(ctx context.Context) (Facts, error)
}

// Facts are what a database's own bytes say of it.
type Facts struct {
	// Revision is the highest revision in the key bucket (or the compacted
	// one where that is higher), as HashKV and Status report it.
	Revision int64 `json:"revision"`
	// CompactedRevision is the last compaction that was scheduled, 0 if none.
	CompactedRevision int64 `json:"compacted_revision"`
	// RaftIndex is consistent_index: the last raft entry the image holds.
	RaftIndex uint64 `json:"raft_index"`
	// RaftTerm is that entry's term; 0 before the first entry.
	RaftTerm uint64 `json:"raft_term"`
	// StorageVersion is "3.6.0" and so on; empty before 3.6.
	StorageVersion string `json:"storage_version,omitempty"`
	// ClusterVersion is what the members had agreed on, such as "3.6.0".
	ClusterVersion string `json:"cluster_version,omitempty"`
	// PageSize of the database in bytes, from its meta page.
	PageSize int `json:"page_size"`
	// Members are the voters and learners as the image has them, by ID.
	Members []Member `json:"members"`
	// Alarms that are raised in the image, such as "NOSPACE" with its member.
	Alarms []Alarm `json:"alarms,omitempty"`
	// DamagedMeta is what is wrong with one of the two meta pages, of which one is enough;
	// empty if both are sound.
	DamagedMeta string `json:"-"`
	// AuthEnabled reports whether users and roles are enforced.
	AuthEnabled bool `json:"auth_enabled"`
}

// Member is one member of the cluster that an image was taken from.
type Member struct {
	ID         ID       `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peer_urls"`
	ClientURLs []string `json:"client_urls,omitempty"`
	IsLearner  bool     `json:"is_learner,omitempty"`
}

// Alarm is an alarm raised in an image.
type Alarm struct {
	MemberID ID     `json:"member_id"`
	Type     string `json:"type"` // NOSPACE, CORRUPT
}

// DamagedError says that stored bytes are not what they were when the backup
// was taken. The command line ends with exit code 3 on it.
type DamagedError struct {
	Object string // the object or file
	Offset int64  // where in it, in bytes; -1 when the whole is meant
	Err    error  // what is wrong
}

func (e *DamagedError) Error() string {
	if errors.Is(e.Err, repository.ErrUnsigned) || errors.As(e.Err, new(*PlainError)) {
		return e.Err.Error() // it names the object, and is no damage
	}
	if e.Offset < 0 {
		return fmt.Sprintf("%s is damaged: %v", e.Object, e.Err)
	}
	return fmt.Sprintf("%s is damaged at byte %d: %v", e.Object, e.Offset, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// IsDamaged reports whether an error is about one object's bytes, so that another object
// may do instead.
func IsDamaged(err error) bool { return errors.As(err, new(*DamagedError)) }

// Probe opens an image and reads its first byte: what is gone, and identities that do
// not fit, show that way.
func Probe(ctx context.Context, image Image) error {
	r, err := image.Open(ctx)
	if err == nil {
		_, err = io.CopyN(io.Discard, r, 1)
		err = errors.Join(err, r.Close())
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", image.Name(), err)
	}
	return nil
}

// File is a database image in a file: what `etcdctl snapshot save` wrote, with
// its SHA-256 at the end, or a bare db file out of a stopped member's data
// directory, without. It is an Image.
type File struct {
	path    string
	size    int64  // of the database
	trailer []byte // the SHA-256 behind it; nil where there is none
	// unsynced: its pages may be in memory only, and on their way to the disk.
	unsynced bool
	unpacked *os.File // in place of the file at path, which is compressed
}

// OpenUnsynced is OpenFile of a file that somebody has just written, and not synced. What
// the file system could not write to the disk since may read as zeros, or as it was
// before: then the methods fail at the end of what they read.
func OpenUnsynced(path string) (*File, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	f.unsynced = true
	return f, nil
}

// written fails where something of the file could not be written to the disk.
func (f *File) written(file *os.File) error {
	if !f.unsynced {
		return nil
	}
	if err := safedir.WrittenBack(file); err != nil {
		return fmt.Errorf("the file system lost what was written: %w: look at its disk, then run again", err)
	}
	return nil
}

// OpenFile looks at the file's size, which reports whether a SHA-256 follows the
// database, and reads that sum. Neither it nor the methods change the file. A file that is
// something else, such as an archive, is an error that names what it is.
func OpenFile(path string) (*File, error) {
	f := &File{path: path}
	if err := f.measure(); err != nil {
		return nil, err
	}
	return f, nil
}

// measure finds where the database ends, and its trailer.
func (f *File) measure() error {
	file, size, err := f.open()
	if err != nil {
		return err
	}
	f.size, f.trailer, err = measure(f.path, file, size)
	return errors.Join(err, file.Close())
}

func measure(path string, r io.ReaderAt, size int64) (database int64, trailer []byte, err error) {
	begin, err := readBegin(r)
	if err != nil {
		return 0, nil, err
	}
	if err := refuseOther(path, begin); err != nil {
		return 0, nil, err
	}
	if database, err = databaseSize(size); err != nil {
		return 0, nil, &DamagedError{Object: path, Offset: -1, Err: explainSize(path, begin, size, err)}
	}
	if HasTrailer(size) {
		trailer = make([]byte, sha256.Size)
		_, err = r.ReadAt(trailer, database)
	}
	return database, trailer, err
}

// explainSize says of a file whose size no snapshot has what its first page shows.
func explainSize(path string, begin []byte, size int64, err error) error {
	db, openErr := boltfile.Open(context.Background(), bytes.NewReader(begin), math.MaxInt64)
	switch {
	case size == 0:
		return errors.New("it is empty: the snapshot was not written, or its disk was full: use another one")
	case openErr != nil:
		return err
	case size < db.Size():
		return fmt.Errorf("it was cut short: its database has %d bytes, the file %d: use another snapshot", db.Size(), size)
	case size < db.Size()+sha256.Size:
		return fmt.Errorf("the SHA-256 behind its database of %d bytes was cut short: head -c %d %s >NEW makes a file without one, whose structure is checked instead", db.Size(), db.Size(), shell.Quote(path))
	}
	whole := db.Size() + sha256.Size
	return fmt.Errorf("it is longer than its database with a SHA-256, %d bytes: head -c %d %s >NEW makes a file without what was added, and its SHA-256 shows whether it is whole", whole, whole, shell.Quote(path))
}

// open opens the database's file, or what it was unpacked to, from its first byte.
func (f *File) open() (*openFile, int64, error) {
	if f.unpacked != nil {
		info, err := f.unpacked.Stat()
		if err != nil {
			return nil, 0, err
		}
		return &openFile{io.NewSectionReader(f.unpacked, 0, info.Size()), f.unpacked, true}, info.Size(), nil
	}
	file, err := openRegular(f.path)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return &openFile{io.NewSectionReader(file, 0, info.Size()), file, false}, info.Size(), nil
}

// openFile is an open file of a database.
type openFile struct {
	*io.SectionReader
	file *os.File
	keep bool // open: it has no name any more
}

// Close closes the file.
func (o *openFile) Close() error {
	if o.keep {
		return nil
	}
	return o.file.Close()
}

// Close removes what the file was unpacked to.
func (f *File) Close() error {
	if f.unpacked == nil {
		return nil
	}
	return f.unpacked.Close()
}

// ReaderAt reads the database, without a trailer, in any order. The caller closes it.
func (f *File) ReaderAt() (interface {
	io.ReaderAt
	io.Closer
}, error) {
	file, _, err := f.open()
	return file, err
}

// Name is the path.
func (f *File) Name() string { return f.path }

// Size is the database's size in bytes.
func (f *File) Size() int64 { return f.size }

// HasHash reports whether the file ends with a SHA-256, so that damage is found.
// A bare db file has none.
func (f *File) HasHash() bool { return f.trailer != nil }

// CheckHash compares that sum with the database. It does nothing for a bare db file.
func (f *File) CheckHash(ctx context.Context) error {
	if !f.HasHash() {
		return nil
	}
	r, err := f.Open(ctx)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}

// DatabaseSHA256 is that sum in hexadecimal, empty where there is none.
func (f *File) DatabaseSHA256() string { return hex.EncodeToString(f.trailer) }

// Facts are read out of the file's pages.
func (f *File) Facts(ctx context.Context) (facts Facts, err error) {
	err = f.read(func(r io.ReaderAt) error {
		facts, err = ReadFacts(ctx, r, f.size)
		return err
	})
	return facts, err
}

// HashKV is ReadHashKVAt of the file.
func (f *File) HashKV(ctx context.Context, revision int64) (hash HashKV, err error) {
	err = f.read(func(r io.ReaderAt) error {
		hash, err = ReadHashKVAt(ctx, r, f.size, revision)
		return err
	})
	return hash, err
}

func (f *File) read(do func(io.ReaderAt) error) error {
	file, _, err := f.open()
	if err != nil {
		return err
	}
	if err := errors.Join(do(file), f.written(file.file), file.Close()); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

// Open reads the database, and compares the SHA-256 behind it where there is
// one.
func (f *File) Open(ctx context.Context) (io.ReadCloser, error) {
	file, _, err := f.open()
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	src := ReaderUntil(ctx, file)
	if f.HasHash() {
		src = io.TeeReader(src, sum)
	}
	body := &bodyReader{src: src, left: f.size, end: func() error {
		rest, err := io.ReadAll(io.LimitReader(file, sha256.Size+1))
		if err = errors.Join(err, f.written(file.file)); err != nil {
			return err
		}
		if !f.HasHash() && len(rest) == 0 || f.HasHash() && bytes.Equal(rest, sum.Sum(nil)) {
			return nil
		}
		return &DamagedError{Object: f.path, Offset: -1, Err: errors.New("its content does not match the SHA-256 at its end")}
	}}
	return struct {
		io.Reader
		io.Closer
	}{body, file}, nil
}

// ReaderUntil returns r, which ends when ctx does.
func ReaderUntil(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context // io.Reader has no room for one
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// Preview is an image that is still to be rebuilt, as far as it is known: for a plan that
// is only shown. It cannot be read.
type Preview struct {
	Title string
	Bytes int64 // about
	Known Facts
}

// Name is its title.
func (p Preview) Name() string { return p.Title }

// Size is about what it will have.
func (p Preview) Size() int64 { return p.Bytes }

// Facts are those that are known.
func (p Preview) Facts(context.Context) (Facts, error) { return p.Known, nil }

// HasHash leaves it to the rebuilt image to say that something has none.
func (p Preview) HasHash() bool { return true }

// Open always fails.
func (p Preview) Open(context.Context) (io.ReadCloser, error) {
	return nil, fmt.Errorf("%s was not rebuilt: this is only a preview", p.Title)
}
