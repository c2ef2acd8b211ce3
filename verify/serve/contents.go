package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/requorum/requorum/snapshot"
)

// errDiffer says that what was compared differs. It is looked at again before it
// counts: between two answers a cluster may go on.
var errDiffer = errors.New("it differs")

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
	if len(p.serving(true)) > 0 {
		p.unproved("that %s holds what the others hold: learners give no HashKV", p.names(true))
	}
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

// checkAuth compares whether users and roles are enforced, and if they are, reads without a
// login, which has to be refused.
func (p *proving) checkAuth(ctx context.Context) {
	switch {
	case p.AuthEnabled == nil:
		p.unproved("whether authentication is as in what was rebuilt: that is not known here")
	case p.auth != *p.AuthEnabled:
		p.wrong("authentication is %s, and was %s in what was rebuilt", onOff(p.auth), onOff(*p.AuthEnabled))
		return
	default:
		p.proved("authentication is %s, as in what was rebuilt", onOff(p.auth))
	}
	if !p.auth {
		return
	}
	const about = "a read without a login"
	err := p.insist(ctx, func(ctx context.Context) error {
		return p.anyone.Ask(ctx, p.serving(false)[0].status, about, func(ctx context.Context, conn grpc.ClientConnInterface) error {
			_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte(prefix)})
			return err
		})
	})
	switch {
	case refused(err):
		p.proved("%s is refused", about)
	case err == nil && p.Client.Cert != "":
		p.unproved("that %s is refused: the certificate names a user", about)
	case err == nil:
		p.wrong("authentication is on, and %s is answered", about)
	default:
		p.unproved("that %s is refused: %v", about, err)
	}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
