package repository

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/signing"
)

// ErrUnsigned says that no trusted key signed an object, although signatures are checked.
// It is ErrAltered as well, because both make an object unusable.
var ErrUnsigned = errors.New("not signed by a trusted key")

// unsignedError is ErrUnsigned and ErrAltered.
type unsignedError struct {
	object string
	why    error
}

func (e *unsignedError) Error() string {
	next := "find out who wrote it, then remove it, or trust the key"
	if errors.Is(e.why, signing.ErrRevoked) {
		next = "find out who wrote it, then remove it"
	}
	return fmt.Sprintf("%s is unusable: %v; %s", e.object, e.why, next)
}

// Is makes it both.
func (e *unsignedError) Is(target error) bool { return target == ErrUnsigned || target == ErrAltered }

// Unwrap gives what is missing.
func (e *unsignedError) Unwrap() error { return e.why }

// WithKeys is s, in which a repository signs what it writes, and believes what it
// reads, by keys. They go with the sink, so that nobody who opens the repository there
// can leave them out.
func WithKeys(s sinks.Sink, keys signing.Keys) sinks.Sink {
	if keys == (signing.Keys{}) {
		return s
	}
	return &keyed{s, keys}
}

type keyed struct {
	sinks.Sink
	keys signing.Keys
}

// Unwrap returns the sink without the keys.
func (k *keyed) Unwrap() sinks.Sink { return k.Sink }

// KeysOf are the keys of a sink, or of one within it.
func KeysOf(s sinks.Sink) signing.Keys {
	for {
		if k, ok := s.(*keyed); ok {
			return k.keys
		}
		outer, ok := s.(interface{ Unwrap() sinks.Sink })
		if !ok {
			return signing.Keys{}
		}
		s = outer.Unwrap()
	}
}

// Checks reports whether signatures are checked here.
func (r *Repository) Checks() bool { return r.keys.Trust != nil }

// Memory returns where it is remembered how far repositories reached; nil if nothing is.
func (r *Repository) Memory() *signing.Memory {
	if !r.Checks() {
		return nil
	}
	return r.keys.Memory
}

// mayTrust refuses a repository without a marker where signatures are checked: each is
// over the repository's ID, which nothing else says.
func (r *Repository) mayTrust() error {
	if !r.Checks() {
		return nil
	}
	return fmt.Errorf("%w: without it no signature can be checked; put it back from a copy of the repository, or read without signatures (--insecure-unsigned)", r.damage)
}

func (r *Repository) statement(name string, s *sealed) signing.Statement {
	kind, _ := kindOf(name)
	return signing.Statement{Kind: kind, SHA256: s.SHA256, Repository: r.marker.ID, Object: name, Time: s.Signed}
}

// Seal is the function Seal for what is to be stored under name here: it is signed
// where there is a key.
func (r *Repository) Seal(name string, v any) ([]byte, error) {
	return seal(v, func(s *sealed) error { return r.sign(name, s) })
}

// sign adds a signature where there is a key.
func (r *Repository) sign(name string, s *sealed) error {
	switch {
	case r.keys.Signer == nil && r.Checks():
		return errors.New("it would not be signed, and so be unusable where signatures are checked, as this command does: give a key with --signing-key")
	case r.keys.Signer == nil:
		return nil
	case r.marker.ID == "":
		return fmt.Errorf("it cannot be signed: %w", r.damage)
	}
	s.Signed = signing.Now()
	var err error
	if s.Signature, err = r.keys.Signer.Sign(r.statement(name, s)); err != nil || !r.Checks() {
		return err
	}
	// A key that was trusted at the start may have run out, or not be for this kind.
	if err := r.keys.Trust.Check(r.statement(name, s), s.Signature); err != nil {
		return fmt.Errorf("it would be unusable where signatures are checked, as this command does: %w", err)
	}
	return nil
}

// Unseal is the function Unseal for what is stored under name here. Where it is to be
// signed and is not, that is ErrUnsigned, and v stays as it was.
func (r *Repository) Unseal(name string, data []byte, v any) error {
	s, err := r.open(name, data)
	if err != nil {
		return err
	}
	if err := s.decode(v); err != nil {
		return fmt.Errorf("%s in %s: %w", name, r.sink, err)
	}
	return nil
}

// SignedBy returns who signed a document that ReadSealed returned; nil if nobody did.
func (r *Repository) SignedBy(data []byte) *signing.SignedBy {
	s, err := open(data)
	if err != nil {
		return nil
	}
	return r.keys.Trust.SignedBy(s.Signature)
}

