// Package serve proves that a cluster serves what it was built from: one that
// recovery built, through its client URLs (Prove), or one that is built of an image
// for that alone, and removed (Drill).
//
// It promises:
//
//  1. What was not looked at, for want of credentials or because a learner does not
//     serve it, is said to be unproved. Nothing is taken for proved. No quorum is an
//     error, always. A member that is not up while a quorum serves is none: the
//     report names it, and is not Complete; Late waits for it, and compares it.
//  2. The wait is bounded, and says at any time which member is waited for and why.
//  3. What Prove writes is below one prefix of its own, /requorum-proof-…, is bound
//     to a lease of half a minute, and is deleted in the end.
//  4. A drill says what is damaged from what could not be tried: no space, no port,
//     no memory and no time are Unchecked, never Damaged.
//  5. Nothing of a drill remains, also after a failure or a cancellation. The image
//     is only read; passwords in it stay unknown and are not needed.
//
// What the caller of Prove owes: that clients do not write meanwhile. Theirs would be
// no error, but they would have been let on a cluster that is not proved. A program
// that drills owes that DrillOptions.Command calls Members.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
)

// Defaults of Request.
const (
	// DefaultTimeout is how long members may take to come up: the kubelet alone can
	// take two minutes to start a static pod.
	DefaultTimeout = 5 * time.Minute
	// DefaultGrace is how much longer than the quorum a member may take.
	DefaultGrace = time.Minute
	// DefaultChecks bounds each check: HashKV of a database of many GB, from a slow
	// disk, takes its time.
	DefaultChecks = 2 * time.Minute
	// DefaultCall bounds one short request while members are waited for; a member
	// that does not answer in that time is asked again.
	DefaultCall = 2 * time.Second
)

// Request says which cluster is to be proved, and what it has to hold.
type Request struct {
	// Client reaches the new members; ClientURLs are those of each member by its
	// name, where they are known: they are asked beside Client.Endpoints, and who
	// does not answer is then called by its name. From 3.7 on, with authentication on
	// and nobody to log in as, nothing else says who a member is.
	Client     client.Config
	ClientURLs map[string][]string
	ClusterID  snapshot.ID
	Members    []restore.Member

	// RevisionAtLeast is what was rebuilt: a write has to have a later revision.
	RevisionAtLeast int64
	// HashKV is the source's, at its Revision; nil where the revision was raised:
	// the members are only compared with each other then.
	HashKV *snapshot.HashKV
	// AuthEnabled is whether the source enforces users and roles; nil if that is not
	// known, and it is unproved then.
	AuthEnabled *bool
	// Started is when the members were started, and zero when Prove was called: Late counts
	// from then.
	Started time.Time

	// Timeout bounds the wait for a quorum, and Grace that for the other members
	// from then on. Checks bounds each check after that. 0 is the default.
	Timeout, Grace, Checks time.Duration

	// Waiting hears about every second which members are waited for and why. Nil is
	// allowed.
	Waiting func(Waiting)
	Logger  *slog.Logger // nil is allowed
}

// Waiting is how far the wait is.
type Waiting struct {
	Quorum  bool // a quorum serves
	Missing []Missing
}

