package sources

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// ArchivePrefix begins the name of every archived timeline among the sources; the
// timeline is behind it and, where there are several repositories, "@" and the
// number of the repository.
const ArchivePrefix = "archive:"

// archived is one timeline of a repository while it is looked at.
type archived struct {
	archive *Archive
	// read yields the entries of a part of its log.
	read func(ctx context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error]
}

// openArchives reads what a repository has of all timelines, without bodies. They come
// with the error that the repository holds less than before.
func openArchives(ctx context.Context, repo *repository.Repository, suffix string, identities []age.Identity) ([]*archived, error) {
	inventory, err := walreplay.ReadInventory(ctx, repo)
	if err != nil {
		return nil, err
	}
	ranges, err := inventory.Ranges(ctx)
	if err != nil {
		return nil, err
	}
	rolledBack := inventory.CheckReached(ctx)
	var less *walreplay.RolledBackError
	if rolledBack != nil && !errors.As(rolledBack, &less) {
		return nil, rolledBack
	}
	err = inventory.CheckStartedOver(ctx)
	var over *snapshot.StartedOverError
	if err != nil && !errors.As(err, &over) {
		return nil, err
	}
	var all []*archived
	for _, t := range inventory.Timelines {
		log, err := segment.OpenLog(ctx, repo, t.ID, inventory.EncryptedSince[t.ID], identities...)
		if err != nil {
			return nil, err
		}
		a := &archived{read: log.Entries, archive: &Archive{
			Name: ArchivePrefix + t.ID.String() + suffix, Repository: repo.String(), Timeline: t.ID, Reason: t.Reason, Parent: t.Parent,
			Fulls: []Full{}, Ranges: []walreplay.Range{}, Log: []Range{},
		}}
		if over != nil && t.ID.ClusterID == over.From.ClusterID && t.ID != over.From {
			a.archive.Lost = true
			a.archive.find(KindStartedOver, "if it is the one to continue with, name it with --source, or accept it first: requorum accept "+t.ID.String(), "its cluster began again without writes that timeline %s holds, and nobody has answered that", over.From)
		}
		if err := a.fill(ctx, inventory, ranges, log); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, rolledBack
}

func (a *archived) fill(ctx context.Context, inventory *walreplay.Inventory, ranges []walreplay.Range, log *segment.Log) error {
	to := a.archive
	ended, there, err := inventory.Repo.Superseded(ctx, to.Timeline)
	switch {
	case err != nil && !errors.Is(err, repository.ErrAltered):
		return err
	case err != nil:
		to.Superseded = &repository.Superseded{Timeline: to.Timeline, Reason: "the mark that says by what is damaged"}
	case there:
		to.Superseded = &ended
	}
	a.addFulls(inventory.Catalog)
	for _, r := range ranges {
		if r.Timeline != to.Timeline {
			continue
		}
		to.Ranges = append(to.Ranges, r)
		// The log before the first full snapshot is no gap.
		if r.Gap && (len(to.Fulls) == 0 || to.Fulls[0].Index < r.LastIndex) {
			to.find(KindGap, "", "nothing between raft index %d and %d can be restored from it: %s", r.FirstIndex, r.LastIndex, r.Reason)
		}
		to.Revision = max(to.Revision, r.LastRevision)
		a.see(r.LastIndex, Observation{r.LastIndex, r.To})
	}
	for _, s := range log.Coverage() {
		to.Log = append(to.Log, Range{s.FirstIndex, s.LastIndex})
		to.LastTerm = s.LastTerm
	}
	for _, d := range log.Damaged() {
		to.find(KindBrokenLog, "", "a segment of the archived log cannot be used: %v", d.Err)
	}
	a.addHeld(log)
	to.Highest, err = inventory.HighestRevision(ctx, to.Timeline)
	return err
}

func (a *archived) addFulls(catalog *snapshot.Catalog) {
	to := a.archive
	for _, m := range catalog.Manifests {
		if m.Timeline != to.Timeline {
			continue
		}
		if err := catalog.CheckEncrypted(m); err != nil {
			to.find(KindBackup, "'requorum restore' takes it where it is named", "%v", err)
			continue
		}
		full := Full{ID: m.ID, Index: m.Facts.RaftIndex, Term: m.Facts.RaftTerm, Revision: m.Facts.Revision, Size: m.Object.RawSize, Taken: m.Started, Members: m.Facts.Members, Encrypted: m.Object.Encrypted()}
		to.Fulls = append(to.Fulls, full)
		to.Revision = max(to.Revision, full.Revision)
		a.see(full.Index, Observation{full.Index, full.Taken})
	}
	slices.SortStableFunc(to.Fulls, func(x, y Full) int { return cmp.Compare(x.Index, y.Index) })
	damaged := slices.DeleteFunc(slices.Clone(catalog.Damaged), func(d snapshot.Unusable) bool { return d.Timeline != to.Timeline })
	if n := len(damaged); n > 0 {
		to.find(KindBackup, "'requorum list' shows all of them; an older one, with the log after it, may do", "%s passed over, the first because %v", counted(uint64(n), "backup is", "backups are"), damaged[0].Err)
	}
}

// see keeps the furthest observation.
func (a *archived) see(index uint64, o Observation) {
	if s := &a.archive.Seen; index > s.Index || index == s.Index && o.Time.After(s.Time) {
		*s = o
	}
}

// addHeld says how far the log of each member was read.
func (a *archived) addHeld(log *segment.Log) {
	held := map[snapshot.ID]uint64{}
	for _, h := range log.Headers() {
		if h.Level == 0 && h.Member != 0 {
			held[h.Member] = max(held[h.Member], h.LastIndex)
		}
		a.see(h.LastIndex, Observation{h.LastIndex, h.LastMark})
	}
	for _, m := range log.Heartbeat() {
		a.see(m.Index, Observation{m.Index, m.Time})
	}
	for _, member := range slices.Sorted(maps.Keys(held)) {
		a.archive.Held = append(a.archive.Held, Held{member, held[member]})
	}
}

// entries yields the archived entries from first on, over all gaps.
func (a *archived) entries(ctx context.Context, first uint64) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		for _, s := range a.archive.Log {
			if s.Last < first {
				continue
			}
			for e, err := range a.read(ctx, max(s.First, first), s.Last) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// cutAfter leaves out what cannot be read.
func (a *archived) cutAfter(index, term uint64) {
	kept := []Range{}
	for _, s := range a.archive.Log {
		if s.First <= index {
			kept = append(kept, Range{s.First, min(s.Last, index)})
		}
	}
	a.archive.Log, a.archive.LastTerm = kept, term
}

// follow looks at the entries from an index on. Where they go on from the newest full
// snapshot, they show who the members are at the end.
func (a *archived) follow(first uint64) *follower {
	f := &follower{log: &Log{}, committed: math.MaxUint64}
	if m := a.archive.membership(); first <= m.Index+1 && a.goesOn(m.Index) {
		f.state, f.from = m, m.Index
	}
	return f
}

// goesOn reports whether the log after an index was archived without a gap.
func (a *archived) goesOn(index uint64) bool {
	n := len(a.archive.Log)
	return n == 0 || a.archive.Log[n-1].First <= index+1
}

// finish takes over what went by, from an index on.
func (a *archived) finish(f *follower, first uint64, err error) {
	a.archive.Forced, a.archive.Changed = f.log.Forced, f.log.Changed
	if err == nil {
		if f.from > 0 && f.problem == nil {
			a.archive.members = f.state
		}
		return
	}
	var identity *codec.IdentityError
	if !errors.As(err, &identity) {
		a.cutAfter(max(f.last.Index, first-1), f.last.Term)
	}
	a.archive.Unreadable = err.Error()
	a.archive.find(KindUnreadable, "give the identity where the log is encrypted; what could not be compared is not joined with any member's log", "the archived log could not be read to its end: %v", err)
}
