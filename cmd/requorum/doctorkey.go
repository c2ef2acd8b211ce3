package main

import (
	"context"
	"slices"
	"strings"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/verify/report"
)

// Policies in deploy/s3. The last two add to the first.
const (
	policyAgent    = "agent.json"
	policyVerifier = "verifier.json"
	policyPruner   = "pruner.json"
	policyMerger   = "merger.json"
	policyOperator = "operator.json"
)

// keyRight is a right in a bucket that some keys have and others must not.
type keyRight struct {
	right  s3.Right
	prefix string   // of names; <timeline> is any
	of     []string // the policies that give it: none, if nobody needs it
	// needed reports whether the agent of a configuration does not work without it.
	needed func(*config.Config) bool
}

// dividedRights are those that the policies in deploy/s3 divide.
func dividedRights() []keyRight {
	never := func(*config.Config) bool { return false }
	always := func(*config.Config) bool { return true }
	fulls := func(c *config.Config) bool { return c.Jobs.Full.Runs() || c.Jobs.Synthetic.Runs() }
	archives := (*config.Config).Archiving
	merges := func(c *config.Config) bool { return c.Jobs.Merge.Runs() }
	prunes := func(c *config.Config) bool { return c.Jobs.Prune.Runs() }
	proves := func(c *config.Config) bool { return c.Jobs.Prove(report.Checksum) }
	leads := func(c *config.Config) bool {
		return slices.ContainsFunc(c.Jobs.All(), func(j config.NamedTiming) bool { return j.Timing.Run == config.RunLease })
	}
	agent, pruner, mergerOrPruner := []string{policyAgent}, []string{policyPruner}, []string{policyMerger, policyPruner}
	operator, all := []string{policyOperator}, []string{policyAgent, policyVerifier, policyPruner}
	rights := []keyRight{
		{s3.MayPut, "timelines/", agent, func(c *config.Config) bool { return fulls(c) || archives(c) }},
		{s3.MayPut, "<timeline>/full/", agent, fulls},
		{s3.MayPut, "<timeline>/l0/", agent, archives},
		{s3.MayPut, "<timeline>/l1/", agent, merges},
		{s3.MayPut, "<timeline>/marks/", agent, archives},
		{s3.MayPut, "<timeline>/gaps/", agent, archives},
		{s3.MayPut, "runner/", agent, leads},
		{s3.MayPut, "verdicts/", []string{policyAgent, policyVerifier}, proves},
		{s3.MayPut, "claims/", all, always},
		{s3.MayPut, "jobs/", all, always},
		{s3.MayPut, "pruned/", pruner, prunes},
		{s3.MayPut, "pins/", operator, never},
		{s3.MayPut, "<timeline>/superseded-", operator, never},
		{s3.MayDelete, "<timeline>/l0/", mergerOrPruner, func(c *config.Config) bool { return merges(c) || prunes(c) }},
		{s3.MayDelete, "<timeline>/marks/", mergerOrPruner, func(c *config.Config) bool { return merges(c) || prunes(c) }},
		{s3.MayDelete, "pins/", operator, never},
		{s3.MayDelete, "timelines/", nil, never},
		{s3.MayDelete, "<timeline>/superseded-", nil, never},
		{s3.MayDeleteVersion, "<timeline>/full/", nil, never},
	}
	for _, prefix := range []string{"<timeline>/full/", "<timeline>/l3/", "<timeline>/gaps/", "pruned/", "verdicts/", "claims/", "jobs/", "runner/"} {
		rights = append(rights, keyRight{s3.MayDelete, prefix, pruner, prunes})
	}
	return rights
}

// policiesFor are those that an agent's key is to have.
func policiesFor(c *config.Config) []string {
	var all []string
	switch {
	case c.HasCluster(), c.Jobs.Synthetic.Runs(), c.Jobs.Merge.Runs():
		all = append(all, policyAgent)
	case c.Jobs.Prove(report.Checksum):
		all = append(all, policyVerifier)
	}
	if c.Jobs.Merge.Runs() {
		all = append(all, policyMerger)
	}
	if c.Jobs.Prune.Runs() {
		all = append(all, policyPruner)
	}
	return all
}

// anyTimeline stands for <timeline> in the names that are tried.
const anyTimeline = "0000000000000000-1"

// examineKey tries what the policies in deploy/s3 divide, under a name that nobody uses,
// without storing or deleting anything. Of an agent's key it says what its jobs lack, and
// what it could do without need; of another, which policies it has.
func (e *examination) examineKey(ctx context.Context, bucket *s3.Sink, name string) {
	place := bucket.String()
	may := func(right s3.Right, prefix string) (bool, error) {
		return bucket.May(ctx, right, strings.Replace(prefix, "<timeline>", anyTimeline, 1)+name)
	}
	var has, lacks []keyRight
	for _, r := range dividedRights() {
		switch granted, err := may(r.right, r.prefix); {
		case err != nil:
			e.failed(place, err, e.nextOfPlace(err))
			return
		case granted:
			has = append(has, r)
		default:
			lacks = append(lacks, r)
		}
	}
	if replaces, err := may(s3.MayReplace, "scratch/"); err != nil {
		e.failed(place, err, e.nextOfPlace(err))
	} else if replaces && bucket.OfAmazon() {
		e.add(checkWarn, place, "its key may replace what is stored", "add the statement NeverReplace of deploy/s3/agent.json to its policy, or to the bucket's")
	}

	var policies []string
	if e.agent != nil {
		policies = policiesFor(e.agent)
		missing := slices.DeleteFunc(lacks, func(r keyRight) bool { return !r.needed(e.agent) })
		if len(missing) > 0 {
			e.add(checkFail, place, "its key may not "+namesOfRights(missing)+", which the jobs of this agent need",
				"give it the rights of "+namesOfPolicies(policies)+", or turn the jobs off here that need more")
		}
	} else {
		for _, p := range []string{policyAgent, policyVerifier, policyPruner, policyMerger, policyOperator} {
			if !slices.ContainsFunc(lacks, func(r keyRight) bool { return slices.Contains(r.of, p) }) {
				policies = append(policies, p)
			}
		}
		if len(policies) > 0 {
			e.add(checkOK, place, "its key has the rights of "+namesOfPolicies(policies), "")
		}
	}
	beyond := slices.DeleteFunc(has, func(r keyRight) bool {
		return slices.ContainsFunc(r.of, func(p string) bool { return slices.Contains(policies, p) })
	})
	if len(beyond) > 0 {
		e.add(checkWarn, place, "its key may also "+namesOfRights(beyond)+": no job here needs that, and whoever steals the key could hide or destroy backups unnoticed",
			"give it the rights of "+namesOfPolicies(policies)+" alone")
	}
}

// namesOfRights is what they allow: "put below a/ and b/, delete below c/".
func namesOfRights(rights []keyRight) string {
	var all []string
	for _, kind := range []s3.Right{s3.MayPut, s3.MayDelete, s3.MayDeleteVersion} {
		var prefixes []string
		for _, r := range rights {
			if r.right == kind {
				prefixes = append(prefixes, r.prefix)
			}
		}
		switch {
		case len(prefixes) == 0:
		case kind == s3.MayDeleteVersion:
			all = append(all, "delete versions")
		default:
			all = append(all, string(kind)+" below "+strings.Join(prefixes, ", "))
		}
	}
	return strings.Join(all, "; ")
}

func namesOfPolicies(policies []string) string {
	if len(policies) == 0 {
		return "one of the policies in deploy/s3"
	}
	var all []string
	for _, p := range policies {
		all = append(all, "deploy/s3/"+p)
	}
	return strings.Join(all, " and ")
}
