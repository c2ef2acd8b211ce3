package replaying

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// backup checks a stored backup.
func (k *checking) backup(ctx context.Context, repo *repository.Repository, c *snapshot.Catalog, m *snapshot.Manifest) error {
	h, err := walreplay.NewInventory(repo, c, k.o.Identities...).History(ctx, m.Timeline)
	if err != nil {
		return err
	}
	candidates := bases(h, c, m)
	k.NoBase = len(candidates) == 0
	if k.NoBase {
		return noBase(ctx, h, c, m, k.o)
	}
	own := Database{"backup " + m.ID, k.o.Unpacked[m.ID]}
	if own.File == nil {
		return unchecked("it could not be unpacked: see the level structure")
	}
	facts, err := own.Facts(ctx)
	if err != nil {
		return err
	}
	if facts.RaftIndex != m.Facts.RaftIndex || facts.Revision != m.Facts.Revision || facts.CompactedRevision != m.Facts.CompactedRevision {
		k.found(report.KindFacts, "", "", "the database is at raft index %d, revision %d, compacted at %d; its manifest says %d, %d, %d",
			facts.RaftIndex, facts.Revision, facts.CompactedRevision, m.Facts.RaftIndex, m.Facts.Revision, m.Facts.CompactedRevision)
		return nil
	}
	return k.from(ctx, candidates, proof{h: h, first: isFirst(c, m), own: own, facts: facts, version: m.Source.Version, live: m.HashKV})
}

// from proves a database from the first of the candidates that is sound. Where
// that shows a difference, the next one is asked who is wrong.
func (k *checking) from(ctx context.Context, candidates []*walreplay.Base, p proof) error {
	var first *checking // after the first proof, which showed a difference
	for i, b := range candidates {
		here := k.fork()
		q := p
		q.checking, q.base = &here, k.o.unpacked(b)
		err := q.run(ctx)
		var damaged *baseError
		switch {
		case errors.As(err, &damaged) && first == nil && i == len(candidates)-1:
			return unchecked("%v, and there is no other one before it to begin from", damaged)
		case errors.As(err, &damaged):
			k.say("%v: an older one was begun from", damaged)
			continue
		case first != nil:
			if err != nil && ctx.Err() != nil {
				return err
			}
			k.judge(first, &here, candidates[i].Name, err)
			return nil
		case err != nil, !differs(here.Findings), i == len(candidates)-1:
			*k = here
			return err
		}
		first = &here
		first.other = b
	}
	*k = *first
	return nil
}

// differs reports whether two databases are another, as opposed to a log that
// cannot be replayed.
func differs(all []report.Finding) bool {
	return slices.ContainsFunc(all, func(f report.Finding) bool { return f.Kind == report.KindDifference || f.Kind == report.KindHash })
}

// judge says who is wrong after a second proof, from an older base.
func (k *checking) judge(first, second *checking, older string, err error) {
	switch {
	case err == nil && len(second.Findings) == 0 && second.Reason == "":
		k.compared = append(k.compared, second.compared...)
		k.Phases, k.Bytes = slices.Concat(first.Phases, second.Phases), first.Bytes+second.Bytes
		k.say("What %s and the log give is another state (%s): so it is %s that is wrong", first.other.Name, first.Findings[0], first.other.Name)
		k.convict(first, older)
		return
	case err == nil && len(second.Findings) > 0 && second.Findings[0].String() == first.Findings[0].String():
		first.say("%s and the log give the same as %s and the log: so it is this one that is wrong, or the log", older, first.other.Name)
	}
	*k = *first
}

// convict adds the check of the base that is wrong: whoever restores from it, or
// from a point behind it, gets that.
func (k *checking) convict(first *checking, older string) {
	m := first.other.Manifest
	if m == nil {
		return // of a member's directory, where each database has a check of its own
	}
	f := first.Findings[0]
	f.Object = ""
	f.Text = fmt.Sprintf("what this one and the log give is not what is in %s, while %s and the same log give just that: so it is this one that is wrong. There: %s", k.Object, older, f.Text)
	k.others = append(k.others, report.Check{
		Level: report.Replay, Status: report.Damaged, Object: ObjectOf(m), Findings: []report.Finding{f},
		Compared: strings.Join(first.compared, ". "),
	})
}

// noBase is why there is nothing to begin from: damage of the log, where it is
// that.
func noBase(ctx context.Context, h *walreplay.History, c *snapshot.Catalog, m *snapshot.Manifest, o Options) error {
	for _, b := range slices.Backward(h.Bases()) {
		if b.ID == m.ID || b.Index() >= m.Facts.RaftIndex {
			continue
		}
		_, err := h.Resolve(ctx, walreplay.Target{Kind: walreplay.AtIndex, Index: m.Facts.RaftIndex}, b.ID, o.walreplay(""))
		var log *walreplay.LogError
		if errors.As(err, &log) {
			return err
		}
		break
	}
	return &uncheckedError{reason: whyNone(h, m), notYet: isFirst(c, m)}
}

// baseError says that what a proof would begin from is damaged: which says
// nothing of what is to be proved.
type baseError struct {
	name string
	err  error
}

func (e *baseError) Error() string { return fmt.Sprintf("%s is damaged itself (%v)", e.name, e.err) }
func (e *baseError) Unwrap() error { return e.err }

// proof holds one database against what an earlier one and the log give.
type proof struct {
	*checking
	h       *walreplay.History
	base    *walreplay.Base
	own     Database // what is to be proved
	facts   snapshot.Facts
	first   bool            // nothing is before it in its timeline
	live    snapshot.HashKV // of a live member, about what is to be proved; Hash 0: none
	version string          // that it was read from; empty: not known

	rebuilt  *walreplay.Rebuilt
	replayed Database // what it is
}

