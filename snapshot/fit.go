package snapshot

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/store"
)

// askFit is how often members are asked again whether one of them is fit.
const askFit = time.Second

// candidates are the members to read, best first and unfit ones last. Where all
// are unfit it waits for one, as long as the request says: what it asks then
// still has the barrier to reach.
func (t *taking) candidates(ctx context.Context) ([]store.MemberStatus, error) {
	end := time.Now().Add(t.Fit)
	for {
		list := t.Client.Candidates(t.survey, t.barrier)
		if len(list) < 2 && t.Fit == 0 {
			return list, nil // there is nothing to choose
		}
		fit, err := t.fit(ctx, list)
		if err != nil {
			return nil, err
		}
		// All fit ones keep their order, and so do the others behind them.
		ordered := slices.Concat(pick(list, fit, true), pick(list, fit, false))
		if slices.Contains(fit, true) || !time.Now().Before(end) {
			return ordered, nil
		}
		t.Progress(Progress{Phase: "fit"})
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for a member that is fit to be read: %w", context.Cause(ctx))
		case <-time.After(askFit):
		}
		// Another one may answer by now, or lead. Nobody does: they are asked as
		// they were.
		if survey, err := t.Client.Survey(ctx); err == nil {
			t.survey = survey
		}
	}
}

// fit tells of each member whether it is fit.
func (t *taking) fit(ctx context.Context, list []store.MemberStatus) ([]bool, error) {
	found := make([]store.Fitness, len(list))
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, member := range list {
		wg.Go(func() { found[i], errs[i] = t.Client.Fitness(ctx, member) })
	}
	wg.Wait()
	fit := make([]bool, len(list))
	for i, member := range list {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if fit[i] = found[i].Fit(); !fit[i] {
			t.Logger.Info("member unfit to be read now", "member", memberName(member), "endpoint", member.Endpoint, "reason", found[i].Unfit)
		}
	}
	return fit, nil
}

func pick(list []store.MemberStatus, fit []bool, want bool) (picked []store.MemberStatus) {
	for i, member := range list {
		if fit[i] == want {
			picked = append(picked, member)
		}
	}
	return picked
}
