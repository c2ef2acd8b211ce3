package protocol

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
)

var (
	runID   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{7,63}$`)
	nonceID = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

// CheckRun fails where s cannot be a run's ID: 8 to 64 letters, digits, dots and
// hyphens.
func CheckRun(s string) error {
	if !runID.MatchString(s) {
		return fmt.Errorf("run %q: want 8 to 64 letters, digits, dots and hyphens", s)
	}
	return nil
}

// CheckNonce fails where s is no nonce.
func CheckNonce(s string) error {
	if !nonceID.MatchString(s) {
		return errors.New("nonce: want 32 hexadecimal digits")
	}
	return nil
}

// NewNonce is one that nobody has used.
func NewNonce() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails, by its documentation
	return hex.EncodeToString(b)
}