// run replays by the rules of each etcd that can have applied the log, until the
// two databases agree: those of the member that the base was read from, and
// where it was upgraded until the snapshot, of that.
func (p *proof) run(ctx context.Context) error {
	var versions []string
	if p.base.Manifest != nil {
		versions = append(versions, p.base.Manifest.Source.Version)
	}
	if !slices.Contains(versions, p.version) {
		versions = append(versions, p.version)
	}
	var first *checking
	for i, v := range versions {
		before := p.fork()
		if err := p.once(ctx, v); err != nil {
			return err
		}
		if len(p.Findings) == 0 {
			if i > 0 {
				p.say("the log was replayed by the rules of etcd %s: those of %s, which %s was read from, give another state", v, versions[0], p.base.Name)
			}
			return nil
		}
		if first == nil {
			kept := p.fork()
			first = &kept
		}
		if i < len(versions)-1 {
			*p.checking = before
		}
	}
	*p.checking = *first // the first one's findings are the ones to name
	return nil
}

// once replays by one version's rules and compares.
func (p *proof) once(ctx context.Context, version string) (err error) {
	if err := p.rebuild(ctx, version); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.rebuilt.Close()) }()
	if p.Reason != "" {
		return nil
	}
	began := time.Now()
	p.o.progress("compare", 0, 0)
	own, err := p.own.HashKV(ctx, 0)
	if err != nil {
		return err
	}
	replayed := p.rebuilt.Recipe.HashKV
	same := replayed.Hash == own.Hash && replayed.Revision == own.Revision && replayed.CompactedRevision == own.CompactedRevision
	f, err := compare(ctx, p.replayed, p.own, same)
	if err != nil {
		return err
	}
	p.phase("compare", began)
	p.Bytes += p.replayed.Size() + p.own.Size()
	p.say("%s with what %s (raft index %d) and the %d entries of the log up to raft index %d give, replayed by etcd's own applier",
		p.own.Name, p.base.Name, p.base.Index(), p.facts.RaftIndex-p.base.Index(), p.facts.RaftIndex)
	switch {
	case f != nil:
		p.Findings = append(p.Findings, *f)
	case !same:
		p.found(report.KindHash, "", fmt.Sprintf("revision %d", own.Revision), "HashKV is %d at revision %d, compacted revision %d, in %s, and %d at %d, %d in %s",
			own.Hash, own.Revision, own.CompactedRevision, p.own.Name, replayed.Hash, replayed.Revision, replayed.CompactedRevision, p.replayed.Name)
	default:
		p.say("every row of the other buckets but those that each member writes by itself")
	}
	if len(p.Findings) > 0 {
		p.say("One of the three is wrong: %s, %s, or the log between them", p.own.Name, p.base.Name)
	}
	p.sayHash(replayed, own, same)
	return nil
}

// sayHash says what HashKV of the two is, and if they differ, which of them has the HashKV that a
// live member served for the snapshot.
func (p *proof) sayHash(replayed, own snapshot.HashKV, same bool) {
	if same {
		p.say("HashKV of both is %d at revision %d, compacted revision %d (of what was overwritten or deleted by then, nothing is left to compare)", own.Hash, own.Revision, own.CompactedRevision)
		return
	}
	p.say("HashKV differs: %d in %s, %d in %s", own.Hash, p.own.Name, replayed.Hash, p.replayed.Name)
	live := p.live
	switch {
	case live.Hash == 0, live.Revision != own.Revision, live.CompactedRevision != own.CompactedRevision:
	case live.Hash == replayed.Hash:
		p.say("The HashKV in its manifest (%s) is the replay's: so it is %s that is wrong", live.Obtained, p.own.Name)
	case live.Hash == own.Hash:
		p.say("The HashKV in its manifest (%s) is its own: so it is the log or %s that is wrong, or that member", live.Obtained, p.base.Name)
	default:
		p.say("The HashKV in its manifest (%s) is neither's", live.Obtained)
	}
}

// rebuild replays the log from the base to the snapshot's index.
func (p *proof) rebuild(ctx context.Context, version string) error {
	point := &walreplay.Point{Target: walreplay.Target{Kind: walreplay.AtIndex, Index: p.facts.RaftIndex}, Base: p.base, Last: p.facts.RaftIndex}
	r, err := p.h.Rebuild(ctx, point, p.o.walreplay(version))
	if err != nil {
		return p.blame(err)
	}
	p.rebuilt = r
	for _, t := range r.Phases {
		p.phaseTook(string(t.Phase), t.Took)
	}
	if p.replayed, err = databaseOf("the replay", r); err != nil {
		return errors.Join(err, r.Close())
	}
	if term := p.facts.RaftTerm; r.Recipe.Term != 0 && term != r.Recipe.Term {
		p.found(report.KindDifference, "", fmt.Sprintf("raft index %d", p.facts.RaftIndex), "the log's entry is of term %d, %s says %d: it is of another history", r.Recipe.Term, p.own.Name, term)
	}
	if got := r.Recipe.Revision; p.base.Image == nil && got < p.facts.Revision {
		p.Reason = fmt.Sprintf("the log begins with the cluster's first entry and gives revision %d, where %s is at %d: the cluster was itself restored from a backup that is not in this timeline, so there is nothing to begin from; the next full snapshot can be proved from this one",
			got, p.own.Name, p.facts.Revision)
		p.NotYet = p.first
	}
	return nil
}

// blame distinguishes damage of the base from that of the log.
func (p *proof) blame(err error) error {
	var (
		log     *walreplay.LogError
		damaged *snapshot.DamagedError
	)
	if !errors.As(err, &log) && errors.As(err, &damaged) {
		return &baseError{p.base.Name, err}
	}
	return err
}
