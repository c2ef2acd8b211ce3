package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
)

const (
	// surveyEvery is how often all members are asked how they are.
	surveyEvery = 10 * time.Second
	// fitEvery is how often it is asked whether the local member is to be read.
	fitEvery = 30 * time.Second
	// listEvery is how often the repository is listed, unless something was stored:
	// other agents store too.
	listEvery = 5 * time.Minute
	// hostEvery is how often certificates and space are looked at.
	hostEvery = time.Minute
	// listAgain is how soon it is listed again where that failed, or where there is
	// no full snapshot yet.
	listAgain = 10 * time.Second
)

// listsALook is how many listings a look at a repository of one timeline takes,
// with the one of the jobs' results.
const listsALook = 12

// ListsADay is how many listings an agent asks of its repository in a day to know
// what is stored, where nothing changes; each timeline beyond the first adds some.
const ListsADay = int64(24*time.Hour/listEvery) * listsALook

// alarmCorrupt is etcd's name for it.
const alarmCorrupt = "CORRUPT"

const (
	roleLeader   = "leader"
	roleFollower = "follower"
	roleLearner  = "learner"
)

// observations are what was seen last, each with when. Under term.mu.
type observations struct {
	cluster    status.Cluster
	leaderless time.Time          // since when no member sees a leader
	silent     time.Time          // since when none answers
	corrupt    []string           // members that etcd's own alarm is about
	local      store.MemberStatus // the one that the agent stands beside
	unfit      string             // why nothing large is to be read from it

	repository status.Repository
	rto        status.RTO
	newest     *snapshot.Manifest
	held       map[repository.TimelineID]time.Time // by full snapshots, see stock.held
	logBytes   int64                               // of the log since the newest full snapshot
	entries    uint64

	certificates []status.Certificate
	folders      []folder
	canary       error
}

// watchCluster asks the members now and then.
func (t *term) watchCluster(ctx context.Context) {
	var fitAt, surveyed time.Time
	began := time.Now()
	every(ctx, time.Second, func() {
		// At the beginning the member is being looked for.
		_, known := t.local()
		looking := t.cfg.HasMember() && !known && time.Since(began) < surveyEvery
		if !looking && time.Since(surveyed) < surveyEvery {
			return
		}
		surveyed = time.Now()
		t.survey(ctx)
		if _, known := t.local(); known && time.Since(fitAt) >= fitEvery {
			t.lookFit(ctx)
			fitAt = time.Now()
		}
	})
}

// every does something at once, and then in intervals until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (t *term) survey(ctx context.Context) {
	client, _, archiver := t.opened()
	now := time.Now()
	survey, err := client.Survey(ctx)
	if ctx.Err() != nil {
		return
	}
	local := ""
	if archiver != nil {
		local = archiver.State().Member
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.seen.cluster
	if err != nil {
		c.Error = err.Error()
		if t.seen.silent.IsZero() {
			t.seen.silent = now
		}
		return
	}
	t.seen.silent = time.Time{}
	c.Error, c.Asked, c.ID = "", now, snapshot.ID(survey.ClusterID).String()
	c.Members, t.seen.corrupt = c.Members[:0:0], nil
	leader := false
	for _, m := range survey.Members {
		one := status.Member{Endpoint: m.Endpoint}
		if m.Err != nil {
			one.Error = m.Err.Error()
			if i := slices.IndexFunc(survey.Membership, func(info store.MemberInfo) bool { return slices.Contains(info.ClientURLs, m.Endpoint) }); i >= 0 {
				one.ID, one.Name = snapshot.ID(survey.Membership[i].ID).String(), survey.Membership[i].Name
			}
			c.Members = append(c.Members, one)
			continue
		}
		one.ID, one.Name, one.Version, one.Role = snapshot.ID(m.MemberID).String(), m.Name, m.Version, roleOf(m)
		one.Revision, one.Applied, one.DBSize = m.Revision, m.AppliedIndex, m.DBSize
		if archiver != nil && archiver.State().Timeline.ClusterID == m.ClusterID {
			t.point.reached(m.AppliedIndex)
		}
		one.Local = isLocal(local, m)
		if one.Local {
			one.Unfit, t.seen.local = t.seen.unfit, m
		}
		leader = leader || m.Leader != 0
		for _, a := range m.Alarms {
			if a.Type == alarmCorrupt {
				t.seen.corrupt = append(t.seen.corrupt, snapshot.ID(a.MemberID).String())
			}
		}
		c.Members = append(c.Members, one)
	}
	slices.Sort(t.seen.corrupt)
	t.seen.corrupt = slices.Compact(t.seen.corrupt)
	for _, info := range survey.Membership {
		known := slices.ContainsFunc(c.Members, func(m status.Member) bool { return m.ID == snapshot.ID(info.ID).String() })
		if !known {
			c.Members = append(c.Members, status.Member{ID: snapshot.ID(info.ID).String(), Name: info.Name, Error: "no endpoint leads to it"})
		}
	}
	if leader {
		t.seen.leaderless = time.Time{}
	} else if t.seen.leaderless.IsZero() {
		t.seen.leaderless = now
	}
}

