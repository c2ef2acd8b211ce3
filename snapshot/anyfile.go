package snapshot

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/klauspost/compress/zstd"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/shell"
)

const (
	// beginBytes of a file show its kind. A database has its first meta page there, and
	// its second one unless its pages are larger than etcd's ever are.
	beginBytes = 64 << 10
	// tailBytes is more than bbolt allocates behind the pages of a database, 16 MiB.
	tailBytes = 64 << 20
	// zipDirectory bounds the directory of a zip, which is read into memory.
	zipDirectory = 1 << 20
	// zstdWindow bounds the memory for zstd: it is the window of zstd --ultra -22.
	zstdWindow = 128 << 20
)

// OpenAny is OpenFile for a file that a person names: it may also be compressed with gzip,
// zip (of one file) or zstd, and is then unpacked into a file without a name in dir, which
// Close removes; without dir in os.TempDir. The content decides, not the name. Progress gets the unpacked bytes, and
// about how many there will be.
func OpenAny(ctx context.Context, path, dir string, progress func(done, total int64)) (_ *File, err error) {
	dir = cmp.Or(dir, os.TempDir())
	packed, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, packed.Close()) }()
	begin, err := readBegin(packed)
	if err != nil {
		return nil, err
	}
	kind := kindOf(begin)
	if kind.open == nil {
		return OpenFile(path)
	}
	body, err := kind.open(packed, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	f := &File{path: path, unsynced: true}
	if f.unpacked, err = unpack(ctx, body, path, kind.what, dir, progress); err != nil {
		return nil, err
	}
	if err := f.measure(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// unpack writes a database, with or without its SHA-256, to a file without a name in dir.
// Its beginning says how long it may become: what is not a database is not unpacked.
func unpack(ctx context.Context, body io.Reader, path, what, dir string, progress func(done, total int64)) (_ *os.File, err error) {
	body = ReaderUntil(ctx, body)
	broken := func(err error) error {
		switch {
		case ctx.Err() != nil, errors.As(err, new(*fs.PathError)): // a disk's
			return fmt.Errorf("unpack %s: %w", path, err)
		case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return fmt.Errorf("%s is %s, with a window of more than %s: unpack it with zstd -d --long=31 %s, and name the result", path, what, humanize.IBytes(zstdWindow), shell.Quote(path))
		case errors.Is(err, io.ErrUnexpectedEOF):
			err = errors.New("it ends early: it was cut short")
		}
		return &DamagedError{Object: path, Offset: -1, Err: fmt.Errorf("it is %s and cannot be unpacked: %w", what, err)}
	}
	var begin bytes.Buffer
	if _, err := io.CopyN(&begin, body, beginBytes); err != nil && !errors.Is(err, io.EOF) {
		return nil, broken(err)
	}
	db, err := boltfile.Open(ctx, bytes.NewReader(begin.Bytes()), math.MaxInt64)
	if err != nil {
		if inner := kindOf(begin.Bytes()); inner.what != "" {
			return nil, fmt.Errorf("%s is %s, and its content is %s, not an etcd snapshot: unpack it, and name the snapshot", path, what, inner.what)
		}
		return nil, fmt.Errorf("%s is %s, and its content is not an etcd snapshot: %w: name another file", path, what, err)
	}
	free, known, err := safedir.Free(dir)
	if err != nil {
		return nil, err
	}
	if known && free < db.Size() {
		return nil, fmt.Errorf("%s is %s: %s are needed in %s to unpack it, %s are free: name a folder with more space with --scratch-dir", path, what, humanize.IBytes(uint64(db.Size())), dir, humanize.IBytes(uint64(free)))
	}
	most := min(db.Size(), math.MaxInt64-tailBytes) + tailBytes
	if known {
		most = min(most, free)
	}
	file, err := safedir.TemporaryIn(dir)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w: name another folder with --scratch-dir", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	to := io.MultiWriter(safedir.NewWriteback(file), CountBytes(func(n int64) { progress(n, db.Size()) }))
	n, err := io.Copy(to, io.LimitReader(io.MultiReader(&begin, body), most+1))
	switch {
	case err != nil:
		return nil, broken(err)
	case n > most:
		return nil, fmt.Errorf("%s is %s, and its content continues after %s, though its first page is that of a database of %s: it is not an etcd snapshot, or %s has no room for it", path, what, humanize.IBytes(uint64(most)), humanize.IBytes(uint64(db.Size())), dir)
	}
	return file, nil
}

// fileKind is what a file's first bytes show it to be: nothing where they show none that
// is known, which a database is as well.
type fileKind struct {
	what string
	next string // what to do; %s is the path
	open func(f *os.File, path string) (io.ReadCloser, error)
	// lost: whoever wrote it meant a snapshot, or what stood there was overwritten.
	lost bool
}

// kinds are recognised by their first bytes.
var kinds = []struct {
	begin string
	fileKind
}{
	{"\x1f\x8b", fileKind{what: "compressed with gzip", open: openGzip}},
	{"PK\x03\x04", fileKind{what: "a zip archive", open: openZip}},
	{"\x28\xb5\x2f\xfd", fileKind{what: "compressed with zstd", open: openZstd}},
	{"PK\x05\x06", fileKind{what: "a zip archive without a file", next: "name another file"}},
	{"\xfd7zXZ\x00", fileKind{what: "compressed with xz", next: "unpack it with xz -dk %s, and name the result"}},
	{"BZh", fileKind{what: "compressed with bzip2", next: "unpack it with bzip2 -dk %s, and name the result"}},
	{"\x04\x22\x4d\x18", fileKind{what: "compressed with lz4", next: "unpack it with lz4 -dk %s, and name the result"}},
	{"7z\xbc\xaf\x27\x1c", fileKind{what: "a 7z archive", next: "unpack it with 7z x %s, and name the snapshot in it"}},
	{"Salted__", fileKind{what: "encrypted with openssl", next: "decrypt it, and name the result"}},
	{"age-encryption.org/", fileKind{what: "encrypted with age, as objects of a repository may be", next: "restore it with --repo, or decrypt it with age -d -i IDENTITY %s, and name the result"}},
}

// kindOf recognises a file that is no database by its first bytes.
func kindOf(begin []byte) fileKind {
	for _, k := range kinds {
		if bytes.HasPrefix(begin, []byte(k.begin)) {
			return k.fileKind
		}
	}
	text := strings.TrimSpace(string(begin))
	switch {
	case len(begin) > 3 && begin[0]>>4 == 5 && string(begin[1:4]) == "\x2a\x4d\x18": // a frame to be skipped
		return fileKind{what: "compressed with zstd", open: openZstd}
	case len(begin) > 262 && string(begin[257:262]) == "ustar":
		return fileKind{what: "a tar archive", next: "unpack it with tar -xf %s, and name the snapshot in it"}
	case len(begin) > 12 && begin[0] > 0 && string(begin[8:11]) == "\x08\x04\x10": // the CRC record that begins each segment
		return fileKind{what: "a part of a member's WAL", next: "restore the whole data directory with --from-data-dir"}
	case text == "" || !isText(begin):
		return fileKind{}
	case strings.HasPrefix(text, `{"format":`), strings.HasPrefix(text, "{") && strings.Contains(text, `"sha256"`):
		return fileKind{what: "a document of a requorum repository or plan", next: "restore the repository with --repo, a plan with --plan"}
	case text[0] == '{', text[0] == '[':
		return fileKind{what: "JSON", next: "use another snapshot", lost: true}
	}
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > 80 {
		line = strings.ToValidUTF8(line[:80], "") + "…"
	}
	return fileKind{what: fmt.Sprintf("text, which begins with %q", line), next: "use another snapshot", lost: true}
}

// isText reports whether bytes are UTF-8 without control characters. The last character
// may be cut.
func isText(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 && len(b) >= utf8.UTFMax || r < ' ' && !strings.ContainsRune("\t\r\n\f", r) {
			return false
		}
		b = b[n:]
	}
	return true
}

// refuseOther refuses a file that is something else than a database.
func refuseOther(path string, begin []byte) error {
	kind := kindOf(begin)
	switch {
	case kind.what == "":
		return nil
	case kind.lost:
		return &DamagedError{Object: path, Offset: -1, Err: fmt.Errorf("it is %s, not an etcd snapshot: %s", kind.what, kind.next)}
	case kind.open != nil:
		return fmt.Errorf("%s is %s: only a file that --file or --from-file names is unpacked", path, kind.what)
	}
	next := kind.next
	if strings.Contains(next, "%s") {
		next = fmt.Sprintf(next, shell.Quote(path))
	}
	return fmt.Errorf("%s is %s, not an etcd snapshot: %s", path, kind.what, next)
}

func openRegular(path string) (*os.File, error) {
	info, err := safedir.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: want a snapshot file or a member's db file", path)
	}
	return safedir.Open(path)
}

