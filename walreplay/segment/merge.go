package segment

// Merging makes few large log segments of the many small ones that
// archivers write, so that an archive of years stays quick to list and to
// replay, and so that object lock covers it at a bearable price.
//
// It promises:
//
//  1. Entries and marks are neither lost nor changed: a merged segment holds
//     all that its sources hold, in the same chain.
//  2. Nothing goes before what replaces it was read back whole, has lain in the
//     repository for a day, and was found to hold it, by the chain's value
//     before and after it. Times are compared by the sink's own clock only.
//  3. The end of the archive stays as it is: the newest segment of an archiver
//     is neither merged nor removed.
//  4. Gaps, chain starts and overlaps stay boundaries: no merged segment spans one.
//  5. Of alive marks that say the same (a member was still at an index) the
//     first and the last stay.
//  6. It may be killed at any point and run any number of times, by any number
//     of hosts at once. That one of them does, the lease of an agent's jobs and
//     the role of an archiver see to; that is thrift, not safety.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
)

const (
	// keep is how long what was superseded stays: longer than any reader
	// of a listing and any late writer of a name goes on.
	keep = 24 * time.Hour

	// settle keeps merging away from what archivers may still be at: they give
	// up a segment 60 seconds after it was cut.
	settle = 5 * time.Minute
)

// MergeConfig says what to merge, and how.
type MergeConfig struct {
	Repo     *repository.Repository
	Timeline repository.TimelineID
	// Identities open encrypted segments.
	Identities []age.Identity
	// Codec is for the merged segments. Where sources are encrypted it must have
	// recipients.
	Codec codec.Options
	Tool  string // for the headers, such as "requorum 1.2.3"

	// Target is where a merged segment ends, in raw bytes: what one may take in
	// memory; MaxRaw where zero.
	Target int64
	Logger *slog.Logger // may be nil
}

// MergeReport is what one call did.
type MergeReport struct {
	Merged  []Header // what was stored
	Sources int      // how many segments it was made of
	Removed int      // superseded segments that are gone now
	Marks   int      // repeated alive marks that are gone now
	// Locked are superseded segments under a retention; they go later.
	Locked int
	// Denied says that the credentials do not allow to remove what was
	// superseded: nothing is lost, and the repository grows.
	Denied error
	// Damaged are segments that could not be used. They stay, and what is
	// around them is merged.
	Damaged []error
}

// NoIdentityError says that segments are encrypted and that no identity that
// was given opens them: without one the log can be archived but not merged.
type NoIdentityError struct {
	Object string
	Err    error
}

func (e *NoIdentityError) Error() string {
	return fmt.Sprintf("log segments cannot be merged without an identity: %s: %v", e.Object, e.Err)
}

func (e *NoIdentityError) Unwrap() error { return e.Err }

// Merger merges one timeline's log, call by call. It remembers what it has
// seen, to read it once only; nothing depends on that memory.
type Merger struct {
	MergeConfig
	headers map[string]*item
	locked  map[string]time.Time // since when it is known, by this host's clock
	unheld  map[string]time.Time // what names alone call superseded; since when it is known
}

// NewMerger makes a Merger. It reads nothing yet.
func NewMerger(c MergeConfig) *Merger {
	if c.Target == 0 {
		c.Target = MaxRaw
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Merger{MergeConfig: c, headers: map[string]*item{}, locked: map[string]time.Time{}, unheld: map[string]time.Time{}}
}

// Merge does what is due now. It returns what it did
// also with an error. A *NoIdentityError stays until the configuration
// changes; other errors may pass.
func (m *Merger) Merge(ctx context.Context) (MergeReport, error) {
	var r MergeReport
	all, err := m.list(ctx)
	if err != nil {
		return r, err
	}
	m.forget(all)
	if !m.due(all) {
		return r, nil
	}
	for _, rule := range rules {
		if err := m.mergeLevel(ctx, all, rule, &r); err != nil {
			return r, err
		}
	}
	if err := m.removeSuperseded(ctx, all, &r); err != nil {
		return r, err
	}
	return r, m.removeRepeated(ctx, all, &r)
}

// cannotRead turns the codec's refusal into what it means here.
func cannotRead(object string, err error) error {
	var identity *codec.IdentityError
	if errors.As(err, &identity) {
		return &NoIdentityError{object, err}
	}
	return err
}
