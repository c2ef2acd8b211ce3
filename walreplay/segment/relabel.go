package segment

import (
	"errors"
	"fmt"
)

// Relabel gives a segment another level, and with it another name: a new header
// block before the same body. It needs no identity. object is not changed.
func Relabel(h Header, object []byte, level int) (Header, []byte, error) {
	if int64(len(object)) != h.Size() {
		return Header{}, nil, fmt.Errorf("relabel segment %s: it has %d bytes, its header says %d", h.Name(), len(object), h.Size())
	}
	if level == h.Level {
		return Header{}, nil, errors.New("relabel segment " + h.Name() + ": it has that level")
	}
	h.Level = level
	if err := h.validate(); err != nil {
		return Header{}, nil, fmt.Errorf("relabel segment %s: %w", h.Name(), err)
	}
	block, err := h.block()
	if err != nil {
		return Header{}, nil, fmt.Errorf("relabel segment %s: %w", h.Name(), err)
	}
	return h, append(block, object[HeaderSize:]...), nil
}
