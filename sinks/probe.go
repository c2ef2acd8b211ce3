package sinks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// clockTolerance is how far the clocks of a place and of this host may differ before it
// matters to a restore to a time. Stores give whole seconds.
const clockTolerance = 2 * time.Second

// Probed is what Probe found out.
type Probed struct {
	// ClockOff is by how much the place's clock is ahead of this host's; 0 within the
	// tolerance, or if the place gives no times.
	ClockOff time.Duration
	// Kept is why the scratch object could not be deleted; nil if it was.
	Kept error
}

// Probe does once what every writer does, with a scratch object: writes, reads, lists and
// deletes it.
func Probe(ctx context.Context, s Sink) (p Probed, err error) {
	name := "scratch/doctor-" + rand.Text()
	data := []byte("requorum doctor wrote this to see whether it may. It can be deleted.\n")
	before := time.Now()
	if _, err := Put(ctx, s, name, data, CreateOptions{}); err != nil {
		return p, fmt.Errorf("write: %w", err)
	}
	took := time.Since(before)
	defer func() { p.Kept = s.Delete(ctx, name) }()
	if got, err := Get(ctx, s, name, 1<<20); err != nil || !bytes.Equal(got, data) {
		return p, fmt.Errorf("read: %w", cmp.Or(err, errors.New("the bytes are not those that were written")))
	}
	found, err := s.Stat(ctx, name)
	if err != nil {
		return p, fmt.Errorf("stat: %w", err)
	}
	p.ClockOff = clockOff(found.ModTime, before, took)
	for o, err := range s.List(ctx, "scratch/", "") {
		if err != nil {
			return p, fmt.Errorf("list: %w", err)
		}
		if o.Name == name {
			return p, nil
		}
	}
	return p, errors.New("list: an object that was written is missing")
}

// clockOff returns by how much a time that was given within took from before is wrong; 0
// within the tolerance.
func clockOff(given, before time.Time, took time.Duration) time.Duration {
	off := given.Sub(before)
	if given.IsZero() || off.Abs() <= took+clockTolerance {
		return 0
	}
	return off.Round(time.Second)
}