func (r *Repository) open(name string, data []byte) (sealed, error) {
	s, err := open(data)
	switch {
	case err != nil:
		err = r.PassOver(name, fmt.Errorf("%s in %s: %w", name, r.sink, err))
	case r.Checks():
		if err = r.keys.Trust.Check(r.statement(name, &s), s.Signature); err != nil {
			err = r.Refuse(name, err)
		}
	}
	return s, err
}

// maxUnusable is how many unusable objects are remembered: whoever may add objects could
// add millions.
const maxUnusable = 1000

// Unusable is an object that is passed over, and why: it is damaged, oversized, in the
// clear in an encrypted timeline, or not signed by a trusted key.
type Unusable struct {
	Object string // its name, or that of the folder where several are
	Err    error
}

// PassOver remembers an object that is unusable, and returns why. The last reason counts.
func (r *Repository) PassOver(name string, why error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.unusable[name]; known || len(r.unusable) < maxUnusable {
		r.unusable[name] = why
	}
	return why
}

// Unusable returns the unusable objects that were met so far, by name; of very many the
// first.
func (r *Repository) Unusable() (all []Unusable) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.unusable)) {
		all = append(all, Unusable{name, r.unusable[name]})
	}
	return all
}

// Refuse passes over an object that no trusted key signed, such as a damaged one where
// signatures are checked: it may be anybody's. The error is an ErrUnsigned.
func (r *Repository) Refuse(name string, why error) error {
	return r.PassOver(name, &unsignedError{name + " in " + r.String(), why})
}

// Doubtful reports whether an error is about a document's bytes, other than that it is
// unsigned, for those who in doubt go by its name: where signatures are checked a name is
// nothing that anybody trusted said.
func (r *Repository) Doubtful(err error) bool { return errors.Is(err, ErrAltered) && !r.Checks() }

// checkedAtOnce is how many documents are fetched at once: they are waited for, not
// transferred.
const checkedAtOnce = 32

// dropUnsigned leaves out of what a listing shows the documents that are unsigned: all
// that is made of names alone would count them. What was looked at once is not read
// again. Without trusted keys nothing is read.
func dropUnsigned[N any](ctx context.Context, r *Repository, all []N, nameOf func(N) string) ([]N, error) {
	if !r.Checks() {
		return all, nil
	}
	return filter(ctx, all, func(ctx context.Context, n N) (bool, error) { return r.Counts(ctx, nameOf(n)) })
}

// filter leaves out what keep refuses, which is asked of many at once.
func filter[N any](ctx context.Context, all []N, keep func(context.Context, N) (bool, error)) ([]N, error) {
	keeps := make([]bool, len(all))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(checkedAtOnce)
	for i, n := range all {
		group.Go(func() (err error) {
			keeps[i], err = keep(groupCtx, n)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var kept []N
	for i, n := range all {
		if keeps[i] {
			kept = append(kept, n)
		}
	}
	return kept, nil
}

// ownAtOnce is how many of a listing are held until their documents are looked at.
const ownAtOnce = 1000

// Own yields what a listing yields without what is unsigned. It reads all documents, so
// it is for a budget that others would fill otherwise. Without trusted keys it is the
// listing.
func Own[N any](ctx context.Context, r *Repository, listed iter.Seq2[N, error], nameOf func(N) string) iter.Seq2[N, error] {
	if !r.Checks() {
		return listed
	}
	return func(yield func(N, error) bool) {
		var some []N
		pass := func() bool {
			own, err := dropUnsigned(ctx, r, some, nameOf)
			for _, n := range own {
				if !yield(n, nil) {
					return false
				}
			}
			if some = some[:0]; err != nil {
				var none N
				yield(none, err)
			}
			return err == nil
		}
		for n, err := range listed {
			if err != nil {
				yield(n, err)
				return
			}
			if some = append(some, n); len(some) == ownAtOnce && !pass() {
				return
			}
		}
		pass()
	}
}

// Counts reports whether the document called name is neither unsigned nor something that
// cannot be read as one of anybody. One that is gone counts.
func (r *Repository) Counts(ctx context.Context, name string) (bool, error) {
	if !r.Checks() || r.isOwn(name) {
		return true, nil
	}
	data, err := r.ReadBytes(ctx, name)
	if err == nil {
		_, err = r.open(name, data)
	}
	switch {
	case errors.Is(err, sinks.ErrNotFound):
		return true, nil
	case errors.Is(err, ErrUnsigned):
		return false, nil
	case errors.Is(err, ErrAltered):
		_ = r.Refuse(name, err) // remembers it
		return false, nil
	case err != nil:
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.own[name] = true // for good: names are written once
	return true, nil
}

// isOwn reports whether a listing found the document to be a trusted one's.
func (r *Repository) isOwn(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own[name]
}
