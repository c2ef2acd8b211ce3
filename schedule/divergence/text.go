package divergence

import (
	"fmt"
	"strings"
)

// Err is nil unless members differ or etcd says that one is corrupt. It wraps
// ErrDivergent and says what to do.
func (r Result) Err() error {
	var reasons []string
	if len(r.Corrupt) > 0 {
		reasons = append(reasons, fmt.Sprintf("etcd's own CORRUPT alarm is raised for %s", names(r.Corrupt)))
	}
	switch {
	case r.Undecided:
		reasons = append(reasons, fmt.Sprintf("at revision %d no two histories of a majority are equal: it is not known which of %s is right", r.Revision, names(r.Divergent)))
	case len(r.Divergent) > 0:
		reasons = append(reasons, fmt.Sprintf("at revision %d the history of %s differs from that of the %d other members that were compared", r.Revision, names(r.Divergent), len(r.Hashes)-len(r.Divergent)))
	}
	if len(reasons) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; take no backup from there: compare with 'requorum verify', then remove the member and add it anew, empty", ErrDivergent, strings.Join(reasons, "; "))
}

// Text says in a sentence what was compared, for a job that went well.
func (r Result) Text() string {
	if err := r.Err(); err != nil {
		return err.Error()
	}
	var text string
	switch n := len(r.Hashes); n {
	case 0:
		text = "no member could be compared"
	case 1:
		text = fmt.Sprintf("only %s could be asked: there was nothing to compare it with", r.Hashes[0].Member)
	default:
		text = fmt.Sprintf("%d members have the same history up to revision %d", n, r.Revision)
	}
	for _, u := range r.Unknown {
		text += fmt.Sprintf("; %s was not compared: %s", u.Member, u.Reason)
	}
	return text
}

func names(members []Member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.String())
	}
	return strings.Join(all, ", ")
}
