package restore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/snapshot"
)

// defaultQuota is etcd's --quota-backend-bytes when it is not given.
const defaultQuota = 2 << 30

func sortByName(ms []Member) {
	slices.SortFunc(ms, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
}

// planNotes are the sentences that a user should read before a restore.
func planNotes(p *Plan) []string {
	return append(memberNotes(p.Members), imageNotes(p.Source, p.OldestTarget, p.ClearAlarms)...)
}

// memberNotes are about the new cluster's members.
func memberNotes(members []Member) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }

	var voters int
	var learners []string
	for _, m := range members {
		if m.Learner {
			learners = append(learners, m.Name)
		} else {
			voters++
		}
	}
	switch tolerates := (voters - 1) / 2; {
	case voters == 1:
		add("a single voter tolerates no failure")
	case voters%2 == 0:
		add("%d voters tolerate %d failures, as many as %d would, and need %d to agree: an odd number is better", voters, tolerates, voters-1, voters/2+1)
	}
	if len(learners) > 0 {
		add("%s will be learners: they receive the log, do not vote, and serve no linearizable reads until `etcdctl member promote`", strings.Join(learners, ", "))
	}
	if len(learners) > 1 {
		add("etcd 3.6 and newer refuse to start with %d learners unless --max-learners allows them", len(learners))
	}
	return notes
}

// imageNotes are about the image, and hold for a snapshot file as well.
func imageNotes(source Source, oldest string, alarms []snapshot.Alarm) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }

	add("the result needs etcd %s or newer", oldest)
	if source.Size >= defaultQuota {
		add("the database has %d bytes, etcd's quota is %d unless told otherwise: start with a larger --quota-backend-bytes, or the NOSPACE alarm comes back at once", source.Size, int64(defaultQuota))
	}
	for _, a := range alarms {
		switch a.Type {
		case "CORRUPT":
			add("the alarm CORRUPT of member %s is cleared: the source had found members that disagree, so check the data before you rely on it", a.MemberID)
		default:
			add("the alarm %s of member %s is cleared: it would block writes; where the quota is still too small, it comes back", a.Type, a.MemberID)
		}
	}
	if source.Facts.AuthEnabled {
		add("authentication is on in the image: users, roles and passwords are those of the backup")
	}
	switch {
	case source.Summed:
	case source.Recipe != nil:
		add("what was begun from has no checksum (a bare db file): its structure is checked, damage inside keys and values would stay unnoticed")
	default:
		add("the image has no checksum (a bare db file): its structure is checked, damage inside keys and values would stay unnoticed; and what its member had only in its log is not in it")
	}
	if source.Recipe != nil && source.Recipe.Unproven != "" {
		add("unproven: %s", source.Recipe.Unproven)
	}
	return notes
}
