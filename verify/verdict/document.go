package verdict

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// envelope is the body of a verdict's document. The signature covers the bytes
// of Signed just as they stand in the file, so that openssl can check it.
type envelope struct {
	Signature *Signature      `json:"signature,omitempty"`
	Signed    json.RawMessage `json:"signed"`
}

// Signature says who stands behind a verdict.
type Signature struct {
	Key     string `json:"key"`     // the public key's ID: see KeyID
	Ed25519 []byte `json:"ed25519"` // in base64
}

// by tells whether one of the keys made the signature. Named tells that the
// signature claims to be by one of them.
func (s *Signature) by(keys []ed25519.PublicKey, signed []byte) (ok, named bool) {
	if s == nil {
		return false, false
	}
	for _, key := range keys {
		if KeyID(key) != s.Key {
			continue
		}
		named = true
		if ed25519.Verify(key, signed, s.Ed25519) {
			return true, true
		}
	}
	return false, named
}

// encode writes a verdict as a document, signed where there is a key.
func encode(v Verdict, key ed25519.PrivateKey) ([]byte, error) {
	// Indented as it will stand inside of the body: these bytes are signed.
	signed, err := json.MarshalIndent(v, "  ", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode a verdict: %w", err)
	}
	e := envelope{Signed: signed}
	if key != nil {
		public := key.Public().(ed25519.PublicKey) // it is one, by its documentation
		e.Signature = &Signature{Key: KeyID(public), Ed25519: ed25519.Sign(key, signed)}
	}
	return repository.Seal(e)
}

// parse reads a verdict's document. Bytes that are not as they were written are
// repository.ErrAltered, those of a newer version snapshot.ErrNewerFormat. Who
// signed is for the caller to check, over e.Signed.
func parse(data []byte) (v Verdict, e envelope, err error) {
	var body json.RawMessage
	if err := repository.Unseal(data, &body); err != nil {
		return v, e, err
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return v, e, fmt.Errorf("%w: not a verdict: %w", repository.ErrAltered, err)
	}
	// Nothing but the signed part may say anything: whatever else could stand
	// around it would be unsigned.
	if again, err := json.MarshalIndent(e, "", "  "); err != nil || !bytes.Equal(again, body) {
		return v, e, fmt.Errorf("%w: bytes around the signed part differ from the one form that is written", repository.ErrAltered)
	}
	var head struct {
		Format int    `json:"format"`
		Kind   string `json:"kind"`
	}
	if err := json.Unmarshal(e.Signed, &head); err != nil {
		return v, e, fmt.Errorf("%w: not a verdict: %w", repository.ErrAltered, err)
	}
	if head.Format != format || head.Kind != Kind {
		return v, e, fmt.Errorf("%w: kind %q, format %d; this one reads kind %q, format %d", snapshot.ErrNewerFormat, head.Kind, head.Format, Kind, format)
	}
	if err := json.Unmarshal(e.Signed, &v); err != nil {
		return Verdict{}, e, fmt.Errorf("%w: not a verdict: %w", repository.ErrAltered, err)
	}
	return v, e, nil
}
