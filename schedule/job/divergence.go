package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
)

const (
	// compareAttempts is how often members are asked, with a pause between, until
	// they answer about the same history: a compaction between two answers makes
	// them say nothing. Kubernetes compacts every five minutes.
	compareAttempts = 8
	comparePause    = 2 * time.Second
	// compareAgain is how often a difference must be seen again, at another
	// revision, before it counts. One is proof enough by etcd's own word; the
	// price of a false alarm at night is higher than that of asking twice more.
	compareAgain = 2
	// compareTimeout bounds one member's answer: 1.4 GB take it a second when they
	// are in memory, and much longer when the disk is asked.
	compareTimeout = 2 * time.Minute
	// atOnce is the size of a database up to which all members are asked at the
	// same time. A member serves nothing while it computes, here for a few tens of
	// milliseconds; with larger ones a quorum goes on serving.
	atOnce = 64 << 20
)

// Comparison is what a comparison showed.
type Comparison struct {
	// Revision is the one that the hashes go up to, CompactRevision the one that
	// was compacted; 0 where nothing could be compared.
	Revision        int64 `json:"revision,omitempty"`
	CompactRevision int64 `json:"compact_revision,omitempty"`
	// Hashes are of the members that were compared.
	Hashes []MemberHash `json:"hashes"`
	// Divergent are the members whose history differs from that of the majority.
	// Where there is no majority it is all that were compared.
	Divergent []Member `json:"divergent"`
	// Unknown are those that could not be compared, and why.
	Unknown []Unknown `json:"unknown"`
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

// Compare holds the members of a cluster against each other: all must have the same
// history of keys. One that was altered on its disk, or by a fault of etcd, serves
// other data than the rest and nobody notices, until it leads.
//
// It asks the members for their HashKV at one revision that all have applied. It
// needs the root role where authentication is on. Each member pauses while it
// computes (about a second for 1.4 GB); the leader is asked last. So: rarely, and at a
// quiet time.
//
// Hashes count only where both revisions that they depend on are equal. Who
// cannot be asked now (learners, members that are unfit or silent), or whose etcd
// is so old that its hashes differ without a fault, is Unknown. The error is for
// a cluster that answers nothing, and for the end of ctx.
func Compare(ctx context.Context, cli *client.Client, logger *slog.Logger) (Comparison, error) {
	return (&comparison{client: cli, logger: logger, attempts: compareAttempts, pause: comparePause}).run(ctx)
}

func (c *comparison) run(ctx context.Context) (Comparison, error) {
	var last comparisonRound
	seen := 0
	for attempt := range c.attempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return Comparison{}, fmt.Errorf("compare the members' histories: %w", context.Cause(ctx))
			case <-time.After(c.pause):
			}
		}
		r, err := c.ask(ctx)
		if errors.Is(err, client.ErrNoBarrier) && attempt+1 < c.attempts {
			c.logger.Debug("no barrier yet", "err", err) // such as while a leader is elected
			continue
		}
		if err != nil {
			return Comparison{}, fmt.Errorf("compare the members' histories: %w", err)
		}
		last = r
		if r.moved != "" {
			c.logger.Debug("members not comparable yet", "reason", r.moved)
			continue
		}
		if len(r.result.Divergent) == 0 {
			return r.result, nil
		}
		if seen++; seen > compareAgain {
			return r.result, nil
		}
		c.logger.Info("members differ, looking again", "revision", r.result.Revision, "members", r.result.Divergent)
	}
	return last.giveUp(c.attempts), nil
}

// comparison asks the members over and over.
type comparison struct {
	client   *client.Client
	logger   *slog.Logger
	attempts int
	pause    time.Duration
}

// comparisonRound is what all members said when they were asked once.
type comparisonRound struct {
	result Comparison
	moved  string // why the answers are not about one history; empty where they are
}

// giveUp makes a result of answers that never were about one history, or that
// differed less often than would count.
func (r comparisonRound) giveUp(attempts int) Comparison {
	if r.moved == "" {
		r.moved = "a difference was seen, and not often enough to count"
	}
	for _, h := range r.result.Hashes {
		r.result.Unknown = append(r.result.Unknown, Unknown{h.Member, fmt.Sprintf("%s, in %d attempts: compare again at a quieter time", r.moved, attempts)})
	}
	r.result.Hashes, r.result.Divergent = nil, nil
	r.result.Revision, r.result.CompactRevision = 0, 0
	return r.result
}

// ask asks each member once, at the revision that a quorum has confirmed.
func (c *comparison) ask(ctx context.Context) (comparisonRound, error) {
	survey, err := c.client.Survey(ctx)
	if err != nil {
		return comparisonRound{}, err
	}
	barrier, err := c.client.Barrier(ctx, survey)
	if err != nil {
		return comparisonRound{}, err
	}
	var r comparisonRound
	var members []client.MemberStatus
	members, r.result.Unknown = askable(survey)
	answers := c.askMembers(ctx, members, barrier)
	if ctx.Err() != nil {
		return comparisonRound{}, context.Cause(ctx)
	}
	r.take(answers, barrier.Revision)
	return r, nil
}

// askable are the members to ask, the leader last, and who cannot be asked.
func askable(s client.Survey) (members []client.MemberStatus, silent []Unknown) {
	var leaders []client.MemberStatus // two during an election
	for _, m := range s.Members {
		switch {
		case m.Err != nil:
			// It is one of the membership's below.
		case m.IsLearner:
			silent = append(silent, Unknown{member(m), "it is a learner, which computes no hash"})
		case m.IsLeader:
			leaders = append(leaders, m)
		default:
			members = append(members, m)
		}
	}
	for _, known := range s.Membership {
		if !slices.ContainsFunc(s.Members, func(m client.MemberStatus) bool { return m.Err == nil && m.MemberID == known.ID }) {
			silent = append(silent, Unknown{Member{ID: known.ID, Name: known.Name}, "no endpoint leads to it, or it does not answer"})
		}
	}
	return append(members, leaders...), silent
}

