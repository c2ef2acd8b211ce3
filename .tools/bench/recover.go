package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// recovered is what was measured of one way to recover.
type recovered struct {
	name   string
	rounds []recovery
}

// recovery is one round of it. Times count from the start of the command.
type recovery struct {
	serving
	began       time.Time
	ended       time.Duration // until the command had ended
	peak        peak          // of all that it runs, on all hosts together
	acked, lost int           // writes
	phases      []phaseTime   // these and rto are what requorum says
	rto         time.Duration
}

// phaseTime is how long a phase took.
type phaseTime struct {
	Name string        `json:"phase"`
	Took time.Duration `json:"nanoseconds"`
}

// recoveries measures how long it takes until three hosts serve again on which all
// members were killed: requorum, and by hand. In each round all of them begin with
// the same bytes on disk. None has a round to warm up: it comes unprepared in
// earnest, too.
func (o *options) recoveries(ctx context.Context, b *bench, r *report) (err error) {
	if r.crashSize, err = b.makeBackup(ctx, o.mebibytes<<20); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.path(oneRepo))) }()
	ways := b.ways()
	r.recovered = make([]recovered, len(ways))
	order := make([]int, len(ways))
	for i, w := range ways {
		r.recovered[i].name, order[i] = w.name, i
	}
	began := time.Now()
	for round := range o.recoverRounds {
		if round > 0 && time.Since(began) > longest {
			b.log.Warn("no more rounds: it takes too long", "of", o.recoverRounds, "counted", round)
			break
		}
		if err := b.recoverRound(ctx, ways, order, r); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		slices.Reverse(order)
	}
	return nil
}

// recoverRound has a crash of its own.
func (b *bench) recoverRound(ctx context.Context, ways []way, order []int, r *report) (err error) {
	c, err := b.crash(ctx)
	if err != nil {
		return fmt.Errorf("the crash: %w", err)
	}
	defer func() { err = errors.Join(err, c.remove()) }()
	for _, i := range order {
		got, err := c.recover(ctx, ways[i], r.crashSize.Keys)
		if err != nil {
			return fmt.Errorf("%s: %w", ways[i].name, err)
		}
		b.log.Info("recovered", "what", ways[i].name, "write", got.write.Round(time.Millisecond), "whole", got.whole.Round(time.Millisecond),
			"ended", got.ended.Round(time.Millisecond), "acked", got.acked, "lost", got.lost, "rss", mebibytes(got.peak.rss), "anon", mebibytes(got.peak.anon))
		r.recovered[i].rounds = append(r.recovered[i].rounds, got)
	}
	return nil
}