func roleOf(m store.MemberStatus) string {
	switch {
	case m.IsLeader:
		return roleLeader
	case m.IsLearner:
		return roleLearner
	}
	return roleFollower
}

// isLocal compares with the archiver's own words for its member.
func isLocal(local string, m store.MemberStatus) bool {
	return local == fmt.Sprintf("member %x of cluster %x", m.MemberID, m.ClusterID)
}

// local is the member that the agent stands beside, as it last answered.
func (t *term) local() (status.Member, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.seen.cluster.Members {
		if m.Local && m.Error == "" {
			return m, true
		}
	}
	return status.Member{}, false
}

// lookFit asks whether the local member is to be read now.
func (t *term) lookFit(ctx context.Context) {
	t.mu.Lock()
	m := t.seen.local
	t.mu.Unlock()
	if m.MemberID == 0 {
		return
	}
	client, _, _ := t.opened()
	f, err := client.Fitness(ctx, m)
	if err != nil {
		return // of ctx
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.unfit = f.Unfit
}

// lookSoon asks for a look at the repository now, since something changed.
func (t *term) lookSoon() {
	select {
	case t.relist <- struct{}{}:
	default:
	}
}

// watchRepository lists the repository now and then, and after own changes.
func (t *term) watchRepository(ctx context.Context) {
	var s *stock
	for {
		err := t.lookAtStock(ctx, &s)
		t.mu.Lock()
		wait := listEvery
		if err != nil || t.seen.newest == nil {
			wait = listAgain
		}
		t.seen.repository.Error = ""
		if err != nil {
			t.seen.repository.Error = err.Error()
		}
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-t.relist:
		case <-time.After(wait):
		}
	}
}

func (t *term) lookAtStock(ctx context.Context, s **stock) (err error) {
	if *s == nil {
		if *s, err = newStock(ctx, t.sink, t.trusted); err != nil {
			return err
		}
	}
	if err := (*s).look(ctx, time.Now()); err != nil {
		return err
	}
	var r status.Repository
	(*s).describe(&r)
	newest := (*s).newest()
	logBytes, entries := (*s).since(newest)
	t.mu.Lock()
	t.seen.repository = r
	t.seen.newest, t.seen.logBytes, t.seen.entries, t.seen.held = newest, logBytes, entries, (*s).held()
	t.seen.rto = (*s).rto(entries, time.Now())
	board, archiver := t.board, t.archiver
	if archiver != nil && newest != nil && newest.ID != t.lookedAt {
		archiver.LookAgain() // another agent may have taken it
		t.lookedAt = newest.ID
	}
	t.mu.Unlock()
	t.demandBySize(ctx)
	t.demandFirst(ctx)
	if board == nil {
		return nil
	}
	_, err = board.History(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
