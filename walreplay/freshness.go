package walreplay

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
)

// Freshness notices that a repository holds less than when it was last read: its newest
// objects were deleted, or are hidden, or an older copy stands in its place. Signatures
// say nothing of that, so it is compared with a file of the reader's own, which keeps how
// far each timeline reached. It counts only where signatures are checked: without, whoever
// can write to the repository could make it seem to have reached anything.
//
// Several processes may use one folder. Of two that write at once one is forgotten, so
// that less is noticed until the next one.
type Freshness struct {
	// Dir has one file for each repository. It is made when it is needed.
	Dir string
	// Allow takes a repository as it is, and remembers that.
	Allow bool
	// Unkept hears why what was seen is not remembered, which stops nobody.
	Unkept func(error)
}

// RolledBackError says that a timeline ends before what was seen of it.
type RolledBackError struct {
	Repository string
	Timeline   repository.TimelineID
	Was, Is    uint64 // raft indexes of its end; Is is 0 where the timeline is gone
	Seen       time.Time
	File       string // where that is remembered
}

func (e *RolledBackError) Error() string {
	is := "is not there now"
	if e.Is > 0 {
		is = fmt.Sprintf("ends at raft index %d now", e.Is)
	}
	return fmt.Sprintf("%s holds less than before: timeline %s reached raft index %d on %s (%s), and %s: its newest objects were deleted or are hidden, or this is an older copy: look for the newest one",
		e.Repository, e.Timeline, e.Was, instant(e.Seen), e.File, is)
}

// seenFile is what is remembered of a repository.
type seenFile struct {
	Repository string                             `json:"repository"`
	Timelines  map[repository.TimelineID]seenUpTo `json:"timelines"`
}

// seenUpTo is how far a timeline reached: the raft index that it could be restored to, and
// when that was seen first.
type seenUpTo struct {
	Index uint64    `json:"index"`
	Seen  time.Time `json:"seen"`
}

// maxSeen is of how many timelines the end is remembered: those seen last.
const maxSeen = 64

// Check compares some timelines with what was seen of them, and remembers what is newer.
// Of the timeline that grew last it also notices that it is gone. The error is a
// *RolledBackError, or that of reading. Without f nothing is compared.
func (f *Freshness) Check(ctx context.Context, a *Archives, c *snapshot.Catalog, timelines ...repository.TimelineID) error {
	if f == nil || f.Dir == "" || !a.repo.Checks() {
		return nil
	}
	id, err := hex.DecodeString(a.repo.ID()) // whoever wrote it would name a file of ours
	if err != nil || len(id) == 0 {
		return fmt.Errorf("%s says that its ID is %q, which requorum writes nowhere: put %s back from a copy of the repository", a.repo, a.repo.ID(), repository.MarkerName)
	}
	path := filepath.Join(f.Dir, a.repo.ID()+".json")
	seen, err := readSeen(path, a.repo.ID())
	if err != nil && !f.Allow {
		return err
	}
	before := maps.Clone(seen.Timelines)
	there := func(t repository.TimelineID) bool {
		return slices.ContainsFunc(c.Timelines, func(o repository.Timeline) bool { return o.ID == t })
	}
	var last repository.TimelineID
	for t, s := range before {
		if s.Seen.After(before[last].Seen) {
			last = t
		}
	}
	if before[last].Index > 0 && !there(last) {
		if !f.Allow {
			return &RolledBackError{a.repo.String(), last, before[last].Index, 0, before[last].Seen, path}
		}
		delete(seen.Timelines, last)
	}
	for _, t := range timelines {
		end, err := a.end(ctx, c, t)
		if err != nil {
			return err
		}
		was := before[t]
		if end < was.Index && !f.Allow {
			// Of one that was superseded retention may delete the end, too.
			if _, ended, err := a.repo.Superseded(ctx, t); err != nil {
				return err
			} else if !ended {
				return &RolledBackError{a.repo.String(), t, was.Index, end, was.Seen, path}
			}
		}
		if end != was.Index {
			seen.Timelines[t] = seenUpTo{end, time.Now().UTC()}
		}
	}
	if !maps.Equal(before, seen.Timelines) {
		if err := seen.write(path); err != nil && f.Unkept != nil {
			f.Unkept(fmt.Errorf("how far %s reaches is not remembered, so that an older copy of it will not be noticed: %w", a.repo, err))
		}
	}
	return nil
}

// end is the raft index that a timeline can be restored to: of its newest full snapshot, or
// of the last entry of the log that goes on from one; 0 where there is neither. What lies
// after a gap without a full snapshot hides nothing that was deleted before it. Without any
// full snapshot it is the end of the log up to its first gap.
func (a *Archives) end(ctx context.Context, c *snapshot.Catalog, t repository.TimelineID) (index uint64, err error) {
	var fulls []uint64
	for _, m := range c.Manifests {
		if m.Timeline == t && c.CheckEncrypted(m) == nil { // others could hide what was deleted
			fulls = append(fulls, m.Facts.RaftIndex)
			index = max(index, m.Facts.RaftIndex)
		}
	}
	log, err := a.open(ctx, c, t)
	if err != nil {
		return 0, fmt.Errorf("find the end of timeline %s in %s: %w", t, a.repo, err)
	}
	for i, s := range log.Coverage() {
		goesOn := func(full uint64) bool { return s.FirstIndex <= full+1 && full <= s.LastIndex }
		if len(fulls) == 0 && i == 0 || slices.ContainsFunc(fulls, goesOn) {
			index = max(index, s.LastIndex)
		}
	}
	return index, nil
}

func readSeen(path, repo string) (seenFile, error) {
	none := seenFile{repo, map[repository.TimelineID]seenUpTo{}}
	data, err := safedir.ReadFile(path, repository.DocumentLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	seen := none
	if err == nil {
		err = json.Unmarshal(data, &seen)
	}
	if err == nil && (seen.Repository != repo || seen.Timelines == nil) {
		err = fmt.Errorf("it is about repository %q", seen.Repository)
	}
	if err != nil {
		return none, fmt.Errorf("read how far the repository reached before: %s: %w: mend or remove it", path, err)
	}
	return seen, nil
}

func (s seenFile) write(path string) error {
	for len(s.Timelines) > maxSeen {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(s.Timelines)), func(a, b repository.TimelineID) int {
			return s.Timelines[a].Seen.Compare(s.Timelines[b].Seen)
		})
		delete(s.Timelines, oldest)
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = safedir.MkdirAll(filepath.Dir(path))
	}
	if err == nil {
		err = safedir.Replace(path, append(data, '\n'))
	}
	return err
}