func member(m client.MemberStatus) Member {
	return Member{ID: m.MemberID, Name: m.Name, Endpoint: m.Endpoint}
}

// answer is what one member said.
type answer struct {
	member client.MemberStatus
	hash   client.HashKV
	err    error
}

// askMembers asks them one after the other, or all at once where that takes them
// no time.
func (c *comparison) askMembers(ctx context.Context, members []client.MemberStatus, b client.Barrier) []answer {
	answers := make([]answer, len(members))
	small := !slices.ContainsFunc(members, func(m client.MemberStatus) bool { return m.DBSize > atOnce })
	var wg sync.WaitGroup
	for i, m := range members {
		one := func() {
			hash, err := c.askOne(ctx, m, b)
			answers[i] = answer{m, hash, err}
		}
		if small {
			wg.Go(one)
			continue
		}
		one()
	}
	wg.Wait()
	return answers
}

func (c *comparison) askOne(ctx context.Context, m client.MemberStatus, b client.Barrier) (client.HashKV, error) {
	unfit, err := c.client.Unfit(ctx, m)
	if err != nil {
		return client.HashKV{}, err
	}
	if unfit != "" {
		return client.HashKV{}, errors.New(unfit)
	}
	if err := c.client.WaitApplied(ctx, m, b); err != nil {
		return client.HashKV{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	return c.client.HashKV(bounded, m, b.Revision)
}

// take compares the answers.
func (r *comparisonRound) take(answers []answer, revision int64) {
	var compared []answer
	for _, a := range answers {
		switch {
		case errors.Is(a.err, rpctypes.ErrCompacted):
			r.moved = "what was asked for is compacted already"
			compared = append(compared, a)
		case a.err != nil:
			r.result.Unknown = append(r.result.Unknown, Unknown{member(a.member), a.err.Error()})
		default:
			compared = append(compared, a)
		}
	}
	for i, a := range compared {
		r.result.Hashes = append(r.result.Hashes, MemberHash{member(a.member), a.member.Version, a.hash.Hash})
		if r.moved == "" && i > 0 && a.hash.CompactRevision != compared[0].hash.CompactRevision {
			r.moved = fmt.Sprintf("the cluster compacted between the answers (%d, %d)", compared[0].hash.CompactRevision, a.hash.CompactRevision)
		}
		if r.moved == "" && a.hash.HashRevision != revision {
			r.moved = fmt.Sprintf("member %s answered for revision %d, not %d", a.member, a.hash.HashRevision, revision)
		}
	}
	if r.moved != "" || len(compared) == 0 {
		return
	}
	r.result.Revision, r.result.CompactRevision = revision, compared[0].hash.CompactRevision
	r.result.judge()
}

// judge names who differs from the majority of those that were compared.
func (r *Comparison) judge() {
	votes := map[uint32]int{}
	for _, h := range r.Hashes {
		votes[h.Hash]++
	}
	if len(votes) < 2 {
		return
	}
	// Hashes of old servers differ without a fault: nothing is known of these.
	if i := slices.IndexFunc(r.Hashes, func(h MemberHash) bool { return snapshot.HashesOtherwise(h.Version) }); i >= 0 {
		for _, h := range r.Hashes {
			r.Unknown = append(r.Unknown, Unknown{h.Member, fmt.Sprintf("the hashes differ, but %s runs etcd %s, whose hash depends on how far its last compaction came; upgrade to 3.5.16, 3.4.34 or newer and compare again", r.Hashes[i].Member, r.Hashes[i].Version)})
		}
		r.Hashes, r.Revision, r.CompactRevision = nil, 0, 0
		return
	}
	for hash, n := range votes {
		if 2*n <= len(r.Hashes) {
			continue
		}
		for _, h := range r.Hashes {
			if h.Hash != hash {
				r.Divergent = append(r.Divergent, h.Member)
			}
		}
		return
	}
	for _, h := range r.Hashes {
		r.Divergent = append(r.Divergent, h.Member)
	}
}

// Text says in a sentence what came out.
func (r Comparison) Text() string {
	var text string
	switch n, differ := len(r.Hashes), len(r.Divergent); {
	case differ > 0 && differ == n:
		text = fmt.Sprintf("at revision %d no two histories of a majority are equal: it is not known which of %s is right", r.Revision, memberNames(r.Divergent))
	case differ > 0:
		text = fmt.Sprintf("at revision %d the history of %s differs from that of the %d other members that were compared", r.Revision, memberNames(r.Divergent), n-differ)
	case n == 0:
		text = "no member could be compared"
	case n == 1:
		text = fmt.Sprintf("only %s could be asked: there was nothing to compare it with", r.Hashes[0].Member)
	default:
		text = fmt.Sprintf("%d members have the same history up to revision %d", n, r.Revision)
	}
	if len(r.Divergent) > 0 {
		text += "; take no backup from there: compare with 'requorum verify', then remove the member and add it anew, empty"
	}
	for _, u := range r.Unknown {
		text += fmt.Sprintf("; %s was not compared: %s", u.Member, u.Reason)
	}
	return text
}

func memberNames(members []Member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.String())
	}
	return strings.Join(all, ", ")
}