// Missing is a member that does not serve.
type Missing struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Prove waits until the cluster serves, and holds what it serves against what it
// has to. A cluster without a quorum in time is a *NoQuorumError, and one that is
// or holds something else than it has to a *WrongError; the report then says how
// far the proof got. What could not be looked at is in Report.Unproved, and is no
// error.
//
// It writes: a key below a prefix of its own, under a lease of its own, which are
// both gone when it returns.
func Prove(ctx context.Context, r Request) (_ *Report, err error) {
	p, err := newProving(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	defer func() { p.report.Took = time.Since(p.began) }()
	if err := p.wait(ctx); err != nil {
		return p.report, err
	}
	if err := p.login(ctx); err != nil {
		return p.report, err
	}
	p.sayNameless()
	for _, check := range []func(context.Context){p.checkMembers, p.checkHash, p.checkAuth, p.checkWrite} {
		check(ctx)
		if ctx.Err() != nil {
			return p.report, fmt.Errorf("prove the new cluster: %w", context.Cause(ctx))
		}
	}
	if len(p.report.Wrong) > 0 {
		return p.report, &WrongError{p.report.Wrong, p.failed}
	}
	return p.report, nil
}

// proving is one proof under way.
type proving struct {
	Request
	began   time.Time
	report  *Report
	members []*member
	// anyone asks without a login: what a member says to everybody. client is logged
	// in, where that is needed and was possible.
	anyone, client *client.Client
	auth           bool // is on
	denied         string
	failed         error // of the write
}

// member is one of the new ones, and what is known of it.
type member struct {
	restore.Member
	status client.MemberStatus
	serves bool
	after  time.Duration
	why    string // it does not serve
	// nameless: it did not say who it is, for want of a login. It answers at the
	// address of this member.
	nameless bool
}

func newProving(ctx context.Context, r Request) (*proving, error) {
	r.Timeout, r.Grace, r.Checks = cmp.Or(r.Timeout, DefaultTimeout), cmp.Or(r.Grace, DefaultGrace), cmp.Or(r.Checks, DefaultChecks)
	r.Client.CommandTimeout = cmp.Or(r.Client.CommandTimeout, DefaultCall)
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	p := &proving{Request: r, began: time.Now(), report: &Report{ClusterID: r.ClusterID, Proved: []string{}}}
	if p.Started.IsZero() {
		p.Started = p.began
	}
	voters := 0
	for _, m := range r.Members {
		p.members = append(p.members, &member{Member: m})
		if !m.Learner {
			voters++
		}
		for _, url := range r.ClientURLs[m.Name] {
			if !contains(p.Client.Endpoints, url) {
				p.Client.Endpoints = append(p.Client.Endpoints[:len(p.Client.Endpoints):len(p.Client.Endpoints)], url)
			}
		}
	}
	if voters == 0 {
		return nil, errors.New("prove the new cluster: no voting member was planned")
	}
	var err error
	p.anyone, err = p.dialAnyone(ctx)
	p.client = p.anyone
	return p, err
}

// dialAnyone makes a client that does not log in.
func (p *proving) dialAnyone(ctx context.Context) (*client.Client, error) {
	anyone := p.Client
	anyone.User, anyone.Password, anyone.Token = "", "", ""
	client, err := client.Dial(ctx, anyone)
	if err != nil {
		return nil, fmt.Errorf("prove the new cluster: %w", err)
	}
	return client, nil
}

func (p *proving) close() error {
	if p.client != p.anyone {
		return errors.Join(p.client.Close(), p.anyone.Close())
	}
	return p.anyone.Close()
}

// serving are the members that serve: voters, or learners.
func (p *proving) serving(learners bool) (all []*member) {
	for _, m := range p.members {
		if m.serves && m.Learner == learners {
			all = append(all, m)
		}
	}
	return all
}

func (p *proving) proved(format string, args ...any) {
	p.report.Proved = append(p.report.Proved, fmt.Sprintf(format, args...))
}

func (p *proving) unproved(format string, args ...any) {
	p.report.Unproved = append(p.report.Unproved, fmt.Sprintf(format, args...))
}

func (p *proving) wrong(format string, args ...any) {
	p.report.Wrong = append(p.report.Wrong, fmt.Sprintf(format, args...))
}

// Report is what was proved of a cluster, and what was not.
type Report struct {
	ClusterID snapshot.ID `json:"cluster_id"`
	// Quorum and All are how long it took from the start of the wait until a quorum
	// served, and all members; All is 0 where not all did.
	Quorum  time.Duration  `json:"quorum_nanoseconds"`
	All     time.Duration  `json:"all_nanoseconds,omitempty"`
	Took    time.Duration  `json:"took_nanoseconds"`
	Members []MemberReport `json:"members"`
	// Missing are members that were not up when the wait was over, or of which Late found
	// that they hold something else.
	Missing []Missing `json:"missing,omitempty"`
	// Revision is the one at which the members' hashes were compared.
	Revision int64 `json:"revision"`
	// HashKV is what all members agreed on there.
	HashKV snapshot.HashKV `json:"hash_kv"`
	// Proved and Unproved say in sentences what was looked at, and what could not be
	// with the reason; Wrong is what was found to be other than it has to be.
	Proved   []string `json:"proved"`
	Unproved []string `json:"unproved,omitempty"`
	Wrong    []string `json:"wrong,omitempty"`
}

// MemberReport is one member that served.
type MemberReport struct {
	Name     string          `json:"name"`
	ID       snapshot.ID     `json:"id"`
	Endpoint string          `json:"endpoint"`
	Version  string          `json:"version"`
	Learner  bool            `json:"learner,omitempty"`
	After    time.Duration   `json:"after_nanoseconds"` // it served that long after the start of the wait
	HashKV   snapshot.HashKV `json:"hash_kv,omitzero"`
}

// Complete reports whether all members served and everything was looked at.
func (r *Report) Complete() bool { return len(r.Missing)+len(r.Unproved)+len(r.Wrong) == 0 }

// NoQuorumError says that no quorum served in time.
type NoQuorumError struct {
	Waited  time.Duration
	Missing []Missing
}

func (e *NoQuorumError) Error() string {
	var why []string
	for _, m := range e.Missing {
		why = append(why, m.Name+": "+m.Why)
	}
	return fmt.Sprintf("no quorum of the new cluster serves after %s: %s", e.Waited.Round(time.Second), strings.Join(why, "; "))
}

// WrongError says that the cluster serves, and is or holds something else than it
// has to: clients must not be let on it.
type WrongError struct {
	Wrong []string
	Err   error // why it could not be written to; may be nil
}

func (e *WrongError) Error() string {
	return "the new cluster serves, and is not what was rebuilt: " + strings.Join(e.Wrong, "; ") + ": do not let clients on it"
}

func (e *WrongError) Unwrap() error { return e.Err }
