package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/requorum/requorum/restore/recovery"
)

// madeOf says in a few words what a candidate is made of.
func madeOf(c *recovery.Candidate) string {
	s := c.Source
	if s == nil {
		return "nothing that can be rebuilt"
	}
	base := "the database of " + s.Base.Owner
	switch {
	case s.Base.Backup != "":
		base = "backup " + s.Base.Backup
	case s.Base.Path == "":
		base = "a log from its first entry on"
	case s.Base.Owner == c.Name:
		base = "its database"
	}
	var logs []string
	for _, p := range s.Log {
		switch own := s.Base.Owner == c.Name; {
		case own && p.Owner == c.Name:
			logs = append(logs, "its log")
		case strings.HasPrefix(p.Owner, "archive:"):
			logs = append(logs, "the archived log")
		default:
			logs = append(logs, "the log of "+p.Owner)
		}
	}
	if len(logs) == 0 {
		return base + " alone"
	}
	return base + " and " + strings.Join(slices.Compact(logs), ", ")
}

// lostOf is what a candidate lacks, for a cell of a table.
func lostOf(c *recovery.Candidate) string {
	switch {
	case c.Source == nil:
		return "-"
	case c.Lost.Entries > 0:
		return fmt.Sprintf("%d %s", c.Lost.Entries, plural(int(c.Lost.Entries), "entry", "entries"))
	}
	short, _, _ := strings.Cut(c.Lost.Text, ";")
	return orDash(short)
}

// revisionsOf are exact, or between two.
func revisionsOf(b recovery.Bounds) string {
	switch {
	case b.AtMost == 0:
		return "-"
	case b.AtLeast == b.AtMost:
		return strconv.FormatInt(b.AtMost, 10)
	}
	return fmt.Sprintf("%d to %d", b.AtLeast, b.AtMost)
}

func number(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// sentence begins with a capital.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
