package retention

import (
	"errors"
	"fmt"
	"time"
)

// Policy is what is to stay. What no part of it keeps may go.
type Policy struct {
	// AnyPoint is how far back from the last observation of a cluster every point
	// can be restored, as far as it could be before. Log from before that goes.
	// Zero: log goes with the full snapshots that it follows.
	AnyPoint time.Duration `json:"any_point_nanoseconds"`
	// Last full snapshots are kept, and the newest one of so many Hourly, Daily,
	// Weekly (ISO weeks) and Monthly periods that have any.
	Last    int `json:"last"`
	Hourly  int `json:"hourly"`
	Daily   int `json:"daily"`
	Weekly  int `json:"weekly"`
	Monthly int `json:"monthly"`
	// Within keeps all full snapshots from so long before the last observation.
	Within time.Duration `json:"within_nanoseconds"`
	// Minimum is how many good full snapshots stay at least, however old they are.
	Minimum int `json:"minimum"`
	// Zone is where days begin; nil is UTC.
	Zone *time.Location `json:"-"`
	// Grace is for how long a backup's object, and the log, stay after they were
	// let go: a restore that has begun can end.
	Grace time.Duration `json:"grace_nanoseconds"`
}

// DefaultGrace is longer than any restore or verification goes on.
const DefaultGrace = 24 * time.Hour

// ErrNoPolicy says that a policy keeps nothing: that is never what was meant.
var ErrNoPolicy = errors.New("no rule says what to keep")

// Check refuses a policy that cannot be followed.
func (p Policy) Check() error {
	for name, n := range map[string]int{"last": p.Last, "hourly": p.Hourly, "daily": p.Daily, "weekly": p.Weekly, "monthly": p.Monthly, "minimum": p.Minimum} {
		if n < 0 {
			return fmt.Errorf("keep %s: %d is less than 0", name, n)
		}
	}
	for name, d := range map[string]time.Duration{"any point": p.AnyPoint, "within": p.Within, "grace": p.Grace} {
		if d < 0 {
			return fmt.Errorf("%s: %s is less than 0", name, d)
		}
	}
	if p.Last+p.Hourly+p.Daily+p.Weekly+p.Monthly+p.Minimum == 0 && p.AnyPoint == 0 && p.Within == 0 {
		return ErrNoPolicy
	}
	return nil
}

func (p Policy) zone() *time.Location {
	if p.Zone == nil {
		return time.UTC
	}
	return p.Zone
}
