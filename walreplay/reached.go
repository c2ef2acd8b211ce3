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
	"github.com/requorum/requorum/store/safedir"
)

// RolledBackError reports that a timeline ends before the end that was seen of it.
type RolledBackError struct {
	Repository string
	Timeline   repository.TimelineID
	Was, Is    uint64 // raft indexes of its end; Is is 0 if the timeline is gone
	Seen       time.Time
	File       string // in which that is remembered
}

func (e *RolledBackError) Error() string {
	is := "is not there now"
	if e.Is > 0 {
		is = fmt.Sprintf("ends at raft index %d now", e.Is)
	}
	return fmt.Sprintf("%s holds less than before: timeline %s reached raft index %d on %s (%s), and %s: its newest objects were deleted or are hidden, or this is an older copy: look for the newest one",
		e.Repository, e.Timeline, e.Was, instant(e.Seen), e.File, is)
}

// reached is how far a timeline reached: the raft index that it could be restored to, and
// when that was seen first.
type reached struct {
	Index uint64    `json:"index"`
	Seen  time.Time `json:"seen"`
}

// reachedLimit bounds the file, in bytes: ten thousand timelines.
const reachedLimit = 1 << 20

// CheckReached compares how far timelines reach with what the keys' memory holds of them,
// and remembers what is newer: all timelines, or only some. It also notices that a
// timeline is gone that had grown when last any had. The error is a *RolledBackError, or that of reading.
// Without a memory, or if nobody's signature is checked, nothing is compared.
//
// Several processes may use one memory. Of two that write at once one is forgotten, so
// that less is noticed until the next one.
func (a *Inventory) CheckReached(ctx context.Context, only ...repository.TimelineID) error {
	memory := a.Repo.Memory()
	if memory == nil {
		return nil
	}
	id, err := hex.DecodeString(a.Repo.ID()) // whoever wrote it would name a file of ours
	if err != nil || len(id) == 0 {
		return fmt.Errorf("%s says that its ID is %q, which requorum writes nowhere: put %s back from a copy of the repository", a.Repo, a.Repo.ID(), repository.MarkerName)
	}
	path := filepath.Join(memory.Dir, a.Repo.ID()+".json")
	before, err := readReached(path)
	if err != nil && !memory.Allow {
		return err
	}
	now, at := maps.Clone(before), time.Now().UTC()
	less := func(t repository.TimelineID, is uint64) error {
		return &RolledBackError{a.Repo.String(), t, before[t].Index, is, before[t].Seen, path}
	}
	var all []repository.TimelineID
	for _, t := range a.Timelines {
		all = append(all, t.ID)
	}
	var last time.Time // when any grew
	for _, r := range before {
		if r.Seen.After(last) {
			last = r.Seen
		}
	}
	for t, r := range before {
		switch {
		case r.Index == 0 || !r.Seen.Equal(last) || slices.Contains(all, t):
		case !memory.Allow:
			return less(t, 0)
		default:
			delete(now, t)
		}
	}
	if len(only) > 0 {
		all = only
	}
	for _, t := range all {
		end, err := a.end(ctx, t)
		if err != nil {
			return fmt.Errorf("find the end of timeline %s in %s: %w", t, a.Repo, err)
		}
		if end < before[t].Index && !memory.Allow {
			// Of one that was superseded retention may delete the end, too.
			_, ended, err := a.Repo.Superseded(ctx, t)
			if err == nil && !ended {
				err = less(t, end)
			}
			if err != nil {
				return err
			}
		}
		if end != before[t].Index {
			now[t] = reached{end, at}
		}
	}
	if !maps.Equal(before, now) {
		if err := writeReached(path, now); err != nil {
			memory.Unkept(fmt.Errorf("how far %s reaches is not remembered, so that an older copy of it will not be noticed: %w", a.Repo, err))
		}
	}
	return nil
}

func readReached(path string) (map[repository.TimelineID]reached, error) {
	all := map[repository.TimelineID]reached{}
	data, err := safedir.ReadFile(path, reachedLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return map[repository.TimelineID]reached{}, fmt.Errorf("read how far the repository reached before: %s: %w: mend or remove it", path, err)
	}
	return all, nil
}

func writeReached(path string, all map[repository.TimelineID]reached) error {
	data, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = safedir.MkdirAll(filepath.Dir(path))
	}
	if err == nil {
		err = safedir.Replace(path, append(data, '\n'))
	}
	return err
}
