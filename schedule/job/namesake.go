package job

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

const (
	// namesakeMargin is by how much clocks may differ: a claim that is dated less than
	// this after the start of a process may be of the one before it, on another host.
	namesakeMargin = time.Minute
	// namesakeFor is how long a namesake is told of after it was seen last: a little
	// more than the time between two slots of a daily job.
	namesakeFor = 25 * time.Hour
	// namesakeClaims is how many claims Namesakes reads.
	namesakeClaims = 200
)

// namesake is what was seen of another agent with this one's name.
type namesake struct {
	since time.Time // of its first claim, by its clock
	seen  time.Time // when it was seen last, monotonic
}

// Namesake tells that another agent runs under this one's name, and since when at
// least: a claim of that name was made by another process after this one had begun.
// It asks nobody, and forgets a namesake that was not seen for a day.
func (b *Board) Namesake() (since time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.other.seen.IsZero() || time.Since(b.other.seen) > namesakeFor {
		return time.Time{}, false
	}
	return b.other.since, true
}

// meet looks whether a claim is a namesake's.
func (b *Board) meet(c repository.Claim) {
	now := time.Now()
	switch {
	case c.Holder != b.agent, c.Process == "", c.Process == b.process:
		return
	case !c.Created.After(b.began.Add(namesakeMargin)), c.Created.After(now.Add(namesakeMargin)): // or a clock was wrong
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.other.seen.IsZero() || now.Sub(b.other.seen) > namesakeFor || c.Created.Before(b.other.since) {
		b.other.since = c.Created
	}
	b.other.seen = now
}

// meetBehind looks whether a result under this agent's name that this process did
// not write is a namesake's. It reads a claim where that may be.
func (b *Board) meetBehind(ctx context.Context, r repository.JobResult) {
	b.mu.Lock()
	_, own := b.begun[slotKey(r.Job, r.Slot)]
	b.mu.Unlock()
	if own || r.Holder != b.agent || !r.Finished.After(b.began.Add(namesakeMargin)) {
		return
	}
	if claim, err := b.repo.ReadClaim(ctx, r.Job, r.Slot, r.Attempt); err == nil { // one that is gone tells nothing
		b.meet(claim)
	}
}

// Namesakes tells whether two agents called agent have run at the same time within
// a day: claims of one process stand between those of another, by the repository's
// clock. False is no proof of the opposite. It reads up to 200 claims.
func Namesakes(ctx context.Context, repo *repository.Repository, agent string) (bool, error) {
	var all []sinks.Object
	for obj, err := range repo.Sink().List(ctx, "claims/", "") {
		if err != nil {
			return false, fmt.Errorf("list the claims in %s: %w", repo, err)
		}
		if _, _, _, ok := parseClaim(obj.Name); ok {
			all = append(all, obj)
		}
	}
	slices.SortFunc(all, func(x, y sinks.Object) int { return y.ModTime.Compare(x.ModTime) })
	first, last := map[string]time.Time{}, map[string]time.Time{} // of each process
	var made []sinks.Object
	var process []string
	for i, obj := range all {
		if i == namesakeClaims || all[0].ModTime.Sub(obj.ModTime) > 24*time.Hour {
			break
		}
		job, slot, attempt, _ := parseClaim(obj.Name)
		claim, err := repo.ReadClaim(ctx, job, slot, attempt)
		if err != nil || claim.Holder != agent || claim.Process == "" {
			continue // gone, or no agent's
		}
		made, process = append(made, obj), append(process, claim.Process)
		if _, ok := last[claim.Process]; !ok {
			last[claim.Process] = obj.ModTime
		}
		first[claim.Process] = obj.ModTime
	}
	for i, obj := range made {
		for other := range first {
			if other != process[i] && obj.ModTime.After(first[other]) && obj.ModTime.Before(last[other]) {
				return true, nil
			}
		}
	}
	return false, ctx.Err()
}

// parseClaim reads the name of a claim on a slot.
func parseClaim(name string) (job, slot string, attempt int, ok bool) {
	job, slot, ok = claimedSlot(name)
	if !ok {
		return "", "", 0, false
	}
	var rest string
	n, err := fmt.Sscanf(name[len("claims/"+job+"/"+slot+"/"):], "%d%s", &attempt, &rest)
	return job, slot, attempt, err == nil && n == 2 && name == repository.ClaimName(job, slot, attempt)
}
