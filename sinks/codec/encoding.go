// Package codec is the stored form of a large object: raw bytes, cut into
// independent zstd frames with a seek table at the end, and encrypted with age
// where recipients are given.
//
// It promises:
//
//  1. Standard tools read it. `zstd -d` (after `age -d` when encrypted) gives
//     the raw bytes back; the seek table is a skippable frame of the zstd
//     seekable format, which any zstd passes over.
//  2. Nothing altered goes unnoticed. A sequential reader returns io.EOF only
//     after the stored bytes, all of them, and the raw bytes had the sizes and
//     SHA-256 sums of the Encoding, and the seek table was the one that the
//     frames give. A ReaderAt returns raw bytes only from frames whose checksum
//     is the table's.
//  3. Memory is bounded by the frame size and the number of workers, whatever
//     the object holds and however hostile it is.
//  4. Secrets stay out of errors and of Encoding.
//
// and is owed in return: the Encoding that the Writer gave, kept beside the
// object, because an object is read by its own description and never by the
// configuration of the day.
package codec

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Codecs, in Encoding.Codecs, in the order in which they were applied.
const (
	Zstd = "zstd-seekable"
	Age  = "age"
)

const (
	// MaxFrameSize bounds, with maxReading, the memory that reading an object takes.
	MaxFrameSize = 4 << 20
	minFrameSize = 1 << 10
	// maxFrames bounds the seek table: 3 MiB of it, for 256 GiB of raw bytes at the
	// default frame size.
	maxFrames = 1 << 18
	// minFrame is what a frame that is not empty takes at least when it is compressed.
	minFrame = 10
	// maxHeaderSize is above what age accepts as a header, with the nonce.
	maxHeaderSize = 2<<20 + 64
)

// Encoding describes a stored object: what it takes to read it, and what to
// hold it against. It holds no secrets.
type Encoding struct {
	Codecs    []string `json:"codecs"`
	Level     Level    `json:"level"`
	FrameSize int      `json:"frame_size"` // raw bytes in each frame but the last
	Frames    int      `json:"frames"`

	RawSize      int64  `json:"raw_size"`
	RawSHA256    string `json:"raw_sha256"` // in hex
	StoredSize   int64  `json:"stored_size"`
	StoredSHA256 string `json:"stored_sha256"` // in hex

	// Recipients are the public keys that the object is encrypted to.
	Recipients []string `json:"recipients,omitempty"`
	// HeaderSize and HeaderSHA256 are of the stored bytes before the encrypted
	// payload: age's header and nonce. They distinguish a damaged header from a wrong
	// identity, which age itself cannot.
	HeaderSize   int    `json:"header_size,omitempty"`
	HeaderSHA256 string `json:"header_sha256,omitempty"`
}

// Encrypted reports whether an identity is needed to read the object.
func (e Encoding) Encrypted() bool { return slices.Contains(e.Codecs, Age) }

// Validate refuses an Encoding that no Writer gives, so that readers can rely
// on its bounds.
func (e Encoding) Validate() error {
	if len(e.Codecs) == 0 || e.Codecs[0] != Zstd || len(e.Codecs) > 2 || len(e.Codecs) == 2 && e.Codecs[1] != Age {
		return fmt.Errorf("codecs %q are unknown: a newer version of requorum may know them", e.Codecs)
	}
	if e.FrameSize < minFrameSize || e.FrameSize > MaxFrameSize {
		return fmt.Errorf("frame size %d is not within %d and %d", e.FrameSize, minFrameSize, MaxFrameSize)
	}
	if e.Frames < 0 || e.Frames > maxFrames {
		return fmt.Errorf("number of frames %d is not within 0 and %d", e.Frames, maxFrames)
	}
	if frames := (e.RawSize + int64(e.FrameSize) - 1) / int64(e.FrameSize); e.RawSize < 0 || frames != int64(e.Frames) {
		return fmt.Errorf("%d frames of %d bytes do not hold %d bytes", e.Frames, e.FrameSize, e.RawSize)
	}
	if e.HeaderSize < 0 || e.StoredSize < int64(e.HeaderSize)+minFrame*int64(e.Frames)+e.tableSize() {
		return fmt.Errorf("stored size %d is too small", e.StoredSize)
	}
	for name, sum := range map[string]string{"raw": e.RawSHA256, "stored": e.StoredSHA256} {
		if err := validSum(sum); err != nil {
			return fmt.Errorf("%s SHA-256: %w", name, err)
		}
	}
	if !e.Encrypted() {
		if e.HeaderSize != 0 {
			return errors.New("a header of an encryption that is not there")
		}
		return nil
	}
	if e.HeaderSize < 1 || e.HeaderSize > maxHeaderSize {
		return fmt.Errorf("header size %d is not within 1 and %d", e.HeaderSize, maxHeaderSize)
	}
	if err := validSum(e.HeaderSHA256); err != nil {
		return fmt.Errorf("header SHA-256: %w", err)
	}
	return nil
}

