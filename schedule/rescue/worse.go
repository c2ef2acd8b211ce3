package rescue

import (
	"fmt"
	"slices"

	"github.com/requorum/requorum/restore/recovery"
)

// worse says in what a plan does not hold what was confirmed; nothing where it does.
func (d *decision) worse(p *Prospect) (reasons []string) {
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	before, now := d.Plan, p.Plan
	if before == nil || before.Chosen == "" {
		return []string{"what is there could be read only now"}
	}
	if !now.Proven && (before.Proven || !d.Unproven) {
		add("it is unproven that no acknowledged write is lost: %s", now.Why)
	}
	if before.ClusterID != now.ClusterID {
		add("it would be cluster %s that is recovered, and was %s", now.ClusterID, before.ClusterID)
	}
	if before.Chosen != now.Chosen && !now.Proven {
		add("it would be recovered from %s, and was to be from %s", now.Chosen, before.Chosen)
	}
	if now.Loss.Entries > before.Loss.Entries || now.Loss.Revisions > before.Loss.Revisions {
		add("more would be lost: %s", now.Loss.Text)
	}
	if !slices.EqualFunc(d.Members, p.Members, func(a, b recovery.NewMember) bool {
		return a.Name == b.Name && a.Learner == b.Learner && slices.Equal(a.PeerURLs, b.PeerURLs)
	}) {
		add("the members would be %s", initialCluster(p.Members))
	}
	if raises(p.Bump) && !raises(d.Bump) && now.Proven {
		add("the revision would be raised")
	}
	return reasons
}
