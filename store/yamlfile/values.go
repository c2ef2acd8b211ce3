package yamlfile

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// Duration is a length of time that also has days and weeks: 90s, 1h30m, 7d, 2w.
// A day has 24 hours here.
type Duration time.Duration

var days = regexp.MustCompile(`^(\d{1,6})([dw])(.*)$`)

// ParseDuration reads a Duration; it is never negative.
func ParseDuration(s string) (Duration, error) {
	bad := fmt.Errorf("%q is no length of time: write 90s, 1h30m, 7d or 2w", s)
	rest, total := s, time.Duration(0)
	for rest != "" {
		m := days.FindStringSubmatch(rest)
		if m == nil {
			break
		}
		unit := day
		if m[2] == "w" {
			unit = week
		}
		var n int64
		if _, err := fmt.Sscan(m[1], &n); err != nil || n > math.MaxInt64/2/int64(unit) {
			return 0, bad
		}
		total, rest = total+time.Duration(n)*unit, m[3]
	}
	if rest == "" && s != "" {
		return Duration(total), nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || total+d < 0 {
		return 0, bad
	}
	return Duration(total + d), nil
}

// String is the shortest form that ParseDuration reads.
func (d Duration) String() string {
	var b strings.Builder
	rest := time.Duration(d)
	if rest >= day {
		if rest%week == 0 {
			return fmt.Sprintf("%dw", rest/week)
		}
		fmt.Fprintf(&b, "%dd", rest/day)
		if rest %= day; rest == 0 {
			return b.String()
		}
	}
	s := rest.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	b.WriteString(s)
	return b.String()
}

// MarshalYAML writes it as it is read.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// Std is the same as Go's own type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// Bytes is a number of bytes: 1048576, 512KiB, 2GiB, 10MB.
type Bytes int64

// ParseBytes reads Bytes; a rate may end with /s.
func ParseBytes(s string) (Bytes, error) {
	n, err := humanize.ParseBytes(strings.TrimSuffix(s, "/s"))
	if err != nil || n > 1<<50 {
		return 0, fmt.Errorf("%q is no number of bytes: write 512KiB, 50MiB or 2GiB", s)
	}
	return Bytes(n), nil
}

// String is the shortest form that ParseBytes reads the same number from.
func (b Bytes) String() string {
	for _, u := range []struct {
		name string
		size Bytes
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b >= u.size && b%u.size == 0 {
			return fmt.Sprintf("%d%s", b/u.size, u.name)
		}
	}
	return fmt.Sprint(int64(b))
}

// MarshalYAML writes it as it is read.
func (b Bytes) MarshalYAML() (any, error) { return b.String(), nil }
