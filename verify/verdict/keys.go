package verdict

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

// keyFileLimit is far above what a key takes, in bytes.
const keyFileLimit = 64 << 10

// KeyID names a public key: the first 16 hexadecimal digits of the SHA-256 of
// its DER form (openssl pkey -pubin -outform DER). It says which key to check
// with, and proves nothing.
func KeyID(key ed25519.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "" // no Ed25519 key does this
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:8])
}

// ReadSigningKey reads the private key that `openssl genpkey -algorithm ed25519`
// writes. A file that others than its owner can read is refused.
func ReadSigningKey(path string) (ed25519.PrivateKey, error) {
	block, mode, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	// Windows has no such bits.
	if mode.Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s can be read by others than its owner (mode %04o): make it private with chmod 600", path, mode.Perm())
	}
	switch block.Type {
	case "PRIVATE KEY":
	case "ENCRYPTED PRIVATE KEY":
		return nil, fmt.Errorf("%s is encrypted: decrypt it with openssl pkey -in %s -out FILE, and keep that file private", path, path)
	case "PUBLIC KEY":
		return nil, fmt.Errorf("%s is a public key: signing needs the private one", path)
	default:
		return nil, fmt.Errorf("%s: want a PEM block PRIVATE KEY, got %q: make one with openssl genpkey -algorithm ed25519", path, block.Type)
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		// Not the parser's words: they could quote the key.
		return nil, fmt.Errorf("%s is not a private key in PKCS #8: make one with openssl genpkey -algorithm ed25519", path)
	}
	key, ok := any.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, verdicts are signed with Ed25519: make a key with openssl genpkey -algorithm ed25519", path, any)
	}
	return key, nil
}

// ReadVerifyKey reads the public key that `openssl pkey -pubout` writes.
func ReadVerifyKey(path string) (ed25519.PublicKey, error) {
	block, _, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	if block.Type != "PUBLIC KEY" {
		return nil, fmt.Errorf("%s: want a PEM block PUBLIC KEY, got %q: make it from the private key with openssl pkey -in FILE -pubout", path, block.Type)
	}
	any, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s is not a public key: %w", path, err)
	}
	key, ok := any.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, verdicts are signed with Ed25519", path, any)
	}
	return key, nil
}

// readPEM reads the first block of a file, and the mode of the file that was
// read, not of one that took its place.
func readPEM(path string) (*pem.Block, os.FileMode, error) {
	f, err := os.Open(path) //nolint:forbidigo // a key may come from a pipe
	if err != nil {
		return nil, 0, err
	}
	info, errStat := f.Stat()
	data, errRead := io.ReadAll(io.LimitReader(f, keyFileLimit))
	if err := errors.Join(errStat, errRead, f.Close()); err != nil {
		return nil, 0, fmt.Errorf("read the key %s: %w", path, err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, 0, fmt.Errorf("%s holds no key in PEM", path)
	}
	return block, info.Mode(), nil
}
