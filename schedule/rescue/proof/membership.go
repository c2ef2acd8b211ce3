package proof

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
)

// checkMembers compares the membership with the plan.
func (p *proving) checkMembers(ctx context.Context) {
	var survey store.Survey
	err := p.insist(ctx, func(ctx context.Context) (err error) {
		survey, err = p.client.Survey(ctx)
		if err == nil {
			err = survey.MembershipErr
		}
		return err
	})
	if err != nil {
		p.unproved("the membership: %s", p.because(err))
		return
	}
	before := len(p.report.Wrong)
	for _, want := range p.Members {
		i := slices.IndexFunc(survey.Membership, func(m store.MemberInfo) bool { return m.ID == uint64(want.ID) })
		if i < 0 {
			p.wrong("member %s (%s) is not in the membership", want.Name, want.ID)
			continue
		}
		got := survey.Membership[i]
		switch {
		// One that has never started has no name yet.
		case got.Name != want.Name && got.Name != "":
			p.wrong("member %s is called %s, and was planned as %s", want.ID, got.Name, want.Name)
		case got.IsLearner != want.Learner:
			p.wrong("member %s is a learner: %t, and was planned as one: %t", want.Name, got.IsLearner, want.Learner)
		case !sameURLs(got.PeerURLs, want.PeerURLs):
			p.wrong("member %s has the peer URLs %s, and was planned with %s", want.Name, strings.Join(got.PeerURLs, ","), strings.Join(want.PeerURLs, ","))
		}
	}
	for _, m := range survey.Membership {
		if !slices.ContainsFunc(p.members, func(want *member) bool { return m.ID == uint64(want.ID) }) {
			p.wrong("member %s (%s) is in the membership, and was not planned", m.Name, snapshot.ID(m.ID))
		}
	}
	if len(p.report.Wrong) == before {
		p.proved("the %s planned, and cluster %s", counted(len(p.Members), "member is as it was", "members are as they were"), p.ClusterID)
	}
}

func sameURLs(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// counted is a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// checkAlarms makes sure that no alarm is raised: with one nobody can write.
func (p *proving) checkAlarms(ctx context.Context) {
	status, err := p.client.Status(ctx, p.serving(false)[0].status)
	if err != nil {
		p.unproved("that no alarm is raised: %s", p.because(err))
		return
	}
	for _, a := range status.Alarms {
		name := snapshot.ID(a.MemberID).String()
		for _, m := range p.Members {
			if uint64(m.ID) == a.MemberID {
				name = m.Name
			}
		}
		p.wrong("the alarm %s is raised about member %s", a.Type, name)
	}
	if len(status.Alarms) == 0 {
		p.proved("no alarm is raised")
	}
}
