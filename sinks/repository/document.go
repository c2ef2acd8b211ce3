package repository

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// ErrAltered says that a document's content does not match the sum that it
// carries: it was damaged, cut short, or edited.
var ErrAltered = errors.New("content does not match its own SHA-256")

// What a document may have. Readers hold many of them at once, and who writes into
// a bucket is not trusted with the memory of those who read there.
const (
	// DocumentLimit bounds one document, in bytes as it is stored.
	DocumentLimit = 64 << 10
	// valueLimit bounds its commas: "[{},{},…" takes a hundred times its bytes once
	// it is decoded.
	valueLimit = 4096
)

// sealed is the form of every JSON object in a repository. The sum covers the
// bytes of body just as they stand in the file, so a reader needs no canonical
// form of JSON: docs/format.md shows it with sed and sha256sum. The signature, where
// there is one, is over the sum, and over where the document belongs.
type sealed struct {
	SHA256    string          `json:"sha256"`
	Signed    string          `json:"signed,omitempty"`    // when, by the signer's clock
	Signature string          `json:"signature,omitempty"` // in OpenSSH's format, in base64
	Body      json.RawMessage `json:"body"`
}

// Seal writes v as a document that carries the SHA-256 of its body. One that readers
// would refuse for its size is an error.
func Seal(v any) ([]byte, error) {
	return seal(v, func(*sealed) error { return nil })
}

// seal lets sign add a signature.
func seal(v any, sign func(*sealed) error) ([]byte, error) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode a document: %w", err)
	}
	sum := sha256.Sum256(body)
	s := sealed{SHA256: hex.EncodeToString(sum[:]), Body: body}
	if err := sign(&s); err != nil {
		return nil, err
	}
	data := s.bytes()
	if err := bounded(data); err != nil {
		return nil, fmt.Errorf("encode a document: %w: shorten what it lists or says", err)
	}
	return data, nil
}

// bounded refuses what takes more memory than a document may.
func bounded(data []byte) error {
	if len(data) > DocumentLimit {
		return fmt.Errorf("larger than the %d bytes that a document can have", DocumentLimit)
	}
	if n := bytes.Count(data, []byte{','}); n > valueLimit {
		return fmt.Errorf("%d values, more than the %d that a document can have", n, valueLimit)
	}
	return nil
}

// bytes is the one form in which a document is stored. By hand, since the
// encoder would indent the body anew and change its bytes.
func (s sealed) bytes() []byte {
	signature := ""
	if s.Signature != "" {
		signature = fmt.Sprintf(" \"signed\": %q, \"signature\": %q,", s.Signed, s.Signature)
	}
	return fmt.Appendf(nil, "{\"sha256\": %q,%s\n\"body\":\n%s\n}\n", s.SHA256, signature, s.Body)
}

// Unseal reads a document that Seal wrote into v. It fails with ErrAltered
// where the body is not the one that was sealed, or does not fit v, which then holds
// what could be read. Unknown fields are kept out
// silently: a newer minor writer may have added some. Who signed is not looked at:
// Repository.Unseal does.
func Unseal(data []byte, v any) error {
	s, err := open(data)
	if err != nil {
		return err
	}
	return s.decode(v)
}

// open checks everything about a document but what its body says, and who signed.
func open(data []byte) (s sealed, err error) {
	if err := bounded(data); err != nil {
		return s, fmt.Errorf("%w: %w", ErrAltered, err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return s, fmt.Errorf("%w: not a document: %w", ErrAltered, err)
	}
	// Whatever the decoder did not need would be unprotected by the sum.
	if !bytes.Equal(s.bytes(), data) {
		return s, fmt.Errorf("%w: bytes outside the body differ from the one form that is written", ErrAltered)
	}
	sum := sha256.Sum256(s.Body)
	if hex.EncodeToString(sum[:]) != s.SHA256 {
		return s, fmt.Errorf("%w (says %s, is %x)", ErrAltered, s.SHA256, sum)
	}
	return s, nil
}

func (s sealed) decode(v any) error {
	if err := json.Unmarshal(s.Body, v); err != nil {
		return fmt.Errorf("%w: not a document of its kind: %w", ErrAltered, err)
	}
	return nil
}

// What is held of one listing at most. Whoever may add objects could add millions.
const (
	// MaxBackups bounds the backups of a catalogue, MaxTimelines its timelines.
	MaxBackups   = 10_000
	MaxTimelines = 500
	// MaxBytes bounds the documents of one kind (manifests, verdicts) that are held,
	// in bytes as they are stored.
	MaxBytes = 32 << 20
	// maxObjects bounds those of one backup.
	maxObjects = 64
)

// Budget keeps as much as may be held of what a listing yields: half of it is for
// those that the place stored first, and half for those that it stored last. So
// who may only add cannot push out what was there before, and what comes after a
// flood is seen again.
type Budget[T any] struct {
	count int
	bytes int64

	held  []budgeted[T]
	added int
}

type budgeted[T any] struct {
	value T
	order int
	size  int64
	at    time.Time
}

// NewBudget is for at most count values of at most so many bytes together.
func NewBudget[T any](count int, bytes int64) *Budget[T] {
	return &Budget[T]{count: count, bytes: bytes}
}

// Add takes one more: of size bytes, stored at a time by the place's own clock.
func (b *Budget[T]) Add(value T, size int64, at time.Time) {
	b.held = append(b.held, budgeted[T]{value, b.added, size, at})
	b.added++
	if len(b.held) >= 2*b.count+1000 {
		b.cut()
	}
}

// Kept are those that may be held, in the order in which they were added, and the
// others.
func (b *Budget[T]) Kept() (kept []T, others int) {
	b.cut()
	slices.SortFunc(b.held, func(x, y budgeted[T]) int { return cmp.Compare(x.order, y.order) })
	for _, one := range b.held {
		kept = append(kept, one.value)
	}
	return kept, b.added - len(kept)
}

// Some are as many of what a listing of r yields as a budget for count values of at most
// so many bytes holds, in their order, and how many others there are. Where there are
// others, and signatures are checked, these could leave no room for those that count: then
// it is of own, which lists these alone. measure gives the size of a value, and when it
// was stored.
func Some[T any](r *Repository, count int, bytes int64, listed, own iter.Seq2[T, error], measure func(T) (size int64, at time.Time)) (kept []T, others int, err error) {
	for _, listing := range []iter.Seq2[T, error]{listed, own} {
		budget := NewBudget[T](count, bytes)
		for value, err := range listing {
			if err != nil {
				return nil, 0, err
			}
			size, at := measure(value)
			budget.Add(value, size, at)
		}
		if kept, others = budget.Kept(); others == 0 || !r.Checks() {
			break
		}
	}
	return kept, others, nil
}

// cut lets go what is beyond. The first and the last of all are the first and the
// last of what is held at any time, so an early cut lets none of them go.
func (b *Budget[T]) cut() {
	slices.SortFunc(b.held, func(x, y budgeted[T]) int {
		return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.order, y.order))
	})
	first, bytes := 0, int64(0)
	for ; first < len(b.held) && first < b.count/2 && bytes+b.held[first].size <= b.bytes/2; first++ {
		bytes += b.held[first].size
	}
	last := len(b.held)
	for bytes = 0; last > first && len(b.held)-last < b.count-b.count/2 && bytes+b.held[last-1].size <= b.bytes-b.bytes/2; last-- {
		bytes += b.held[last-1].size
	}
	b.held = slices.Delete(b.held, first, last) // and clears what is behind
}
