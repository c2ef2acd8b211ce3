package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/requorum/requorum/snapshot"
)

// Late waits, for as long as Grace, for the members that a proof went on without, and takes
// them into its report. Clients may write by now, so that a member is compared at the proof's
// own revision. One that still does not serve, or holds other keys than the others, stays in
// Report.Missing.
func Late(ctx context.Context, r Request, proof *Report) (err error) {
	r.HashKV = &proof.HashKV
	p, err := newProving(ctx, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.wait(ctx); err != nil {
		return err
	}
	if err := p.login(ctx); err != nil {
		return err
	}
	p.members = slices.DeleteFunc(p.members, func(m *member) bool {
		return !slices.ContainsFunc(proof.Missing, func(late Missing) bool { return late.Name == m.Name })
	})
	for _, m := range p.members {
		if m.serves {
			p.compareLate(ctx, m)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("prove the members that came up later: %w", context.Cause(ctx))
	}
	p.sayNameless()
	proof.Missing = nil
	for _, m := range p.members {
		if m.serves {
			late := p.memberReport(m)
			late.After += p.began.Sub(p.Started)
			proof.Members = append(proof.Members, *late)
		} else {
			proof.Missing = append(proof.Missing, Missing{m.Name, m.why})
		}
	}
	proof.Proved = append(proof.Proved, p.report.Proved...)
	proof.Unproved = append(proof.Unproved, p.report.Unproved...)
	return nil
}

// compareLate compares what a member holds with what the others were proved to hold.
func (p *proving) compareLate(ctx context.Context, m *member) {
	about := fmt.Sprintf("that %s, which came up later, holds the same keys", m.Name)
	want := *p.HashKV
	switch {
	case m.Learner:
		p.unproved("%s: learners give no HashKV", about)
		return
	case p.denied != "":
		p.unproved("%s: %s", about, p.denied)
		return
	case want.Revision == 0:
		p.unproved("%s: what the others hold is not known", about)
		return
	}
	var got snapshot.HashKV
	err := p.insist(ctx, func(ctx context.Context) (err error) {
		got, err = p.hashOf(ctx, m)
		return err
	})
	switch {
	case err != nil:
		p.unproved("%s: %v", about, err)
	case got.CompactedRevision != want.CompactedRevision:
		p.unproved("%s: it has compacted at revision %d, and the others had at %d", about, got.CompactedRevision, want.CompactedRevision)
	case got.Hash != want.Hash:
		m.serves, m.why = false, fmt.Sprintf("it holds other keys: its HashKV at revision %d is %d, and that of the others %d: stop it, and replace it (etcdctl member remove, member add)", want.Revision, got.Hash, want.Hash)
	default:
		p.memberReport(m).HashKV = got
		p.proved("HashKV of %s, which came up later, is the same", m.Name)
	}
}
