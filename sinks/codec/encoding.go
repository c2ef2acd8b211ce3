package codec

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// Codecs, in Encoding.Codecs, in the order in which they were applied.
const (
	Zstd = "zstd-seekable"
	Age  = "age"
)

const (
	// MaxFrameSize bounds the memory that reading an object takes. zstd's own
	// command line accepts windows up to 128 MiB without being asked to.
	MaxFrameSize = 64 << 20
	minFrameSize = 1 << 10
	// maxFrames bounds the seek table: 12 MiB of it, for 1 TiB of raw bytes at
	// the default frame size.
	maxFrames = 1 << 20
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

	// Recipients are the public keys that the object is encrypted to, or
	// "passphrase".
	Recipients []string `json:"recipients,omitempty"`
	// HeaderSize and HeaderSHA256 are of the stored bytes before the encrypted
	// payload: age's header and nonce. They tell a damaged header from a wrong
	// identity, which age itself cannot.
	HeaderSize   int    `json:"header_size,omitempty"`
	HeaderSHA256 string `json:"header_sha256,omitempty"`
}

// Encrypted tells whether an identity is needed to read the object.
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
	if e.StoredSize < int64(e.HeaderSize)+e.tableSize() {
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
