package codec

import (
	"bytes"
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

const passphraseName = "passphrase"

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
		if _, ok := r.(*age.ScryptRecipient); ok && len(recipients) > 1 {
			return nil, nil, errors.New("a passphrase cannot be combined with other recipients: whoever knows it must be the only one who can write such a file")
		}
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
		switch r := r.(type) {
		case *age.ScryptRecipient:
			names = append(names, passphraseName)
		case fmt.Stringer:
			names = append(names, r.String())
		default:
			names = append(names, "a recipient without a name")
		}
	}
	return names
}

// fileKey opens an age header, which includes the nonce after it, that is
// known to be intact.
func fileKey(header []byte, e Encoding, identities []age.Identity) (age.Identity, error) {
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
