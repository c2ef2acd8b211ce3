package codec

import (
	"io"

	"filippo.io/age"
)

// sealedStream is an encrypted object.
//
// age's own ReaderAt fetches chunk by chunk, which would be one request for
// each 64 KiB of an object in S3. So the chunks of a range are fetched in one
// go, and age is given a source that holds just these, the header, and the
// last chunk, which it looks at whenever it opens a file.
type sealedStream struct {
	src    io.ReaderAt
	stored int64 // size with the encryption
	plain  int64 // size without
	header []byte
	last   []byte // the last chunk
	key    age.Identity
}

func openSealed(src io.ReaderAt, e Encoding, identities []age.Identity) (*sealedStream, error) {
	header, err := readAt(src, 0, e.HeaderSize)
	if err != nil {
		return nil, err
	}
	if err := checkHeader(header, e); err != nil {
		return nil, err
	}
	key, err := fileKey(header, e, identities)
	if err != nil {
		return nil, err
	}
	payload := e.StoredSize - int64(e.HeaderSize)
	lastSize := (payload-1)%ageStoredChunk + 1
	last, err := readAt(src, e.StoredSize-lastSize, int(lastSize))
	if err != nil {
		return nil, err
	}
	s := &sealedStream{src: src, stored: e.StoredSize, header: header, last: last, key: key}
	if _, s.plain, err = age.DecryptReaderAt(&chunks{s: s}, s.stored, key); err != nil {
		return nil, &CorruptError{e.StoredSize - lastSize, err}
	}
	return s, nil
}

func (s *sealedStream) size() int64 { return s.plain }

func (s *sealedStream) read(off int64, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	first := int64(len(s.header)) + off/agePlainChunk*ageStoredChunk
	end := int64(len(s.header)) + ((off+int64(n)-1)/agePlainChunk+1)*ageStoredChunk
	// The last chunk is at hand already.
	end = min(end, s.stored-int64(len(s.last)))
	c := &chunks{s: s, offset: first}
	if end > first {
		var err error
		if c.fetched, err = readAt(s.src, first, int(end-first)); err != nil {
			return nil, err
		}
	}
	plain, _, err := age.DecryptReaderAt(c, s.stored, s.key)
	if err != nil {
		return nil, &CorruptError{first, err}
	}
	b := make([]byte, n)
	if got, err := plain.ReadAt(b, off); got < n {
		return nil, &CorruptError{first, noEOF(err)}
	}
	return b, nil
}

// chunks is as much of a stored object as age needs to read a range of it.
type chunks struct {
	s       *sealedStream
	offset  int64 // of fetched in the stored object
	fetched []byte
}

// ReadAt reads what is there, and ends where nothing is.
func (c *chunks) ReadAt(p []byte, off int64) (int, error) {
	parts := []struct {
		offset int64
		bytes  []byte
	}{
		{0, c.s.header},
		{c.offset, c.fetched},
		{c.s.stored - int64(len(c.s.last)), c.s.last},
	}
	n := 0
	for n < len(p) && off < c.s.stored {
		at := n
		for _, part := range parts {
			if in := off - part.offset; in >= 0 && in < int64(len(part.bytes)) {
				copied := copy(p[n:], part.bytes[in:])
				n, off = n+copied, off+int64(copied)
			}
		}
		if n == at {
			break
		}
	}
	if n == len(p) {
		return n, nil
	}
	// age parses its header through a buffer, which asks for more than the
	// header has and makes do with what it gets.
	return n, io.EOF
}
