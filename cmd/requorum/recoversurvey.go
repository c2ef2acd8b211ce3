package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/walreplay"
)

// look surveys and decides. Where nothing can be chosen, what was found is printed
// all the same.
func (l *localRecovery) look(ctx context.Context) error {
	meter := l.g.newMeter()
	defer meter.finish()
	var err error
	l.findings, err = recovery.Survey(ctx, recovery.SurveyRequest{
		Survivors: l.survivors, Repos: l.repos, Identities: l.identities,
		CheckBase: replaying.CheckBase, Progress: meter.count, Logger: l.g.logger(),
	})
	meter.finish()
	var running *recovery.RunningError
	switch {
	case errors.As(err, &running):
		return fmt.Errorf("%w\n%s", err, replaceOne(running.Survivor))
	case err != nil && len(l.repos) == 0 && len(l.away) > 0:
		return fmt.Errorf("%w; %s", err, l.away[0].Reason)
	case err != nil:
		return err
	}
	l.findings.Unread = append(l.findings.Unread, l.away...)
	l.forgiveOwn()
	target, err := l.o.point.target(time.Now())
	if err != nil {
		return err
	}
	l.plan, err = recovery.Decide(l.findings, recovery.DecideRequest{Source: l.o.source, DeclareDead: l.o.declareDead, Target: target, SourceVersion: l.o.point.sourceVersion})
	if err == nil {
		err = l.chooseMembers()
	}
	if err == nil || l.plan == nil {
		return err
	}
	return errors.Join(l.g.printRecovery(l.report(), nil), l.asUsage(err))
}

// forgiveOwn leaves out that the old timeline has ended in favour of the very
// cluster that the shared plan is of: another host has said so, of this recovery.
func (l *localRecovery) forgiveOwn() {
	for i := range l.findings.Archives {
		a := &l.findings.Archives[i]
		if l.shared != nil && a.Superseded != nil && a.Superseded.By.ClusterID == uint64(l.shared.ClusterID) {
			a.Superseded = nil
		}
	}
}

// asUsage tells errors in what was asked for from others.
func (l *localRecovery) asUsage(err error) error {
	if nothing := new(recovery.NothingError); errors.As(err, &nothing) {
		return err
	}
	return usageError{err} // all others are about names that were given, or have to be
}

// replaceOne says how a member is replaced while the cluster has its quorum.
func replaceOne(member string) string {
	return fmt.Sprintf(`Ask the cluster whether it still serves (etcdctl endpoint status --cluster). If it does, recover nothing; replace a broken member, one at a time:
  etcdctl member list
  etcdctl member remove ID
  etcdctl member add NAME --peer-urls=URL
  etcd --name=NAME --initial-cluster-state=existing …   with the flags that 'member add' printed, and an empty data directory
If it does not serve, stop %s and all other members that are left, and run this command again`, member)
}

// chooseMembers decides who the new members are. What was given wins, then what
// the old cluster knew.
func (l *localRecovery) chooseMembers() error {
	o := l.o
	if l.shared != nil || o.toSnapshot != "" && o.plan == "" {
		return nil
	}
	if o.req.InitialCluster != "" {
		for part := range strings.SplitSeq(o.req.InitialCluster, ",") {
			name, url, _ := strings.Cut(part, "=")
			i := slices.IndexFunc(l.members, func(m recovery.NewMember) bool { return m.Name == name })
			if i < 0 {
				l.members, i = append(l.members, recovery.NewMember{Name: name, Old: name}), len(l.members)
			}
			l.members[i].PeerURLs = append(l.members[i].PeerURLs, url)
		}
		for _, name := range o.chooseLearners(l.plan.Members) {
			if i := slices.IndexFunc(l.members, func(m recovery.NewMember) bool { return m.Name == name }); i >= 0 {
				l.members[i].Learner = true
			}
		}
		return nil
	}
	change, err := o.change()
	if err != nil {
		return err
	}
	if l.members, err = l.plan.NewMembers(change); err != nil {
		return err
	}
	var parts []string
	for _, m := range l.members {
		for _, u := range m.PeerURLs {
			parts = append(parts, m.Name+"="+u)
		}
	}
	o.req.InitialCluster = strings.Join(parts, ",")
	if o.set.Changed("learners") {
		learners := o.chooseLearners(nil)
		for i := range l.members {
			l.members[i].Learner = slices.Contains(learners, l.members[i].Name)
		}
	}
	return nil
}

// newLearners are the new members that do not vote.
func (l *localRecovery) newLearners() []string {
	if l.o.set.Changed("learners") {
		return l.o.chooseLearners(nil) // also those that name no member, to be refused
	}
	var all []string
	for _, m := range l.members {
		if m.Learner {
			all = append(all, m.Name)
		}
	}
	return all
}

// request is what a restore is asked for with an image, found or only foreseen.
func (l *localRecovery) request(image snapshot.Image) restore.Request {
	req := l.o.req
	req.Image, req.Learners, req.Target = image, l.newLearners(), l.o.point.asked()
	req.SetAside, req.Owner = false, nil // this host's, and given to Execute: a plan would take them to all
	req.Bump, req.HighestKnownRevision = l.bump()
	if l.o.plan == "" {
		req.Only = l.o.name // other hosts have to come to the same cluster by themselves
	}
	return req
}

func (l *localRecovery) snapshotRequest(image snapshot.Image) restore.SnapshotFileRequest {
	o := l.o
	req := restore.SnapshotFileRequest{Image: image, Path: o.toSnapshot, Owner: o.req.Owner, TargetVersion: o.req.TargetVersion, Target: o.point.asked()}
	req.Bump, req.HighestKnownRevision = l.bump()
	return req
}

// bump is what becomes of the revision: nothing where nothing is lost, unless an
// amount was asked for.
func (l *localRecovery) bump() (restore.BumpRequest, int64) {
	b := l.plan.Bump
	if !b.Raise && l.o.req.Bump.Mode != restore.BumpBy {
		return restore.BumpRequest{Mode: restore.BumpNone}, 0
	}
	return l.o.req.Bump, b.HighestKnown
}

// prospect is what would be rebuilt, as far as the survey tells.
func (l *localRecovery) prospect() snapshot.Image {
	c := l.plan.Candidate(l.plan.Chosen)
	p := prospect{name: c.Name, facts: snapshot.Facts{
		Revision: c.Revision.AtLeast, RaftIndex: c.LastIndex, RaftTerm: c.LastTerm, Members: l.plan.Members,
	}}
	for _, m := range l.findings.Survivors {
		for _, db := range m.Databases {
			if db.Path == c.Source.Base.Path {
				p.size, p.facts.ClusterVersion, p.facts.StorageVersion = db.Size, db.ClusterVersion, db.StorageVersion
			}
		}
	}
	for _, a := range l.findings.Archives {
		for _, f := range a.Fulls {
			if f.ID == c.Source.Base.Backup && a.Timeline == c.Source.Base.Timeline {
				p.size = f.Size
			}
		}
	}
	return p
}

// replaySettings are the options that the plan of another host has settled.
func (o *buildOptions) replaySettings(recipe *walreplay.Recipe) {
	if recipe == nil {
		return
	}
	o.point.sourceVersion = cmp.Or(o.point.sourceVersion, recipe.SourceVersion)
	o.point.minLeaseTTL, o.point.checkpoints = recipe.MinLeaseTTL, recipe.PersistCheckpoints
}
