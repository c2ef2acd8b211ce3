package schedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
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
const listsALook = 13

// ListsADay is how many listings an agent asks of its repository in a day to know
// what is stored, where nothing changes; each timeline beyond the first adds some.
// With them counts what the lease of the jobs costs: a listing or a put each minute.
const ListsADay = int64(24*time.Hour/listEvery)*listsALook + int64(24*time.Hour/job.Heartbeat)

// alarmCorrupt is etcd's name for it.
const alarmCorrupt = "CORRUPT"

const (
	roleLeader   = "leader"
	roleFollower = "follower"
	roleLearner  = "learner"
)

// observations are what was seen last, each with when. Under term.mu.
type observations struct {
	cluster    web.Cluster
	leaderless time.Time           // since when no member sees a leader
	silent     time.Time           // since when none answers
	corrupt    []string            // members that etcd's own alarm is about
	local      client.MemberStatus // the one that the agent stands beside
	unfit      string              // why nothing large is to be read from it

	repository web.Repository
	less       error // it holds less than was seen before; nil where it does not
	rto        web.RTO
	newest     *snapshot.Manifest
	held       map[repository.TimelineID]time.Time // by full snapshots, see inventory.held
	logBytes   int64                               // of the log since the newest full snapshot
	entries    uint64

	certificates []web.Certificate
	folders      []folder
	identities   error // they do not open what is encrypted to the recipients
}

