package page

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/status"
)

// words are what the template writes times, sizes and numbers with.
func words() template.FuncMap {
	return template.FuncMap{
		"stamp":    stamp,
		"minute":   minute,
		"machine":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"size":     size,
		"number":   grouped,
		"unsigned": func(n uint64) string { return grouped(int64(min(n, math.MaxInt64))) },
		"long":     span,
		"bad":      bad,
		"remarks":  func(b status.Backup) string { return strings.Join(remarks(b), ", ") },
	}
}

// span says how long d is in words, rounded up: what would be lost is never
// said to be less than it is.
func span(d time.Duration) string {
	for _, u := range []struct {
		below, unit time.Duration
		name        string
	}{
		{2 * time.Minute, time.Second, "second"},
		{2 * time.Hour, time.Minute, "minute"},
		{48 * time.Hour, time.Hour, "hour"},
		{math.MaxInt64, 24 * time.Hour, "day"},
	} {
		if d > u.below-u.unit && u.name != "day" {
			continue
		}
		n := int64(math.Ceil(float64(d) / float64(u.unit)))
		switch {
		case n <= 0:
			return "nothing"
		case n == 1:
			return "1 " + u.name
		default:
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return d.String()
}

// short is how far t is from now, in few letters: "3 min ago", "in 4 h".
func short(t, now time.Time) string {
	d := now.Sub(t)
	ahead := d < 0
	d = d.Abs()
	var s string
	switch {
	case d < 2*time.Second:
		return "now"
	case d < 2*time.Minute:
		s = fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		s = fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		s = fmt.Sprintf("%d h", int(d.Hours()))
	default:
		s = fmt.Sprintf("%d days", int(d.Hours()/24))
	}
	if ahead {
		return "in " + s
	}
	return s + " ago"
}

// stamp is t to the second, minute t to the minute. Both are UTC, which the
// page says at its top.
func stamp(t time.Time) string  { return t.UTC().Format("2006-01-02 15:04:05") }
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// grouped writes n with thin spaces between thousands.
func grouped(n int64) string {
	return strings.ReplaceAll(humanize.Comma(n), ",", "\u202f")
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}
