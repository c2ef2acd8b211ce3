package repository

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
)

const claimsPrefix = "claims/"

// Claim is one attempt at a slot of a job: what is to be done once by one of
// several processes. It is written once and says who set out first; it is no
// lock. Nobody is fenced off by it, so a job's result has a name that follows
// from job and slot, and one that wakes up late loses when it writes that.
type Claim struct {
	Format  int    `json:"format"`
	Job     string `json:"job"`
	Slot    string `json:"slot"`
	Attempt int    `json:"attempt"` // from 1
	Holder  string `json:"holder"`
	// Process is random for each start of the holder, where it makes a
	// difference which of its processes it was.
	Process string    `json:"process,omitempty"`
	Created time.Time `json:"created"` // by the holder's clock; nothing depends on it
}

// Claimant is one process's part in the competition for the slots of a job. It
// looks at one slot at a time and is used by one goroutine.
type Claimant struct {
	repo     *Repository
	job      string
	holder   string
	patience time.Duration
	seen     sighting
}

// sighting is what a claimant saw of another's attempt, and since when.
type sighting struct {
	slot     string
	attempt  int
	progress string
	since    time.Time // with its monotonic reading
}

// Claimant takes part in a job under the name holder, which is the same after
// a restart and no other process's. Patience is how long another's attempt may
// make no progress before it is taken for dead.
func (r *Repository) Claimant(job, holder string, patience time.Duration) *Claimant {
	return &Claimant{repo: r, job: job, holder: holder, patience: patience}
}

// Try tells whether the slot is this holder's: won now, or held from before.
// Progress is any text that changes while whoever holds the slot gets on.
//
// Another's attempt is superseded when this claimant, in calls of Try on the
// same slot, has seen the same progress for its patience, by its own monotonic
// clock: hosts' clocks are never compared.
func (c *Claimant) Try(ctx context.Context, slot, progress string) (Claim, bool, error) {
	newest, err := c.newestAttempt(ctx, slot)
	if err != nil {
		return Claim{}, false, err
	}
	if newest == 0 {
		return c.write(ctx, slot, 1)
	}
	claim, err := c.repo.ReadClaim(ctx, c.job, slot, newest)
	switch {
	case errors.Is(err, ErrAltered): // whose it is nobody can tell
	case err != nil:
		return Claim{}, false, err
	case claim.Holder == c.holder:
		return claim, true, nil
	}
	now := sighting{slot, newest, progress, time.Now()}
	if s := c.seen; s.slot != slot || s.attempt != newest || s.progress != progress {
		c.seen = now
	}
	if now.since.Sub(c.seen.since) < c.patience {
		return claim, false, nil
	}
	return c.write(ctx, slot, newest+1)
}

// newestAttempt is the highest number of the slot's attempts, 0 without any.
func (c *Claimant) newestAttempt(ctx context.Context, slot string) (int, error) {
	prefix := claimsPrefix + c.job + "/" + slot + "/"
	newest := 0
	for obj, err := range c.repo.sink.List(ctx, prefix, "") {
		if err != nil {
			return 0, fmt.Errorf("list the claims on %s of job %s in %s: %w", slot, c.job, c.repo, err)
		}
		if n, ok := claimAttempt(c.job, slot, obj.Name); ok {
			newest = max(newest, n)
		}
	}
	return newest, nil
}

// write makes an attempt. Of several that do so at once one wins; the others
// see its claim when they try again.
func (c *Claimant) write(ctx context.Context, slot string, attempt int) (Claim, bool, error) {
	claim := Claim{Format: Format, Job: c.job, Slot: slot, Attempt: attempt, Holder: c.holder, Created: time.Now().UTC()}
	switch err := c.repo.WriteClaim(ctx, claim); {
	case errors.Is(err, sinks.ErrExists):
		return Claim{}, false, nil
	case err != nil:
		return Claim{}, false, err
	}
	return claim, true, nil
}

// WriteClaim writes a claim. It fails with sinks.ErrExists where another one
// made that attempt first.
func (r *Repository) WriteClaim(ctx context.Context, c Claim) error {
	c.Format = Format
	if err := r.writeUnlocked(ctx, ClaimName(c.Job, c.Slot, c.Attempt), c); err != nil {
		return fmt.Errorf("claim %s of job %s: %w", c.Slot, c.Job, err)
	}
	return nil
}

// ReadClaim reads the claim of one attempt. Damage, and a claim that belongs
// elsewhere, is ErrAltered.
func (r *Repository) ReadClaim(ctx context.Context, job, slot string, attempt int) (Claim, error) {
	var c Claim
	name := ClaimName(job, slot, attempt)
	if err := r.ReadDocument(ctx, name, &c); err != nil {
		return Claim{}, err
	}
	if c.Job != job || c.Slot != slot || c.Attempt != attempt {
		return Claim{}, fmt.Errorf("%s in %s: %w: it is attempt %d at %s of job %s", name, r, ErrAltered, c.Attempt, c.Slot, c.Job)
	}
	return c, nil
}

// RemoveClaims deletes the claims on a job's slots for which done says so.
// Whoever wakes up late and claims such a slot anew finds the result there.
func (r *Repository) RemoveClaims(ctx context.Context, job string, done func(slot string, claim sinks.Object) bool) error {
	prefix := claimsPrefix + job + "/"
	for obj, err := range r.sink.List(ctx, prefix, "") {
		if err != nil {
			return fmt.Errorf("list the claims of job %s in %s: %w", job, r, err)
		}
		slot, _, _ := strings.Cut(strings.TrimPrefix(obj.Name, prefix), "/")
		if !done(slot, obj) {
			continue
		}
		if err := r.sink.Delete(ctx, obj.Name); err != nil {
			return fmt.Errorf("remove an old claim: %w", err)
		}
	}
	return nil
}

// ClaimName is the name of the claim of one attempt.
func ClaimName(job, slot string, attempt int) string {
	return claimsPrefix + job + "/" + slot + "/" + strconv.Itoa(attempt) + documentSuffix
}

// claimAttempt is the attempt whose claim on a slot is called name.
func claimAttempt(job, slot, name string) (int, bool) {
	base := strings.TrimPrefix(name, claimsPrefix+job+"/"+slot+"/")
	n, err := strconv.Atoi(strings.TrimSuffix(base, documentSuffix))
	return n, err == nil && n > 0 && name == ClaimName(job, slot, n)
}
