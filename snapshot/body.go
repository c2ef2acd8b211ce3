package snapshot

import (
	"fmt"
	"io"
)

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