func readBegin(file io.ReaderAt) ([]byte, error) {
	begin := make([]byte, beginBytes)
	n, err := file.ReadAt(begin, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return begin[:n], err
}

func openGzip(f *os.File, path string) (io.ReadCloser, error) {
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, &DamagedError{Object: path, Offset: -1, Err: fmt.Errorf("it begins as gzip does: %w", err)}
	}
	return r, nil
}

func openZstd(f *os.File, _ string) (io.ReadCloser, error) {
	r, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return nil, err
	}
	return r.IOReadCloser(), nil
}

// openZip opens the one file that a zip holds.
func openZip(f *os.File, path string) (io.ReadCloser, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	bounded := &boundedReaderAt{f, zipDirectory}
	z, err := zip.NewReader(bounded, info.Size())
	switch {
	case errors.Is(err, errBound):
		return nil, fmt.Errorf("%s is a zip archive of very many files: unpack it with unzip %s, and name the snapshot in it", path, shell.Quote(path))
	case err != nil:
		return nil, &DamagedError{Object: path, Offset: -1, Err: fmt.Errorf("it begins as a zip archive does, and its end is not one's: it was cut short, or something was added: %w", err)}
	}
	bounded.left = math.MaxInt64
	var files []*zip.File
	for _, f := range z.File {
		if !f.FileInfo().IsDir() {
			files = append(files, f)
		}
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("%s is a zip archive of %d files: unpack it with unzip %s, and name the snapshot in it", path, len(files), shell.Quote(path))
	}
	const encrypted = 1
	r, err := files[0].Open()
	if files[0].Flags&encrypted != 0 || errors.Is(err, zip.ErrAlgorithm) {
		return nil, fmt.Errorf("%s is a zip archive that is encrypted, or compressed in a way that is not known here: unpack it with unzip %s, and name the result", path, shell.Quote(path))
	}
	if err != nil {
		return nil, &DamagedError{Object: path, Offset: -1, Err: err}
	}
	return r, nil
}

var errBound = errors.New("read more than was allowed")

// boundedReaderAt fails after so many bytes.
type boundedReaderAt struct {
	io.ReaderAt
	left int64
}

// ReadAt reads, unless that is too much.
func (b *boundedReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errBound
	}
	return b.ReaderAt.ReadAt(p, off)
}
