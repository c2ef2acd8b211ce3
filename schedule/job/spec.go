package job

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/requorum/requorum/sinks/repository"
)

// Spec says when a job is to be run.
type Spec struct {
	// Name is part of object names: lower-case letters, digits and dashes.
	Name string
	// Schedule is in the five fields of cron, or one of @hourly, @daily, @weekly,
	// @monthly, @yearly. Empty: the job runs on demand only.
	Schedule string
	// Zone is whose wall time the schedule is in; UTC where nil.
	Zone *time.Location
	// Jitter is the longest time by which slots come later than the schedule says:
	// by how much depends on the seed and the name only, so that all agents of one
	// repository agree and those of many clusters don't come at once.
	Jitter time.Duration
}

// Check tells what is wrong with the spec, and what to write.
func (s Spec) Check() error {
	_, err := s.Timetable("")
	return err
}

// Next is the first slot after a time; zero where there is none. Seed is the
// repository's ID. Whoever asks often keeps a Timetable.
func (s Spec) Next(after time.Time, seed string) time.Time {
	t, err := s.Timetable(seed)
	if err != nil {
		return time.Time{}
	}
	return t.Next(after)
}

// Previous is the newest slot at or before a time; zero where there is none.
func (s Spec) Previous(at time.Time, seed string) time.Time {
	t, err := s.Timetable(seed)
	if err != nil {
		return time.Time{}
	}
	return t.Previous(at)
}

// Timetable works out the slots. Seed is the repository's ID.
func (s Spec) Timetable(seed string) (*Timetable, error) {
	if err := repository.ValidJob(s.Name); err != nil {
		return nil, err
	}
	if s.Jitter < 0 {
		return nil, fmt.Errorf("job %s: a jitter of %v is not possible: write 0s or more", s.Name, s.Jitter)
	}
	if s.Schedule == "" {
		return &Timetable{}, nil
	}
	schedule, err := parse(s.Schedule)
	if err != nil {
		return nil, fmt.Errorf("job %s: schedule %q: %w", s.Name, s.Schedule, err)
	}
	zone := s.Zone
	if zone == nil {
		zone = time.UTC
	}
	return &Timetable{walls: schedule, zone: zone, offset: offset(seed, s.Name, s.Jitter)}, nil
}

// equal tells that two specs have the same slots.
func (s Spec) equal(o Spec) bool {
	zone := func(z *time.Location) string {
		if z == nil {
			return "UTC"
		}
		return z.String()
	}
	return s.Name == o.Name && s.Schedule == o.Schedule && s.Jitter == o.Jitter && zone(s.Zone) == zone(o.Zone)
}

// fields are what a schedule may consist of.
const fields = cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor

// parse reads a schedule of wall times, which it gives as if they were UTC.
func parse(text string) (cron.Schedule, error) {
	switch {
	case strings.HasPrefix(text, "@every"):
		return nil, errors.New("@every counts from the start of each agent, so that no two would agree on when a run is due: write for example \"*/15 * * * *\" or \"0 */6 * * *\"")
	case strings.HasPrefix(text, "@reboot"):
		return nil, errors.New("@reboot is no time: missed runs are made up at the start anyway")
	case strings.Contains(text, "TZ="):
		return nil, errors.New("the time zone is not part of it: use the key time-zone")
	}
	s, err := cron.NewParser(fields).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w; want five fields (minute, hour, day of month, month, day of week), such as \"0 1 * * *\", or @daily", err)
	}
	spec, ok := s.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("a schedule of the type %T has no fixed times", s)
	}
	spec.Location = time.UTC
	if spec.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("no such day ever comes")
	}
	return spec, nil
}
