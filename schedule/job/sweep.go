package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

// MinimumKeep is the shortest time for which results stay: within it one may
// still come for a slot that another was faster with.
const MinimumKeep = late

// Sweep deletes the claims, beats and results of slots of which nothing was
// written for the time keep, at least MinimumKeep, by the repository's own clock.
// Of each job the newest success, the newest failure and the result of the newest
// slot of its schedule stay, whatever their age. What is locked stays for a later
// sweep; a missing right is an error, sinks.ErrDenied.
func (b *Board) Sweep(ctx context.Context, keep time.Duration) error {
	if keep < MinimumKeep {
		return fmt.Errorf("results of jobs are kept for %v at least, not %v", MinimumKeep, keep)
	}
	if _, err := b.History(ctx); err != nil && !errors.Is(err, repository.ErrAltered) {
		return err
	}
	claims, newestClaim, err := b.listSlots(ctx, "claims/", claimedSlot)
	if err != nil {
		return err
	}
	results, newestResult, err := b.listSlots(ctx, "jobs/", resultSlot)
	if err != nil {
		return err
	}
	now := newestClaim
	if newestResult.After(now) {
		now = newestResult
	}
	// Claims first: a holder that wakes up late finds its own gone, and has lost
	// even where the result that says so goes as well.
	for _, s := range claims {
		if now.Sub(s.newest) > keep {
			if err := b.remove(ctx, s.names); err != nil {
				return err
			}
		}
	}
	stays := b.staying(results)
	for key, s := range results {
		if now.Sub(s.newest) > keep && !stays[key] {
			if err := b.remove(ctx, s.names); err != nil {
				return err
			}
		}
	}
	return nil
}

// slotObjects are the objects of one slot.
type slotObjects struct {
	job, slot string
	names     []string
	newest    time.Time // by the repository's clock
}

// claimedSlot is the slot that a claim or a beat belongs to. The claims of others
// than agents have slots of other forms.
func claimedSlot(name string) (job, slot string, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 {
		return "", "", false
	}
	_, _, err := repository.ParseSlot(parts[2])
	return parts[1], parts[2], err == nil
}

func resultSlot(name string) (job, slot string, ok bool) {
	job, slot, _, err := repository.ParseJobName(name)
	return job, slot, err == nil
}

// listSlots lists what is under prefix by slotKey, and the time of the newest.
func (b *Board) listSlots(ctx context.Context, prefix string, parse func(string) (string, string, bool)) (map[string]*slotObjects, time.Time, error) {
	all := map[string]*slotObjects{}
	var newest time.Time
	for obj, err := range b.repo.Sink().List(ctx, prefix, "") {
		if err != nil {
			return nil, newest, fmt.Errorf("list %s in %s: %w", prefix, b.repo, err)
		}
		job, slot, ok := parse(obj.Name)
		if !ok {
			continue
		}
		s := all[slotKey(job, slot)]
		if s == nil {
			s = &slotObjects{job: job, slot: slot}
			all[slotKey(job, slot)] = s
		}
		s.names = append(s.names, obj.Name)
		if obj.ModTime.After(s.newest) {
			s.newest = obj.ModTime
		}
		if obj.ModTime.After(newest) {
			newest = obj.ModTime
		}
	}
	return all, newest, nil
}

// staying are the slots whose results stay whatever their age, by slotKey.
func (b *Board) staying(results map[string]*slotObjects) map[string]bool {
	stays := map[string]bool{}
	for job, h := range b.Known() {
		if h.LastSuccess != nil {
			stays[slotKey(job, h.LastSuccess.Slot)] = true
		}
		if h.LastFailure != nil {
			stays[slotKey(job, h.LastFailure.Slot)] = true
		}
	}
	newest := map[string]string{} // or it would be made up as a missed one
	for _, s := range results {
		if _, demand, err := repository.ParseSlot(s.slot); err == nil && !demand && !b.ahead(s.slot) {
			newest[s.job] = max(newest[s.job], s.slot)
		}
	}
	for job, slot := range newest {
		stays[slotKey(job, slot)] = true
	}
	return stays
}

func (b *Board) remove(ctx context.Context, names []string) error {
	for _, name := range names {
		err := b.repo.Sink().Delete(ctx, name)
		if err != nil && !errors.Is(err, sinks.ErrLocked) {
			return fmt.Errorf("remove what is left of an old slot: %w", err)
		}
	}
	return nil
}
