package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// contestant is one way to do the job that is measured.
type contestant struct {
	name string
	// prepare makes room for a run, outside of what is measured.
	prepare func() error
	run     func(context.Context) (usage, error)
	// stored is how many bytes a run left. It may be nil.
	stored func() (int64, error)
	// rounds bounds in how many counted rounds a slow one takes part, which then
	// does without one to warm up. 0: all.
	rounds int
}

// longest is after how long no further round of a contest is begun, so that all
// of it stays bounded on a slow machine, too. One round always counts.
const longest = 150 * time.Second

// outcome is what a contestant did in the rounds that count.
type outcome struct {
	name   string
	usages []usage
	stored int64 // in the last round
}

// contest runs all contestants once to warm up, then in rounds, one after the
// other, each round in the other direction than the last, so that no order
// favours anyone. What is dirty in the page cache is written out before each
// run.
func (b *bench) contest(ctx context.Context, rounds int, all []contestant) ([]outcome, error) {
	outcomes := make([]outcome, len(all))
	for i, c := range all {
		outcomes[i].name = c.name
	}
	began := time.Now()
	for round := range rounds + 1 {
		if round > 1 && time.Since(began) > longest {
			b.log.Warn("no more rounds: it takes too long", "of", rounds, "counted", round-1)
			break
		}
		order := make([]int, len(all))
		for i := range order {
			order[i] = i
		}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			if all[i].rounds > 0 && (round == 0 || round > all[i].rounds) {
				continue
			}
			if err := b.once(ctx, round, all[i], &outcomes[i]); err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", all[i].name, round, err)
			}
		}
	}
	return outcomes, nil
}

func (b *bench) once(ctx context.Context, round int, c contestant, o *outcome) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.prepare != nil {
		if err := c.prepare(); err != nil {
			return err
		}
	}
	syscall.Sync()
	u, err := c.run(ctx)
	if err != nil {
		return err
	}
	if c.stored != nil {
		if o.stored, err = c.stored(); err != nil {
			return err
		}
	}
	b.log.Info("measured", "round", round, "what", c.name, "wall", u.wall.Round(time.Millisecond), "cpu", u.cpu.Round(10*time.Millisecond),
		"rss", mebibytes(u.rss), "anon", mebibytes(u.anon), "stored", mebibytes(o.stored))
	if round > 0 {
		o.usages = append(o.usages, u)
	}
	return nil
}

func (o *outcome) wall() spread[time.Duration] {
	return spreadOf(each(o.usages, func(u usage) time.Duration { return u.wall }))
}

func (o *outcome) cpu() spread[time.Duration] {
	return spreadOf(each(o.usages, func(u usage) time.Duration { return u.cpu }))
}

func (o *outcome) rss() int64 {
	return slices.Max(each(o.usages, func(u usage) int64 { return u.rss }))
}

func (o *outcome) anon() int64 {
	return slices.Max(each(o.usages, func(u usage) int64 { return u.anon }))
}

// fasterThan is how many times faster this was than the other one in the same
// round.
func (o *outcome) fasterThan(other *outcome) spread[float64] {
	ratios := make([]float64, min(len(o.usages), len(other.usages)))
	for i := range ratios {
		ratios[i] = other.usages[i].wall.Seconds() / o.usages[i].wall.Seconds()
	}
	return spreadOf(ratios)
}

func each[T any](usages []usage, field func(usage) T) []T {
	values := make([]T, len(usages))
	for i, u := range usages {
		values[i] = field(u)
	}
	return values
}
