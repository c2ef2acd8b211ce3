// Package signing signs what a repository holds, and reports whether somebody who is
// trusted signed it. Keys, signatures and lists of trusted keys are OpenSSH's, so that
// ssh-keygen makes and checks all of them.
package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Keys are with whose key is signed, and whose signatures are believed.
type Keys struct {
	Signer *Signer // nil: nothing is signed
	Trust  *Trust  // nil: nobody's signature is checked
	Memory *Memory // nil: nothing is remembered
}

// Memory says where a reader remembers how far each repository reached: signatures say
// nothing of objects that were deleted or hidden, or of an older copy. It counts only with
// Trust: without, whoever can write to a repository could make it seem to have reached
// anything.
type Memory struct {
	Dir    string      // has one file for each repository; it is made when it is needed
	Allow  bool        // a repository that holds less is taken as it is, and remembered so
	Unkept func(error) // is called if something cannot be remembered, which stops nobody
}

// Read reads the key in signingKey, and the trusted keys in trust less those in the
// files revoked. An empty path is no file. A signing key that trust does not name is
// refused: what it signs, this one would not believe.
func Read(signingKey, trust string, revoked []string) (Keys, error) {
	var k Keys
	var err error
	if signingKey != "" {
		if k.Signer, err = ReadSigner(signingKey); err != nil {
			return Keys{}, err
		}
	}
	if trust == "" {
		if len(revoked) > 0 {
			return Keys{}, errors.New("revoked keys are of no use without a file of trusted keys")
		}
		return k, nil
	}
	if k.Trust, err = ReadTrust(trust, revoked); err != nil {
		return Keys{}, err
	}
	if k.Signer != nil {
		if err := k.Trust.permits(k.Signer.signer.PublicKey(), "", time.Now()); err != nil {
			return Keys{}, fmt.Errorf("what is signed with %s would not be believed: %w", signingKey, err)
		}
	}
	return k, nil
}

// Statement is what a signature is about.
type Statement struct {
	Kind       string // of object, such as "manifest"
	SHA256     string // of what is signed, in hexadecimal
	Repository string // the ID of the repository where it lies
	Object     string // its name there
	Time       string // when it was signed, by the signer's clock: as Now gives it
}

// timeLayout is RFC 3339, in UTC and in whole seconds.
const timeLayout = "2006-01-02T15:04:05Z"

// Now is a Statement's time.
func Now() string { return time.Now().UTC().Format(timeLayout) }

// text is the line that is signed, with its end.
func (s Statement) text() string {
	return s.SHA256 + " " + s.Repository + " " + s.Object + " " + s.Time + "\n"
}

// namespace keeps what is signed for one kind of object, or by other programs with the
// same key, from being taken for another.
func (s Statement) namespace() string { return "requorum-" + s.Kind }

// Signer signs with one key.
type Signer struct{ signer ssh.Signer }

// keyFileLimit is far above what keys take, in bytes.
const keyFileLimit = 1 << 20

// ReadSigner reads the private key that ssh-keygen -t ed25519 writes. A file that
// others than its owner can read is refused; root's may be read by its group, as those of
// a Secret in a pod are, whose user is none of root's.
func ReadSigner(path string) (*Signer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	forbidden := fs.FileMode(0o077)
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == 0 && os.Geteuid() != 0 {
		forbidden = 0o037
	}
	if info.Mode().Perm()&forbidden != 0 {
		return nil, fmt.Errorf("%s can be read by others than its owner (mode %04o): make it private with chmod 600", path, info.Mode().Perm())
	}
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(data)
	if errors.As(err, new(*ssh.PassphraseMissingError)) {
		return nil, fmt.Errorf("%s is protected by a passphrase, which nobody could type at night: make a key for this purpose alone, with ssh-keygen -t ed25519 -N '' -f FILE", path)
	}
	if err != nil {
		// Not the parser's words: they could quote the key.
		return nil, fmt.Errorf("%s holds no private key in OpenSSH's format: make one with ssh-keygen -t ed25519 -N '' -f FILE", path)
	}
	if t := signer.PublicKey().Type(); t != ssh.KeyAlgoED25519 {
		return nil, fmt.Errorf("%s is a key of type %s; only Ed25519 keys sign: make one with ssh-keygen -t ed25519 -N '' -f FILE", path, t)
	}
	return &Signer{signer}, nil
}

// NewKey makes a key: the private one as ReadSigner reads it, and the public one as a
// file of trusted keys has it behind a name.
func NewKey() (private, public []byte, err error) {
	key, secret, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, nil, err
	}
	block, err := ssh.MarshalPrivateKey(secret, "")
	if err != nil {
		return nil, nil, err
	}
	sshKey, err := ssh.NewPublicKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(block), ssh.MarshalAuthorizedKey(sshKey), nil
}

// Sign gives a signature in OpenSSH's format, in base64 without its armour.
func (s *Signer) Sign(what Statement) (string, error) {
	sig, err := sshsig.Sign(strings.NewReader(what.text()), s.signer, sshsig.HashSHA512, what.namespace())
	if err != nil {
		return "", fmt.Errorf("sign %s: %w", what.Object, err)
	}
	return base64.StdEncoding.EncodeToString(sig.Marshal()), nil
}

// SignedBy names the key of a signature. Its JSON form is stable.
type SignedBy struct {
	Key     string `json:"key"`            // its fingerprint
	Name    string `json:"name,omitempty"` // that the file of trusted keys gives it
	Checked bool   `json:"checked"`        // whether the signature was checked
}

func (s SignedBy) String() string {
	text := strings.TrimSpace(s.Name + " " + s.Key)
	if !s.Checked {
		text += " (not checked: no trusted keys are given)"
	}
	return text
}

// SignedBy returns whose key a signature is by, which Check passed unless t is nil; nil
// for none.
func (t *Trust) SignedBy(signature string) *SignedBy {
	data, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || len(data) == 0 {
		return nil
	}
	sig, err := sshsig.ParseSignature(data)
	if err != nil {
		return nil
	}
	by := &SignedBy{Key: ssh.FingerprintSHA256(sig.PublicKey), Checked: t != nil}
	if t != nil {
		for _, one := range t.allowed[string(sig.PublicKey.Marshal())] {
			by.Name = one.who
		}
	}
	return by
}

// Check is nil where signature is over what, by a key that was trusted when it was
// signed. Its error says what is missing. An empty signature is one that is not there.
func (t *Trust) Check(what Statement, signature string) error {
	if signature == "" {
		return errors.New("it is not signed")
	}
	at, err := time.Parse(timeLayout, what.Time)
	if err != nil {
		return fmt.Errorf("%q is no time of a signature", what.Time)
	}
	data, err := base64.StdEncoding.Strict().DecodeString(signature)
	if err != nil {
		return fmt.Errorf("its signature is not in base64: %w", err)
	}
	sig, err := sshsig.ParseSignature(data)
	if err != nil {
		return fmt.Errorf("its signature is not one of OpenSSH's: %w", err)
	}
	// First whose it claims to be: a stranger's is not worth the reckoning.
	if err := t.permits(sig.PublicKey, what.namespace(), at); err != nil {
		return err
	}
	if err := sshsig.Verify(strings.NewReader(what.text()), sig, sig.PublicKey, sshsig.HashSHA512, what.namespace()); err != nil {
		return fmt.Errorf("its signature with key %s is not over these bytes at this place: it was altered, or moved here from another name or repository, or requorum.json was replaced", ssh.FingerprintSHA256(sig.PublicKey))
	}
	return nil
}
