package verdict

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// readers is how many verdicts are fetched at once: enough to hide the round
// trips to an object store, few enough not to be throttled.
const readers = 16

// Chain is all verdicts of a repository.
type Chain struct {
	Entries []Entry // the oldest first
	// Findings are verdicts that are altered, moved or missing: KindVerdict.
	Findings []report.Finding
	// Notes are sentences for the user about what does not count, and why.
	Notes []string
	Bytes int64 // that were read
}

// Entry is one verdict as it was found.
type Entry struct {
	Name     string // the object's
	Sequence uint64 // the name's
	Verdict  Verdict
	// Key is the ID of the key that it says it is signed with; empty without a
	// signature.
	Key string
	// Trusted: the signature was checked, and is by one of the trusted keys.
	Trusted bool
	// Counts: it is whole, in its place, what the verdict behind it says it is,
	// and trusted where there are trusted keys.
	Counts bool
	// Err is why it cannot be used at all; nil where it could be read.
	Err error

	sum    Sum
	forged bool // signed in the name of a trusted key that did not do it
}

// ReadAll reads all verdicts and checks their chain. With trusted keys only
// those that one of them signed count. Damage is in Chain.Findings; an error
// says that the repository could not be read. It costs one request a verdict:
// prune the beginning with the backups that it is about.
func ReadAll(ctx context.Context, repo *repository.Repository, trusted ...ed25519.PublicKey) (Chain, error) {
	for round := 1; ; round++ {
		c, gone, err := readListed(ctx, repo, trusted)
		if err != nil {
			return Chain{}, err
		}
		if gone && round < rounds || round == 1 && c.holed() {
			continue
		}
		if repo.ID() == "" {
			c.sift()
		}
		c.link()
		c.note(len(trusted) > 0)
		return c, nil
	}
}

// holed tells whether a number is missing from the middle. A listing need not be
// of one moment: a verdict that was written while it was made may be in it without
// the one before.
func (c *Chain) holed() bool {
	for i := 1; i < len(c.Entries); i++ {
		if c.Entries[i].Sequence != c.Entries[i-1].Sequence+1 {
			return true
		}
	}
	return false
}

// sift does for a repository whose marker does not tell its ID what readEntry does
// with it: the verdicts that name another one than most do were copied here.
func (c *Chain) sift() {
	most, named := "", map[string]int{}
	for _, e := range c.Entries { // the oldest first: it decides where two are as many
		if e.Err == nil {
			named[e.Verdict.Repository]++
		}
	}
	for _, e := range c.Entries {
		if e.Err == nil && named[e.Verdict.Repository] > named[most] {
			most = e.Verdict.Repository
		}
	}
	for i := range c.Entries {
		if e := &c.Entries[i]; e.Err == nil && e.Verdict.Repository != most {
			e.Err = foreign(e.Verdict)
			e.Verdict, e.Counts = Verdict{}, false
		}
	}
}

func foreign(v Verdict) error {
	return fmt.Errorf("it is a verdict on repository %q: it was copied here", v.Repository)
}

// rounds is how often verdicts are listed where some vanish while they are read:
// of those that are pruned meanwhile the first may be read already, and the next
// would seem to be missing from the middle.
const rounds = 3

