package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

// File is a database image in a file: what `etcdctl snapshot save` wrote, with
// its SHA-256 at the end, or a bare db file out of a stopped member's data
// directory, without. It is an Image.
type File struct {
	path    string
	size    int64  // of the database
	trailer []byte // the SHA-256 behind it; nil where there is none
}

// OpenFile looks at the file's size, which tells whether a SHA-256 follows the
// database, and reads that sum. Neither it nor the methods change the file.
func OpenFile(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file: want a snapshot file or a member's db file", path)
	}
	size, err := databaseSize(info.Size())
	if err != nil {
		return nil, &DamagedError{Object: path, Offset: -1, Err: err}
	}
	f := &File{path: path, size: size}
	if HasTrailer(info.Size()) {
		if f.trailer, err = readTrailer(path, size); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func readTrailer(path string, offset int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	sum := make([]byte, sha256.Size)
	_, err = file.ReadAt(sum, offset)
	return sum, errors.Join(err, file.Close())
}

// Name is the path.
func (f *File) Name() string { return f.path }

// Size is the database's size in bytes.
func (f *File) Size() int64 { return f.size }

// HasHash tells whether the file ends with a SHA-256, so that damage is found.
// A bare db file has none.
func (f *File) HasHash() bool { return f.trailer != nil }

// DatabaseSHA256 is that sum in hexadecimal, empty where there is none.
func (f *File) DatabaseSHA256() string { return hex.EncodeToString(f.trailer) }

// Facts are read out of the file's pages.
func (f *File) Facts(ctx context.Context) (Facts, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return Facts{}, err
	}
	facts, err := ReadFacts(ctx, file, f.size)
	if err := errors.Join(err, file.Close()); err != nil {
		return Facts{}, fmt.Errorf("%s: %w", f.path, err)
	}
	return facts, nil
}

// Open reads the database, and compares the SHA-256 behind it where there is
// one.
func (f *File) Open(context.Context) (io.ReadCloser, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	var src io.Reader = file
	if f.HasHash() {
		src = io.TeeReader(file, sum)
	}
	body := &bodyReader{src: src, left: f.size, end: func() error {
		rest, err := io.ReadAll(io.LimitReader(file, sha256.Size+1))
		if err != nil {
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
