package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/verify/replaying"
)

// survey surveys and decides. Where nothing can be chosen, what was found is printed
// all the same.
func (l *localRecovery) survey(ctx context.Context) error {
	if err := l.find(ctx); err != nil {
		return err
	}
	return l.shown(l.decide(l.o.source))
}

// find surveys what is left.
func (l *localRecovery) find(ctx context.Context) error {
	meter := l.g.newMeter()
	defer meter.finish()
	req := sources.SurveyRequest{Repos: l.repos.Opened, Identities: l.identities, Progress: meter.count}
	var err error
	for _, s := range l.survivors {
		var one sources.Summary
		if one, err = sources.Summarize(ctx, s, sources.SummaryOptions{CheckBase: replaying.CheckBase, Progress: meter.count}); err != nil {
			break
		}
		req.Summaries = append(req.Summaries, one)
	}
	if err == nil {
		l.findings, err = sources.Survey(ctx, req)
	}
	meter.finish()
	var running *sources.RunningError
	switch {
	case errors.As(err, &running):
		return fmt.Errorf("%w\n%s", err, replaceOne(running.Survivor))
	case err != nil && len(l.repos.Opened) == 0 && len(l.repos.Unread) > 0:
		return fmt.Errorf("%w; %s", err, l.repos.Unread[0].Reason)
	case err != nil:
		return orRollback(err)
	}
	l.findings.Unread = append(l.findings.Unread, l.repos.Unread...)
	return l.checkSurvivors()
}

func (l *localRecovery) decide(source string) (err error) {
	l.plan, err = sources.Decide(l.findings, sources.DecideRequest{Source: source, DeclareDead: l.o.declareDead, Target: l.o.point.target, SourceVersion: l.o.point.replay.SourceVersion})
	return err
}

// shown prints what was found, if something has to be named first.
func (l *localRecovery) shown(err error) error {
	if err == nil || l.plan == nil {
		return err
	}
	if nothing := new(sources.NothingError); !errors.As(err, &nothing) {
		err = usageError{err} // all others are about names that were given, or have to be
	}
	return errors.Join(l.g.printRecovery(l.report(), nil), err)
}

// checkSurvivors refuses directories that were mixed up: of a cluster that the
// repositories do not know, or of another member than the one that it is named for.
// --source says that they are meant.
func (l *localRecovery) checkSurvivors() error {
	if l.o.source != "" {
		return nil
	}
	for _, s := range l.findings.Survivors {
		if slices.ContainsFunc(s.Findings, func(f sources.Finding) bool { return f.Kind == sources.KindMisnamed }) {
			return usageError{fmt.Errorf("--local %s=%s: that is the directory of member %s, not of %s: give %s; if it is meant, name what to recover from with --source", s.Name, s.DataDir, s.MemberName, s.Name, shell.Quote(s.MemberName+"="+s.DataDir))}
		}
	}
	if text := l.findings.Mixed(); text != "" {
		return usageError{errors.New(text)}
	}
	return nil
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
	if o.toSnapshot != "" && o.plan == "" {
		return nil
	}
	if o.req.InitialCluster == "" {
		var err error
		if l.members, err = l.plan.NewMembers(o.change); err != nil {
			return err
		}
		o.req.InitialCluster = sources.InitialCluster(l.members)
		if !o.set.Changed("learners") {
			return nil
		}
	} else {
		for part := range strings.SplitSeq(o.req.InitialCluster, ",") {
			name, url, _ := strings.Cut(part, "=")
			i := slices.IndexFunc(l.members, func(m sources.NewMember) bool { return m.Name == name })
			if i < 0 {
				l.members, i = append(l.members, sources.NewMember{Name: name, Old: name}), len(l.members)
			}
			l.members[i].PeerURLs = append(l.members[i].PeerURLs, url)
		}
	}
	learners := o.chooseLearners(l.plan.Members)
	for i := range l.members {
		l.members[i].Learner = slices.Contains(learners, l.members[i].Name)
	}
	return nil
}

// newLearners are the new members that do not vote.
func (l *localRecovery) newLearners() []string {
	if l.o.set.Changed("learners") {
		return l.o.chooseLearners(nil) // also those that name no member, to be refused
	}
	return sources.Learners(l.members)
}

// request is what a restore is asked for with an image, found or only foreseen: members,
// or the snapshot file at path.
func (l *localRecovery) request(image snapshot.Image, path string) restore.Request {
	req := l.o.forAll(path)
	req.Image, req.Learners, req.Target = image, l.newLearners(), l.o.point.asked()
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

// preview is what would be rebuilt, as far as the survey shows.
func (l *localRecovery) preview() snapshot.Image {
	c := l.plan.Candidate(l.plan.Chosen)
	p := snapshot.Preview{Title: c.Name, Known: snapshot.Facts{
		Revision: c.Revision.AtLeast, RaftIndex: c.LastIndex, RaftTerm: c.LastTerm, Members: l.plan.Members,
	}}
	for _, m := range l.findings.Survivors {
		for _, db := range m.Databases {
			if db.Path == c.Source.Base.Path {
				p.Bytes, p.Known.ClusterVersion, p.Known.StorageVersion = db.Size, db.ClusterVersion, db.StorageVersion
			}
		}
	}
	for _, a := range l.findings.Archives {
		for _, f := range a.Fulls {
			if f.ID == c.Source.Base.Backup && a.Timeline == c.Source.Base.Timeline {
				p.Bytes = f.Size
			}
		}
	}
	return p
}
