package proof

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
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
	// and nobody to log in as, nothing else tells who a member is.
	Client     store.ClientConfig
	ClientURLs map[string][]string
	ClusterID  snapshot.ID
	Members    []restore.Member

	// RevisionAtLeast is what every member has to have reached.
	RevisionAtLeast int64
	// HashKV is the source's, at its Revision; nil where the revision was raised:
	// the members are only compared with each other then.
	HashKV *snapshot.HashKV
	// Image is what else the source holds; nil where that is not known, and it is
	// unproved then.
	Image *Image
	// Started is when the members were started: leases that may have ended since
	// are not missed. Zero is when Prove was called.
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
	Quorum  bool          `json:"quorum"` // a quorum serves
	Since   time.Duration `json:"since_nanoseconds"`
	Serving []string      `json:"serving"`
	Missing []Missing     `json:"missing"`
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
	checks := []func(context.Context){
		// First, as short leases end soon.
		p.checkLeases, p.checkRevision, p.checkMembers, p.checkHash, p.checkAuth, p.checkAlarms, p.checkWrite,
	}
	for _, check := range checks {
		check(ctx)
		if ctx.Err() != nil {
			return p.report, fmt.Errorf("prove the new cluster: %w", context.Cause(ctx))
		}
	}
	if len(p.report.Wrong) > 0 {
		return p.report, &WrongError{p.report.Wrong}
	}
	return p.report, nil
}

// proving is one proof under way.
type proving struct {
	Request
	began   time.Time
	report  *Report
	members []*member
	// anyone asks without a login: what a member tells everybody. client is logged
	// in, where that is needed and was possible.
	anyone, client *store.Client
	auth           bool // is on
	denied         string
}

// member is one of the new ones, and what is known of it.
type member struct {
	restore.Member
	status store.MemberStatus
	serves bool
	after  time.Duration
	why    string // it does not serve
	// nameless: it did not tell who it is, for want of a login. It answers at the
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
func (p *proving) dialAnyone(ctx context.Context) (*store.Client, error) {
	anyone := p.Client
	anyone.User, anyone.Password, anyone.Token = "", "", ""
	client, err := store.Dial(ctx, anyone)
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
