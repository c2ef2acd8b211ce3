package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	verifyreport "github.com/requorum/requorum/verify/report"
)

// exitUnchecked says that something could not be checked, and nothing is
// damaged: a backup without a log has nothing to replay.
const exitUnchecked = 5

// verify runs `requorum verify` up to a level, which has to have passed itself.
func (b *bench) verify(ctx context.Context, level verifyreport.Level, from ...string) (usage, *verifyreport.Check, error) {
	args := append([]string{"verify", "--level", string(level), "--output", "json", "--scratch-dir", b.path(scratch)}, from...)
	u, out, err := measureOutput(ctx, nil, b.requorum(), args...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitUnchecked {
		err = nil
	}
	if err != nil {
		return u, nil, err
	}
	var r verifyreport.Report
	if err := json.Unmarshal(out, &r); err != nil {
		return u, nil, fmt.Errorf("requorum verify: %w", err)
	}
	for _, c := range r.Checks {
		b.log.Info("checked", "level", c.Level, "object", c.Object, "status", c.Status, "took", c.Took.Round(time.Millisecond))
	}
	for i := range r.Checks {
		if c := &r.Checks[i]; c.Level == level {
			if c.Status != verifyreport.Passed {
				return u, nil, fmt.Errorf("requorum verify: the level %s is %s: %s", level, c.Status, c.Reason)
			}
			return u, c, nil
		}
	}
	return u, nil, fmt.Errorf("requorum verify: the report has no check of the level %s", level)
}
