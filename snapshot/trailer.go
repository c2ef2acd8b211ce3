package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

// minPage is the smallest page that a bbolt database can have in practice, in
// bytes. A snapshot is whole pages and a SHA-256, which tells it from a bare
// database, as etcdutl does.
const minPage = 512

// HasTrailer tells from a file's size whether a SHA-256 follows the database.
func HasTrailer(size int64) bool { return size%minPage == sha256.Size }

// streamHash is the SHA-256 of an etcd snapshot stream, a database and the
// SHA-256 of it, and checks that trailer in the same pass.
type streamHash struct {
	hash.Hash
	// held are the last bytes seen, at most a sum's length: they are the
	// trailer if nothing follows, and part of the database otherwise.
	held     []byte
	total    int64
	database []byte // the database's sum, once Sum was called
}

func newStreamHash() *streamHash { return &streamHash{Hash: sha256.New()} }

// Write takes the next bytes of the stream.
func (h *streamHash) Write(p []byte) (int, error) {
	h.total += int64(len(p))
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
