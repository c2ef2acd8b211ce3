package codec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"filippo.io/age"
)

// Sizes of age's payload: chunks of plaintext, each with a tag.
const (
	agePlainChunk  = 64 << 10
	ageOverhead    = 16
	ageStoredChunk = agePlainChunk + ageOverhead
)

// keyKeeper passes a recipient through and keeps the file key that age asks it
// to wrap.
type keyKeeper struct {
	age.Recipient
	key *[]byte
}

// Wrap keeps the key and passes it on.
func (k keyKeeper) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	*k.key = bytes.Clone(fileKey)
	return k.Recipient.Wrap(fileKey)
}

// WrapWithLabels keeps the labels of recipients that have them, because age
// uses these to refuse mixtures that would weaken the encryption.
func (k keyKeeper) WrapWithLabels(fileKey []byte) ([]*age.Stanza, []string, error) {
	if r, ok := k.Recipient.(age.RecipientWithLabels); ok {
		*k.key = bytes.Clone(fileKey)
		return r.WrapWithLabels(fileKey)
	}
	stanzas, err := k.Wrap(fileKey)
	return stanzas, nil, err
}

// seal starts an age file on dst and returns the file key beside it.
func seal(dst io.Writer, recipients []age.Recipient) (io.WriteCloser, []byte, error) {
	var key []byte
	keepers := make([]age.Recipient, len(recipients))
	for i, r := range recipients {
		keepers[i] = keyKeeper{r, &key}
	}
	w, err := age.Encrypt(dst, keepers...)
	if err != nil {
		return nil, nil, fmt.Errorf("start encryption: %w", err)
	}
	return w, key, nil
}

// recipientNames are what Encoding says of recipients.
func recipientNames(recipients []age.Recipient) []string {
	var names []string
	for _, r := range recipients {
		name := "a recipient without a name"
		if r, ok := r.(fmt.Stringer); ok {
			name = r.String()
		}
		names = append(names, name)
	}
	return names
}

// fileKey opens an age header, which includes the nonce after it, if it is as it was
// written.
func fileKey(header []byte, e Encoding, identities []age.Identity) (age.Identity, error) {
	if sum := sha256.Sum256(header); hex.EncodeToString(sum[:]) != e.HeaderSHA256 {
		return nil, &CorruptError{0, errors.New("the age header is not as it was written")}
	}
	if len(identities) == 0 {
		return nil, &IdentityError{Recipients: slices.Clone(e.Recipients)}
	}
	key, err := age.DecryptHeader(header, identities...)
	var mismatch *age.NoIdentityMatchError
	switch {
	case errors.As(err, &mismatch):
		return nil, &IdentityError{slices.Clone(e.Recipients), len(identities), err}
	case err != nil:
		return nil, fmt.Errorf("open the age header: %w", err)
	}
	return age.NewInjectedFileKeyIdentity(key), nil
}

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
