package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often something is looked at while it stops or starts.
const pollInterval = 200 * time.Millisecond

// hopelessError is one that no waiting mends.
type hopelessError struct{ error }

func (e *hopelessError) Unwrap() error { return e.error }

// Until asks again and again, and gives up with the last reason when ctx ends, or
// when the reason is that a unit has failed.
func Until(ctx context.Context, ask func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ask()
		var hopeless *hopelessError
		if err == nil || errors.As(err, &hopeless) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
