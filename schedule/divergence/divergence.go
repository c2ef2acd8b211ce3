// Package divergence holds the members of a cluster against each other: all must
// have the same history of keys. One that was altered on its disk, or by a fault
// of etcd, serves other data than the rest and nobody notices, until it leads.
package divergence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/requorum/requorum/store"
)

// Defaults of Options.
const (
	// DefaultAttempts is how often members are asked, with a pause between, until
	// they answer about the same history: a compaction between two answers makes
	// them say nothing. Kubernetes compacts every five minutes.
	DefaultAttempts = 8
	DefaultPause    = 2 * time.Second
	// DefaultConfirm is how often a difference must be seen again, at another
	// revision, before it counts. One is proof enough by etcd's own word; the
	// price of a false alarm at night is higher than that of asking twice more.
	DefaultConfirm = 2
	// DefaultTimeout bounds one member's answer: 1.4 GB take it a second when they
	// are in memory, and much longer when the disk is asked.
	DefaultTimeout = 2 * time.Minute
	// atOnce is the size of a database up to which all members are asked at the
	// same time. A member serves nothing while it computes, here for a few tens of
	// milliseconds; with larger ones a quorum goes on serving.
	atOnce = 64 << 20
)

// Options say how patiently to ask. Zero values are the defaults.
type Options struct {
	Attempts int
	Pause    time.Duration
	Confirm  int
	Timeout  time.Duration
	Logger   *slog.Logger // may be nil
}

// Result is what a comparison showed.
type Result struct {
	// Revision is the one that the hashes go up to, CompactRevision the one that
	// was compacted; 0 where nothing could be compared.
	Revision        int64 `json:"revision,omitempty"`
	CompactRevision int64 `json:"compact_revision,omitempty"`
	// Hashes are of the members that were compared.
	Hashes []MemberHash `json:"hashes"`
	// Divergent are the members whose history differs from that of the majority.
	// Where there is no majority it is all that were compared, and Undecided.
	Divergent []Member `json:"divergent"`
	Undecided bool     `json:"undecided,omitempty"`
	// Unknown are those that could not be compared, and why.
	Unknown []Unknown `json:"unknown"`
	// Corrupt are the members that etcd's own CORRUPT alarm is about.
	Corrupt []Member `json:"corrupt"`
}

// Member is one member; of one that etcd does not name the ID is 0.
type Member struct {
	ID       uint64 `json:"id"`
	Name     string `json:"name,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
}

// String names the member for people.
func (m Member) String() string {
	switch {
	case m.Name != "":
		return m.Name
	case m.ID != 0:
		return fmt.Sprintf("%x", m.ID)
	}
	return "a member that etcd does not name"
}

// MemberHash is a member's HashKV.
type MemberHash struct {
	Member
	Version string `json:"version"`
	Hash    uint32 `json:"hash"`
}

// Unknown is a member that was not compared.
type Unknown struct {
	Member
	Reason string `json:"reason"`
}

// String names the member and the reason.
func (u Unknown) String() string { return u.Member.String() + ": " + u.Reason }

// Compare asks the members for their HashKV at one revision that all have applied,
// and reads etcd's own corruption alarm. It needs the root role where
// authentication is on. Each member pauses while it computes (about a second for
// 1.4 GB); the leader is asked last. So: rarely, and at a quiet time.
//
// Hashes count only where both revisions that they depend on are equal. Who
// cannot be asked now (learners, members that are unfit or silent), or whose etcd
// is so old that its hashes differ without a fault, is Unknown. The error is for
// a cluster that answers nothing, and for the end of ctx.
func Compare(ctx context.Context, client *store.Client, o Options) (Result, error) {
	c := &comparison{client: client, Options: o.withDefaults()}
	var last round
	seen := 0
	for attempt := range c.Attempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return Result{}, fmt.Errorf("compare the members' histories: %w", context.Cause(ctx))
			case <-time.After(c.Pause):
			}
		}
		r, err := c.ask(ctx)
		if errors.Is(err, store.ErrNoBarrier) && attempt+1 < c.Attempts {
			c.Logger.Debug("no barrier yet", "err", err) // such as while a leader is elected
			continue
		}
		if err != nil {
			return Result{}, fmt.Errorf("compare the members' histories: %w", err)
		}
		last = r
		if r.moved != "" {
			c.Logger.Debug("members not comparable yet", "reason", r.moved)
			continue
		}
		if len(r.result.Divergent) == 0 {
			return r.result, nil
		}
		if seen++; seen > c.Confirm {
			return r.result, nil
		}
		c.Logger.Info("members differ, looking again", "revision", r.result.Revision, "members", r.result.Divergent)
	}
	return last.giveUp(c.Attempts), nil
}

func (o Options) withDefaults() Options {
	orDefault(&o.Attempts, DefaultAttempts)
	orDefault(&o.Pause, DefaultPause)
	orDefault(&o.Confirm, DefaultConfirm)
	orDefault(&o.Timeout, DefaultTimeout)
	o.Attempts = max(o.Attempts, o.Confirm+1)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func orDefault[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}

// comparison asks the members over and over.
type comparison struct {
	client *store.Client
	Options
}

// round is what all members said when they were asked once.
type round struct {
	result Result
	moved  string // why the answers are not about one history; empty where they are
}

// giveUp makes a result of answers that never were about one history, or that
// differed less often than would count.
func (r round) giveUp(attempts int) Result {
	if r.moved == "" {
		r.moved = "a difference was seen, and not often enough to count"
	}
	for _, h := range r.result.Hashes {
		r.result.Unknown = append(r.result.Unknown, Unknown{h.Member, fmt.Sprintf("%s, in %d attempts: compare again at a quieter time", r.moved, attempts)})
	}
	r.result.Hashes, r.result.Divergent, r.result.Undecided = nil, nil, false
	r.result.Revision, r.result.CompactRevision = 0, 0
	return r.result
}

// corruptMembers are those that a CORRUPT alarm is about, each once. Every member
// tells all alarms.
func corruptMembers(s store.Survey) []Member {
	var all []Member
	for _, m := range s.Members {
		for _, a := range m.Alarms {
			if a.Type == "CORRUPT" && !slices.ContainsFunc(all, func(k Member) bool { return k.ID == a.MemberID }) {
				all = append(all, memberOf(s, a.MemberID))
			}
		}
	}
	return all
}

func memberOf(s store.Survey, id uint64) Member {
	found := Member{ID: id}
	for _, m := range s.Membership {
		if m.ID == id && id != 0 {
			found.Name = m.Name
		}
	}
	for _, m := range s.Members {
		if m.MemberID == id && m.Err == nil {
			found.Endpoint = m.Endpoint
		}
	}
	return found
}

// ErrDivergent is what Result.Err wraps.
var ErrDivergent = errors.New("members' histories differ")
