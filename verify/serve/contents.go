package serve

import (
	"maps"
	"slices"
	"sync"
	"time"

	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// errDiffer says that what was compared differs. It is looked at again before it
// counts: between two answers a cluster may go on.
var errDiffer = errors.New("it differs")

// checkRevision makes sure that nobody is behind what was rebuilt.
func (p *proving) checkRevision(ctx context.Context) {
	var behind []string
	err := p.insist(ctx, func(ctx context.Context) error {
		behind = nil
		for _, m := range p.members {
			if !m.serves {
				continue
			}
			now, err := p.client.Status(ctx, m.status)
			if err != nil {
				return err
			}
			m.status = now
			if now.Revision < p.RevisionAtLeast {
				behind = append(behind, fmt.Sprintf("member %s is at revision %d, and %d was rebuilt", m.Name, now.Revision, p.RevisionAtLeast))
			}
		}
		if len(behind) > 0 {
			return errDiffer
		}
		return nil
	})
	switch {
	case err == nil:
		p.proved("every member has reached revision %d", p.RevisionAtLeast)
	case errors.Is(err, errDiffer):
		p.report.Wrong = append(p.report.Wrong, behind...)
	default:
		p.unproved("the members' revisions: %s", p.because(err))
	}
}

// comparison is what the members' hashes showed.
type comparison struct {
	hashes []snapshot.HashKV // of the voters that serve, in their order
	wrong  string            // they differ
	// source is what kept them from being compared with the source's.
	source string
}

// checkHash compares what the members hold with each other, and with the source.
func (p *proving) checkHash(ctx context.Context) {
	const about = "that all members hold the same keys"
	if p.denied != "" {
		p.unproved("%s: %s", about, p.denied)
		return
	}
	var c comparison
	err := p.insist(ctx, func(ctx context.Context) (err error) {
		if c, err = p.compareHashes(ctx); err == nil && c.wrong != "" {
			err = errDiffer
		}
		return err
	})
	for i, m := range p.serving(false) {
		if i < len(c.hashes) {
			p.memberReport(m).HashKV = c.hashes[i]
		}
	}
	if errors.Is(err, errDiffer) {
		p.wrong("%s", c.wrong)
		return
	}
	if err != nil {
		p.unproved("%s: %v", about, err)
		return
	}
	h := c.hashes[0]
	p.report.HashKV, p.report.Revision = h, h.Revision
	p.proved("HashKV of %s is %d at revision %d, compacted at %d", p.names(false), h.Hash, h.Revision, h.CompactedRevision)
	switch {
	case p.HashKV == nil: // the revision was raised: no database has that hash
	case c.source != "":
		p.unproved("that the members hold what was rebuilt: %s", c.source)
	default:
		p.proved("it is the one that was computed of what was rebuilt")
	}
	p.countLearners(ctx)
}

func (p *proving) compareHashes(ctx context.Context) (comparison, error) {
	voters := p.serving(false)
	c := comparison{hashes: make([]snapshot.HashKV, len(voters))}
	group, limited := errgroup.WithContext(ctx)
	for i, m := range voters {
		group.Go(func() (err error) {
			c.hashes[i], err = p.hashOf(limited, m)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return comparison{}, err
	}
	var each []string
	differ := false
	first := c.hashes[0]
	for i, h := range c.hashes {
		if h.Revision != first.Revision || h.CompactedRevision != first.CompactedRevision {
			return comparison{}, fmt.Errorf("%s answers about revision %d, compacted at %d, and %s about %d, compacted at %d: something writes", voters[0].Name, first.Revision, first.CompactedRevision, voters[i].Name, h.Revision, h.CompactedRevision)
		}
		differ = differ || h.Hash != first.Hash
		each = append(each, fmt.Sprintf("%s %d", voters[i].Name, h.Hash))
	}
	want := p.HashKV
	switch {
	case differ && want != nil:
		c.wrong = fmt.Sprintf("the members hold other keys: HashKV at revision %d is %s; of what was rebuilt it is %d", first.Revision, strings.Join(each, ", "), want.Hash)
	case differ:
		c.wrong = fmt.Sprintf("the members hold other keys: HashKV at revision %d is %s", first.Revision, strings.Join(each, ", "))
	case want == nil || first.Hash == want.Hash && first.CompactedRevision == want.CompactedRevision:
	case first.CompactedRevision != want.CompactedRevision:
		c.source = fmt.Sprintf("they have compacted at revision %d, and what was rebuilt at %d: the hashes cannot be compared", first.CompactedRevision, want.CompactedRevision)
	case first.CompactedRevision > 0 && snapshot.HashesOtherwise(voters[0].status.Version):
		c.source = fmt.Sprintf("etcd %s computes HashKV in another way than those from 3.5.16 on, where keys were deleted before a compaction", voters[0].status.Version)
	default:
		c.wrong = fmt.Sprintf("HashKV of all members is %d at revision %d, and of what was rebuilt it is %d", first.Hash, first.Revision, want.Hash)
	}
	return c, nil
}

// hashOf is a member's HashKV at the source's revision, or its newest.
func (p *proving) hashOf(ctx context.Context, m *member) (snapshot.HashKV, error) {
	revision := int64(0)
	if p.HashKV != nil {
		revision = p.HashKV.Revision
	}
	got, err := p.client.HashKV(ctx, m.status, revision)
	if err != nil {
		return snapshot.HashKV{}, fmt.Errorf("HashKV of %s: %w", m.Name, err)
	}
	if p.HashKV != nil && got.HashRevision != p.HashKV.Revision {
		if m.status, err = p.client.Status(ctx, m.status); err == nil {
			err = fmt.Errorf("%s gave the hash at revision %d, and %d was meant", m.Name, got.HashRevision, p.HashKV.Revision)
		}
		return snapshot.HashKV{}, err
	}
	return snapshot.HashKV{Obtained: "asked of " + m.Name, Hash: got.Hash, Revision: got.HashRevision, CompactedRevision: got.CompactRevision}, nil
}

// countLearners counts what learners hold: they give no hash.
func (p *proving) countLearners(ctx context.Context) {
	learners := p.serving(true)
	if len(learners) == 0 {
		return
	}
	p.unproved("that %s what the others hold: learners give no HashKV", hold(p.names(true), len(learners)))
	p.check(ctx, "the number of keys on learners", func(ctx context.Context) error {
		want, err := p.client.CountKeys(ctx, p.serving(false)[0].status, p.report.Revision)
		if err != nil {
			return err
		}
		for _, m := range learners {
			got, err := p.client.CountKeys(ctx, m.status, p.report.Revision)
			if err != nil {
				return err
			}
			if got != want {
				p.wrong("learner %s holds %d keys at revision %d, and the others hold %d", m.Name, got, p.report.Revision, want)
				return nil
			}
		}
		p.proved("%s as many keys as the others at revision %d: %d", hold(p.names(true), len(learners)), p.report.Revision, want)
		return nil
	})
}

func hold(names string, n int) string {
	if n == 1 {
		return names + " holds"
	}
	return names + " hold"
}

// names are those of the voters, or learners, that serve.
func (p *proving) names(learners bool) string {
	var all []string
	for _, m := range p.serving(learners) {
		all = append(all, m.Name)
	}
	return strings.Join(all, ", ")
}

func (p *proving) memberReport(m *member) *MemberReport {
	for i := range p.report.Members {
		if p.report.Members[i].ID == m.ID {
			return &p.report.Members[i]
		}
	}
	return &MemberReport{}
}

// checkLeases looks whether the leases of what was rebuilt are there. Those that
// were short may have ended since the start, as they should.
func (p *proving) checkLeases(ctx context.Context) {
	const about = "the leases"
	if p.Expected == nil {
		p.unproved("%s: which ones what was rebuilt holds is not known here", about)
		return
	}
	p.check(ctx, about, func(ctx context.Context) error {
		living := map[int64]bool{}
		asked := time.Since(p.Started)
		err := p.client.Ask(ctx, p.serving(false)[0].status, "listing leases", func(ctx context.Context, conn grpc.ClientConnInterface) error {
			all, err := pb.NewLeaseClient(conn).LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
			for _, l := range all.GetLeases() {
				living[l.ID] = true
			}
			return err
		})
		if err != nil {
			return err
		}
		var gone []snapshot.Lease
		for _, l := range p.Expected.Leases {
			// A moment more: what takes a member long to answer takes time from a lease.
			if !living[l.ID] && time.Duration(l.Left)*time.Second > asked+time.Since(p.Started) {
				gone = append(gone, l)
			}
		}
		switch {
		case len(gone) > 0:
			p.wrong("%s, such as %016x, which was to live %d s", report.Counted(len(gone), "lease of what was rebuilt is not there", "leases of what was rebuilt are not there"), gone[0].ID, gone[0].Left)
		case p.Expected.LeaseCount > len(p.Expected.Leases):
			p.proved("%d of the %d leases were looked for, and are there or have ended since", len(p.Expected.Leases), p.Expected.LeaseCount)
		default:
			p.proved("%s there, or ended since", leases(p.Expected.LeaseCount))
		}
		return nil
	})
}

func leases(n int) string {
	switch n {
	case 0:
		return "there was no lease; what was rebuilt holds none that has to be"
	case 1:
		return "the lease of what was rebuilt is"
	}
	return fmt.Sprintf("all %d leases of what was rebuilt are", n)
}

// checkAuth compares users and roles, and whether they are enforced.
func (p *proving) checkAuth(ctx context.Context) {
	if p.Expected == nil {
		p.unproved("whether users and roles are those of what was rebuilt: what it holds of them is not known here")
		return
	}
	if p.auth != p.Expected.AuthEnabled {
		p.wrong("authentication is %s, and was %s in what was rebuilt", onOff(p.auth), onOff(p.Expected.AuthEnabled))
		return
	}
	p.proved("authentication is %s, as in what was rebuilt", onOff(p.auth))
	p.check(ctx, "the users and roles", func(ctx context.Context) error {
		var users *pb.AuthUserListResponse
		var roles *pb.AuthRoleListResponse
		var auth *pb.AuthStatusResponse
		err := p.client.Ask(ctx, p.serving(false)[0].status, "asking for users and roles", func(ctx context.Context, conn grpc.ClientConnInterface) (err error) {
			client := pb.NewAuthClient(conn)
			if users, err = client.UserList(ctx, &pb.AuthUserListRequest{}); err != nil {
				return err
			}
			if roles, err = client.RoleList(ctx, &pb.AuthRoleListRequest{}); err != nil {
				return err
			}
			auth, err = client.AuthStatus(ctx, &pb.AuthStatusRequest{})
			return err
		})
		if err != nil {
			return err
		}
		right := p.sameNames("users", users.Users, p.Expected.Users)
		right = p.sameNames("roles", roles.Roles, p.Expected.Roles) && right
		if auth.AuthRevision != p.Expected.AuthRevision {
			right = false
			p.wrong("the revision of users and roles is %d, and was %d in what was rebuilt", auth.AuthRevision, p.Expected.AuthRevision)
		}
		if right {
			p.proved("it has the %s and %s of what was rebuilt", report.Counted(len(users.Users), "user", "users"), report.Counted(len(roles.Roles), "role", "roles"))
		}
		return nil
	})
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (p *proving) sameNames(what string, got, want []string) bool {
	if slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		return true
	}
	p.wrong("it has the %s %q, and what was rebuilt has %q", what, got, want)
	return false
}

// checkKeys reads the keys that a drill expects, each from one of the voters.
func (p *proving) checkKeys(ctx context.Context) {
	if p.Expected == nil || p.Expected.keys == nil {
		return
	}
	const readers, mostNamed = 8, 10
	p.check(ctx, "the keys", func(ctx context.Context) error {
		var mu sync.Mutex
		var wrong []string
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(readers)
		voters := p.serving(false)
		for i, key := range slices.Sorted(maps.Keys(p.Expected.keys)) {
			m, want := voters[i%len(voters)], p.Expected.keys[key]
			group.Go(func() error {
				return p.client.Ask(ctx, m.status, "reading a key", func(ctx context.Context, conn grpc.ClientConnInterface) error {
					got, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte(key), Revision: p.HashKV.Revision})
					if err != nil {
						return err
					}
					var served *keyState
					if len(got.Kvs) > 0 {
						served = stateOf(got.Kvs[0])
					}
					if (served == nil) != (want == nil) || served != nil && *served != *want {
						mu.Lock()
						defer mu.Unlock()
						wrong = append(wrong, fmt.Sprintf("key %q, member %s: %s is served, and %s is in the database", key, m.Name, served, want))
					}
					return nil
				})
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		slices.Sort(wrong)
		for _, text := range wrong[:min(len(wrong), mostNamed)] {
			p.wrong("%s", text)
		}
		if more := len(wrong) - mostNamed; more > 0 {
			p.wrong("so do %s", report.Counted(more, "more key", "more keys"))
		}
		if len(wrong) == 0 {
			p.proved("%s, chosen at random, as in the database", report.Counted(len(p.Expected.keys), "key is served", "keys are served"))
		}
		return nil
	})
}
