package repository

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrAltered says that a document's content does not match the sum that it
// carries: it was damaged, cut short, or edited.
var ErrAltered = errors.New("content does not match its own SHA-256")

// sealed is the form of every JSON object in a repository. The sum covers the
// bytes of body just as they stand in the file, so a reader needs no canonical
// form of JSON: docs/format.md shows it with sed and sha256sum.
type sealed struct {
	SHA256 string          `json:"sha256"`
	Body   json.RawMessage `json:"body"`
}

// Seal writes v as a document that carries the SHA-256 of its body.
func Seal(v any) ([]byte, error) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode a document: %w", err)
	}
	sum := sha256.Sum256(body)
	return sealed{hex.EncodeToString(sum[:]), body}.bytes(), nil
}

// bytes is the one form in which a document is stored. By hand, since the
// encoder would indent the body anew and change its bytes.
func (s sealed) bytes() []byte {
	return fmt.Appendf(nil, "{\"sha256\": %q,\n\"body\":\n%s\n}\n", s.SHA256, s.Body)
}

// Unseal reads a document that Seal wrote into v. It fails with ErrAltered
// where the body is not the one that was sealed. Unknown fields are kept out
// silently: a newer minor writer may have added some.
func Unseal(data []byte, v any) error {
	var s sealed
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return fmt.Errorf("%w: not a document: %w", ErrAltered, err)
	}
	// Whatever the decoder did not need would be unprotected by the sum.
	if !bytes.Equal(s.bytes(), data) {
		return fmt.Errorf("%w: bytes outside the body differ from the one form that is written", ErrAltered)
	}
	sum := sha256.Sum256(s.Body)
	if hex.EncodeToString(sum[:]) != s.SHA256 {
		return fmt.Errorf("%w (says %s, is %x)", ErrAltered, s.SHA256, sum)
	}
	if err := json.Unmarshal(s.Body, v); err != nil {
		return fmt.Errorf("decode a document: %w", err)
	}
	return nil
}
