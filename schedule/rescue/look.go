package rescue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/requorum/requorum/schedule/rescue/journal"
)

func look(ctx context.Context, req Request) (_ *Prospect, err error) {
	d, err := newDriver(req)
	if err != nil {
		return nil, err
	}
	if d.runs, err = journal.Read(d.cfg.StateDir); err != nil {
		return nil, err
	}
	d.runs = journal.Started(d.runs)
	last, known, err := d.lastRun()
	if err != nil {
		return nil, err
	}
	d.run = newRunID(d.now())
	if last != nil && !known.over() && !known.putBack() {
		d.run, d.known = last.ID(), known
	}
	if d.folder, err = os.MkdirTemp("", "requorum-look-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.folder)) }()
	if err := d.reach(); err != nil {
		return nil, err
	}
	defer d.close()
	d.told.begin(PhaseLook, "")
	began := d.now()
	p, err := d.outlook(ctx)
	d.told.end(PhaseLook, "", "", d.now().Sub(began), err)
	if err != nil {
		return nil, err
	}
	err = d.survey(ctx, p)
	if d.known.decision != nil {
		p.Run, p.Reached = d.run, d.reached()
	} else {
		if completes, why := d.wouldComplete(ctx, p.Quorum); completes != "" {
			p.Warnings = append(p.Warnings, completes)
		} else {
			if stops := d.quorumStops(p.Quorum); why != nil {
				p.Obstacles = append(p.Obstacles, why.Error())
			} else if stops != nil && !req.Force {
				p.Obstacles = append(p.Obstacles, stops.Error())
			}
			all, unnamed := d.obstacles(p)
			p.Unnamed = unnamed && len(p.Obstacles) == 0
			p.Obstacles = append(p.Obstacles, all...)
		}
	}
	if known != nil && known.undoing && !known.closed && !known.putBack() {
		p.Obstacles = append(p.Obstacles, (&UndoneError{d.run}).Error())
	}
	if len(p.Unsurveyed) > 0 && chooses(err) {
		err = fmt.Errorf("%w\nBut %s may run, and what is there is read once that is stopped: without --dry-run the command does so, and asks again then", err, strings.Join(p.Unsurveyed, ", "))
	}
	if err != nil && p.Plan == nil {
		return p, fmt.Errorf("what is left could not be looked through: %w", err)
	}
	return p, err
}
