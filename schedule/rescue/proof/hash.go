package proof

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/snapshot"
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
	case first.CompactedRevision > 0 && oldHash(voters[0].status.Version):
		c.source = fmt.Sprintf("etcd %s computes HashKV in another way than those from 3.4.34 and 3.5.16 on, where keys were deleted before a compaction", voters[0].status.Version)
	default:
		c.wrong = fmt.Sprintf("HashKV of all members is %d at revision %d, and of what was rebuilt it is %d", first.Hash, first.Revision, want.Hash)
	}
	return c, nil
}

// hashOf is a member's HashKV at the source's revision, or its newest.
func (p *proving) hashOf(ctx context.Context, m *member) (snapshot.HashKV, error) {
	revision := int64(0)
	// 3.4 does not give the hash at a revision that is compacted, which the newest
	// one may be.
	if p.HashKV != nil && m.status.Revision != p.HashKV.Revision {
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

// oldHash tells versions whose hash leaves other tombstones out.
func oldHash(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 || major != 3 {
		return false
	}
	return minor < 4 || minor == 4 && patch < 34 || minor == 5 && patch < 16
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