// readListed reads the verdicts that a listing shows; gone tells that some of
// them were not there any more.
func readListed(ctx context.Context, repo *repository.Repository, trusted []ed25519.PublicKey) (_ Chain, gone bool, err error) {
	stored, err := repo.Verdicts(ctx)
	if err != nil {
		return Chain{}, false, err
	}
	found := make([]*Entry, len(stored))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, s := range stored {
		group.Go(func() error {
			e, err := readEntry(groupCtx, repo, s, trusted)
			if errors.Is(err, sinks.ErrNotFound) {
				return nil
			}
			found[i] = e
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return Chain{}, false, err
	}
	c := Chain{Entries: []Entry{}}
	for i, e := range found {
		if e == nil {
			gone = true
			continue
		}
		c.Entries = append(c.Entries, *e)
		c.Bytes += stored[i].Object.Size
	}
	return c, gone, nil
}

// readEntry reads one verdict by itself; an error is not the verdict's fault.
func readEntry(ctx context.Context, repo *repository.Repository, s repository.StoredVerdict, trusted []ed25519.PublicKey) (*Entry, error) {
	e := &Entry{Name: s.Object.Name, Sequence: s.Sequence}
	if s.Object.Size > repository.VerdictLimit {
		e.Err = fmt.Errorf("%w: it has %d bytes, more than the %d that a verdict can have", repository.ErrAltered, s.Object.Size, int64(repository.VerdictLimit))
		return e, nil
	}
	data, err := sinks.Get(ctx, repo.Sink(), e.Name, repository.VerdictLimit)
	if err != nil {
		return nil, err
	}
	e.sum = sha256.Sum256(data)
	v, env, err := parse(data)
	if env.Signature != nil {
		e.Key = env.Signature.Key
	}
	var named bool
	if err == nil {
		e.Trusted, named = env.Signature.by(trusted, env.Signed)
		e.forged = named && !e.Trusted
	}
	switch {
	case err != nil:
		e.Err = err
	case e.forged:
		e.Err = fmt.Errorf("its signature is not by key %s, as it says: it was altered, or forged", e.Key)
	case v.Sequence != s.Sequence:
		e.Err = fmt.Errorf("it is verdict %d: it was moved or copied here", v.Sequence)
	case repo.ID() != "" && v.Repository != repo.ID():
		e.Err = foreign(v)
	default:
		e.Verdict = v
		e.Counts = e.Trusted || len(trusted) == 0
	}
	return e, nil
}

// link goes along the chain and notes where it is broken.
func (c *Chain) link() {
	for i := range c.Entries {
		e := &c.Entries[i]
		if i > 0 {
			c.follow(&c.Entries[i-1], e)
		} else if e.Err == nil && e.Sequence == 1 && e.Verdict.Previous != (Sum{}) {
			c.damage(e.Name, "it is the first one, but says that another was before it")
			e.Counts = e.Trusted
		}
		if e.Err != nil && !errors.Is(e.Err, snapshot.ErrNewerFormat) {
			c.damage(e.Name, e.Err.Error())
		}
	}
}

// follow checks that e was written behind last.
func (c *Chain) follow(last, e *Entry) {
	switch {
	case e.Sequence > last.Sequence+2:
		c.damage(repository.VerdictName(last.Sequence+1), fmt.Sprintf("it and those up to %s are missing from the middle of the chain", repository.VerdictName(e.Sequence-1)))
	case e.Sequence > last.Sequence+1:
		c.damage(repository.VerdictName(last.Sequence+1), "it is missing from the middle of the chain")
	case e.Err != nil, last.Err != nil && !errors.Is(last.Err, snapshot.ErrNewerFormat):
		// What e says of last cannot be read, or last is known to be damaged.
	case e.Verdict.Previous != last.sum:
		c.damage(last.Name, fmt.Sprintf("its SHA-256 is %s, but the verdict behind it was written when it was %s: one of the two was replaced", last.sum, e.Verdict.Previous))
		last.Counts = last.Trusted
	}
}

func (c *Chain) damage(object, text string) {
	c.Findings = append(c.Findings, report.Finding{Kind: report.KindVerdict, Object: object, Text: text})
}

// note says what does not count though nothing is wrong with it.
func (c *Chain) note(keys bool) {
	var newer, others int
	for _, e := range c.Entries {
		switch {
		case errors.Is(e.Err, snapshot.ErrNewerFormat):
			newer++
		case keys && e.Err == nil && !e.Trusted:
			others++
		}
	}
	if newer > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d of %d verdicts were written by a newer version of requorum and are passed over", newer, len(c.Entries)))
	}
	if others > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d of %d verdicts are not signed with a key that was given, and do not count", others, len(c.Entries)))
	}
}