// rawFrameSize is the number of raw bytes in frame i.
func (e Encoding) rawFrameSize(i int) int {
	return int(min(int64(e.FrameSize), e.RawSize-int64(i)*int64(e.FrameSize)))
}

// storedOffset is where a byte of the compressed stream lies in the stored
// object.
func (e Encoding) storedOffset(compressed int64) int64 {
	if !e.Encrypted() {
		return compressed
	}
	return int64(e.HeaderSize) + compressed + compressed/agePlainChunk*ageOverhead
}

func validSum(s string) error {
	if b, err := hex.DecodeString(s); err != nil || len(b) != 32 {
		return fmt.Errorf("%q is not one", s)
	}
	return nil
}

// Level is how hard to compress.
type Level string

// Levels, from the fastest to the smallest result.
const (
	LevelFastest Level = "fastest"
	LevelDefault Level = "default"
	LevelBetter  Level = "better"
	LevelBest    Level = "best"
)

// ParseLevel reads a level as flags and files give it.
func ParseLevel(s string) (Level, error) {
	if _, err := Level(s).zstd(); err != nil {
		return "", err
	}
	return Level(s), nil
}

func (l Level) zstd() (zstd.EncoderLevel, error) {
	switch l {
	case LevelFastest:
		return zstd.SpeedFastest, nil
	case LevelDefault:
		return zstd.SpeedDefault, nil
	case LevelBetter:
		return zstd.SpeedBetterCompression, nil
	case LevelBest:
		return zstd.SpeedBestCompression, nil
	}
	return 0, fmt.Errorf("compression level %q is not one of fastest, default, better, best", string(l))
}

// ErrAborted is what a Writer's methods return after Abort.
var ErrAborted = errors.New("writing was aborted")

var errReaderClosed = errors.New("reader is closed")

// CorruptError says that a stored object is not what its Encoding describes.
type CorruptError struct {
	// Offset in the stored object where the damage begins, as near as can be
	// known (one frame, or one age chunk of 64 KiB); -1 when the whole is meant.
	Offset int64
	Err    error
}

func (e *CorruptError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("stored bytes are corrupt: %v", e.Err)
	}
	return fmt.Sprintf("stored bytes are corrupt at byte %d: %v", e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// IdentityError says that an intact object cannot be opened with the
// identities that were given.
type IdentityError struct {
	Recipients []string // of the object
	Given      int      // the number of identities
	Err        error    // age's own; nil when none was given
}

func (e *IdentityError) Error() string {
	const next = "give a file with the secret key of one of them (--identity FILE)"
	to := strings.Join(e.Recipients, ", ")
	if to == "" {
		to = "recipients that its description does not name"
	}
	switch e.Given {
	case 0:
		return fmt.Sprintf("it is encrypted to %s and no identity was given: %s", to, next)
	case 1:
		return fmt.Sprintf("it is encrypted to %s and the identity given does not open it: %s", to, next)
	}
	return fmt.Sprintf("it is encrypted to %s and none of the %d identities given opens it: %s", to, e.Given, next)
}

func (e *IdentityError) Unwrap() error { return e.Err }
