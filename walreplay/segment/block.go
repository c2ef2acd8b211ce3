package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/requorum/requorum/sinks/repository"
)

// HeaderSize is the size in bytes of the header block that every segment
// begins with, whatever it says: one small read gets it, and by hand it can be
// cut off without being understood.
const HeaderSize = 2048

// The block is a skippable frame of zstd (RFC 8878, section 3.1.2): a magic
// number and the size of what follows, both little-endian.
const (
	blockMagic     = 0x184D2A5A
	blockFrameHead = 8
)

// errHeader says that a header block is not as it was written.
var errHeader = errors.New("the header block is not as it was written")

// block writes the header block.
func (h Header) block() ([]byte, error) {
	doc, err := repository.Seal(h)
	if err != nil {
		return nil, err
	}
	if len(doc) > HeaderSize-blockFrameHead {
		return nil, fmt.Errorf("the header takes %d bytes, more than the %d that it has: is the name of the tool, %d bytes, too long?", len(doc), HeaderSize-blockFrameHead, len(h.Tool))
	}
	b := make([]byte, 0, HeaderSize)
	b = binary.LittleEndian.AppendUint32(b, blockMagic)
	b = binary.LittleEndian.AppendUint32(b, HeaderSize-blockFrameHead)
	b = append(b, doc...)
	return append(b, bytes.Repeat([]byte{' '}, HeaderSize-len(b))...), nil
}

// parseBlock reads what block wrote. Every byte counts: the frame's head and
// the padding are fixed, the document carries its own sum.
func parseBlock(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: the object ends after %d bytes", errHeader, len(b))
	}
	if binary.LittleEndian.Uint32(b) != blockMagic || binary.LittleEndian.Uint32(b[4:]) != HeaderSize-blockFrameHead {
		return Header{}, fmt.Errorf("%w: it does not begin with the head of its frame", errHeader)
	}
	var h Header
	if err := repository.Unseal(bytes.TrimRight(b[blockFrameHead:HeaderSize], " "), &h); err != nil {
		return Header{}, fmt.Errorf("%w: %w", errHeader, err)
	}
	return h, h.validate()
}
