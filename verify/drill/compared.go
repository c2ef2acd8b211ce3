package drill

import (
	"fmt"
	"strings"
)

// compared says what was held against what.
func (s *server) compared() string {
	e := s.expect
	parts := []string{
		fmt.Sprintf("HashKV of every member (%d), and of all among each other after the writes", e.hash.Hash),
		fmt.Sprintf("%s of random rows, now and in the past, out of %s", plural(len(e.probes), "read"), plural(int(e.rows), "row")),
		fmt.Sprintf("the number of all keys (%d) in %s", e.live, plural(len(e.spans), "range")),
		fmt.Sprintf("a watch over the last %s", plural(len(e.changes), "change")),
		"writes, compare-and-swaps that must succeed and that must fail, and a watch resumed from before them",
		fmt.Sprintf("%s with what hangs on them, a new one that was kept alive and revoked, and one that ended", plural(len(e.leases), "lease")),
		plural(len(s.auth.users), "user") + " and " + plural(len(s.auth.roles), "role"),
		"the members",
	}
	if e.compacted > 1 {
		parts = append(parts, fmt.Sprintf("errors for what was compacted before revision %d", e.compacted))
	}
	if s.auth.enabled {
		note := "authentication was on, with a new password for root in the scratch copy"
		if s.auth.ordinary != "" {
			note = fmt.Sprintf("authentication was on, with new passwords for root and %q in the scratch copy", s.auth.ordinary)
		}
		parts = append(parts, note+", and refused a client without a user")
	}
	if n := len(s.plan.ClearAlarms); n > 0 {
		parts = append(parts, "alarms of the image ("+plural(n, "alarm")+") were cleared, as a restore does, and none was raised")
	}
	return strings.Join(parts, "; ")
}