// watchCluster asks the members now and then.
func (t *session) watchCluster(ctx context.Context) {
	var fitAt, surveyed time.Time
	began := time.Now()
	every(ctx, time.Second, func() {
		// At the beginning the member is being looked for.
		looking := t.cfg.HasMember() && !t.localAnswers() && time.Since(began) < surveyEvery
		if !looking && time.Since(surveyed) < surveyEvery {
			return
		}
		surveyed = time.Now()
		t.survey(ctx)
		if t.localAnswers() && time.Since(fitAt) >= fitEvery {
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

func (t *session) survey(ctx context.Context) {
	cli, _, archiver := t.opened()
	now := time.Now()
	survey, err := cli.Survey(ctx)
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
		one := web.Member{Endpoint: m.Endpoint}
		if m.Err != nil {
			one.Error = m.Err.Error()
			if i := slices.IndexFunc(survey.Membership, func(info client.MemberInfo) bool { return slices.Contains(info.ClientURLs, m.Endpoint) }); i >= 0 {
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
		known := slices.ContainsFunc(c.Members, func(m web.Member) bool { return m.ID == snapshot.ID(info.ID).String() })
		if !known {
			c.Members = append(c.Members, web.Member{ID: snapshot.ID(info.ID).String(), Name: info.Name, Error: "no endpoint leads to it"})
		}
	}
	if leader {
		t.seen.leaderless = time.Time{}
	} else if t.seen.leaderless.IsZero() {
		t.seen.leaderless = now
	}
}

func roleOf(m client.MemberStatus) string {
	switch {
	case m.IsLeader:
		return roleLeader
	case m.IsLearner:
		return roleLearner
	}
	return roleFollower
}

// isLocal compares with the archiver's own words for its member.
func isLocal(local string, m client.MemberStatus) bool {
	return local == fmt.Sprintf("member %x of cluster %x", m.MemberID, m.ClusterID)
}

// localAnswers says that the member which the agent stands beside is known and
// answered last.
func (t *session) localAnswers() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.seen.cluster.Members, func(m web.Member) bool { return m.Local && m.Error == "" })
}

// lookFit asks whether the local member is to be read now.
func (t *session) lookFit(ctx context.Context) {
	t.mu.Lock()
	m := t.seen.local
	t.mu.Unlock()
	if m.MemberID == 0 {
		return
	}
	client, _, _ := t.opened()
	unfit, err := client.Unfit(ctx, m)
	if err != nil {
		return // of ctx
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.unfit = unfit
}

// lookSoon asks for a look at the repository now, since something changed.
func (t *session) lookSoon() {
	select {
	case t.relist <- struct{}{}:
	default:
	}
}

// watchRepository lists the repository now and then, and after own changes.
func (t *session) watchRepository(ctx context.Context) {
	var s *inventory
	for {
		err := t.lookAtInventory(ctx, &s)
		t.mu.Lock()
		runner := t.runner
		t.mu.Unlock()
		if runner != nil {
			err = cmp.Or(err, runner.History(ctx))
		}
		if ctx.Err() != nil {
			return
		}
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

func (t *session) lookAtInventory(ctx context.Context, s **inventory) (err error) {
	if *s == nil {
		if *s, err = newInventory(ctx, t.documents); err != nil {
			return err
		}
		(*s).fresh = &walreplay.Freshness{Dir: t.cfg.SeenDir(), Unkept: func(err error) { t.Logger.Warn("freshness", "err", err) }}
	}
	if err := (*s).look(ctx, time.Now()); err != nil {
		return err
	}
	var r web.Repository
	(*s).describe(&r)
	newest := (*s).newest()
	logBytes, entries := (*s).since(newest)
	t.mu.Lock()
	t.seen.repository, t.seen.less = r, (*s).less
	t.seen.newest, t.seen.logBytes, t.seen.entries, t.seen.held = newest, logBytes, entries, (*s).held()
	t.seen.rto = (*s).rto(entries, time.Now())
	if archiver := t.archiver; archiver != nil && newest != nil && newest.ID != t.lookedAt {
		archiver.LookAgain() // another agent may have taken it
		t.lookedAt = newest.ID
	}
	t.mu.Unlock()
	t.triggerBySize(ctx)
	t.triggerFirst(ctx)
	t.triggerAfterFull(ctx, *s, newest)
	return nil
}

// serversEvery is how often the members' certificates are looked at.
const serversEvery = time.Hour

// folder is one that the agent writes to.
type folder struct {
	key, dir   string
	free, need int64
}

// watchHost looks at certificates, identities and space now and then.
func (t *session) watchHost(ctx context.Context) {
	var servers []web.Certificate
	var serversAt time.Time
	every(ctx, hostEvery, func() {
		if client, _, _ := t.opened(); client != nil && time.Since(serversAt) >= serversEvery {
			servers = servers[:0:0]
			for _, c := range client.ServerCertificates(ctx) {
				if c.Err == nil { // that a member does not answer is reported elsewhere
					servers = append(servers, web.Certificate{Use: "etcd server", Place: c.Endpoint, Expires: c.Expires})
				}
			}
			serversAt = time.Now()
		}
		var own []web.Certificate
		for _, c := range t.cfg.Certificates() {
			one := web.Certificate{Use: c.Use, Place: c.File, Expires: c.Expires}
			if c.Err != nil {
				one.Error = c.Err.Error()
			}
			own = append(own, one)
		}
		spaces, identities := t.spaces(), t.cfg.CheckIdentities()
		t.mu.Lock()
		t.seen.certificates, t.seen.folders, t.seen.identities = slices.Concat(own, servers), spaces, identities
		t.mu.Unlock()
	})
}

// spaces are the folders that could run full, with what they may need.
func (t *session) spaces() []folder {
	t.mu.Lock()
	newest := t.seen.newest
	t.mu.Unlock()
	var all []folder
	add := func(key, dir string, need int64) {
		if free, known, err := safedir.Free(dir); err == nil && known {
			all = append(all, folder{key, dir, free, need})
		}
	}
	if t.cfg.Archiving() {
		_, _, archiver := t.opened()
		need := int64(t.cfg.Archive.SpoolLimit)
		if archiver != nil {
			need -= archiver.State().Spooled
		}
		add("archive.spool-dir", t.cfg.Archive.SpoolDir, need)
	}
	if j := t.cfg.Jobs; newest != nil && (j.Synthetic.Runs() || j.Prove(report.Structure)) { // these unpack a database
		add("resources.scratch-dir", t.cfg.Resources.ScratchDir, 2*newest.Object.RawSize)
	}
	return all
}
