package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
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
	// listAgain is how soon it is listed again where that failed, where there is no full
	// snapshot yet, or where it shows less than was archived.
	listAgain = 10 * time.Second
	// listUnanswered is how often it is listed while the cluster has started over: for the
	// answer, which anybody may give.
	listUnanswered = time.Minute
	// seeEvery is how often the agent checks that the repository exists: a GET of its
	// marker, which at S3's prices costs 0.21 USD a month.
	seeEvery = 5 * time.Second
	// seeLimit bounds that.
	seeLimit = 15 * time.Second
)

// etcd's names for its alarms.
const (
	alarmCorrupt = "CORRUPT"
	alarmNoSpace = "NOSPACE"
)

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
	corrupt    []string            // members that etcd's own alarm CORRUPT is about
	full       []string            // and those of NOSPACE
	foreign    []string            // why members' databases are of another history
	local      client.MemberStatus // the one that the agent stands beside
	unfit      string              // why nothing large is to be read from it

	repository web.Repository
	sight      sight
	agents     []web.Agent // by the marks that they write
	less       error       // it holds less than was seen before; nil where it does not
	reach      *reach
	over       error // the cluster began again without what is archived; nil if not
	rto        web.RTO
	newest     *snapshot.Manifest
	unproved   *snapshot.Manifest                  // newest, if it has no verdict at level structure yet
	held       map[repository.TimelineID]time.Time // by full snapshots, see inventory.held
	logBytes   int64                               // of the log since the newest full snapshot

	certificates []web.Certificate
	folders      []folder
	identities   error // they do not open what is encrypted to the recipients
}

// sight is when the repository was seen last, and what could be restored from it then.
type sight struct {
	at  time.Time // when the last check that succeeded began
	err error     // why the newest check failed; nil where it succeeded
	// unlisted says that the newest listing failed.
	unlisted bool
	until    time.Time // web.RPO.Until at that time
	index    uint64    // archive.State.Recoverable at that time
}

// reach is how far a listing shows that the archiver's timeline can be restored, where
// that is less than the archiver believed before.
type reach struct {
	timeline repository.TimelineID
	index    uint64
	reason   string
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
	if r := &t.seen.repository; archiver != nil && !r.Listed.IsZero() {
		// Another agent may have opened it, since the cluster started over.
		now := archiver.State().Timeline
		if now.N > 0 && !slices.ContainsFunc(r.Timelines, func(t repository.Timeline) bool { return t.ID == now }) {
			t.lookSoon()
		}
	}
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
	c.Members, t.seen.corrupt, t.seen.full, t.seen.foreign = c.Members[:0:0], nil, nil, nil
	leader := false
	for _, m := range survey.Members {
		one := web.Member{Endpoint: m.Endpoint}
		if m.Err != nil {
			one.Error = m.Err.Error()
			if errors.Is(m.Err, client.ErrOtherHistory) {
				t.seen.foreign = append(t.seen.foreign, one.Error)
			}
			if i := slices.IndexFunc(survey.Membership, func(info *etcdserverpb.Member) bool { return slices.Contains(info.ClientURLs, m.Endpoint) }); i >= 0 {
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
			switch a.Type {
			case alarmCorrupt:
				t.seen.corrupt = append(t.seen.corrupt, snapshot.ID(a.MemberID).String())
			case alarmNoSpace:
				t.seen.full = append(t.seen.full, snapshot.ID(a.MemberID).String())
			}
		}
		c.Members = append(c.Members, one)
	}
	for _, ids := range []*[]string{&t.seen.corrupt, &t.seen.full} { // each member names all of them
		slices.Sort(*ids)
		*ids = slices.Compact(*ids)
	}
	for i := range c.Members {
		c.Members[i].Full = slices.Contains(t.seen.full, c.Members[i].ID)
	}
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
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		t.seen.repository.Error = ""
		t.mu.Unlock()
		if err == nil {
			if err = t.runner.History(ctx); ctx.Err() != nil {
				return
			}
		}
		t.mu.Lock()
		wait := listEvery
		if err != nil || t.seen.newest == nil || t.seen.reach != nil {
			wait = listAgain
		} else if t.seen.over != nil {
			wait = listUnanswered
		}
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

// watchSight checks every few seconds that the repository exists.
func (t *session) watchSight(ctx context.Context) {
	every(ctx, seeEvery, func() {
		t.mu.Lock()
		unlisted := t.seen.sight.unlisted
		t.mu.Unlock()
		if !unlisted { // else the next listing decides
			_ = t.see(ctx, nil) // the error is in the status
		}
	})
}

// see checks that the repository exists, and that list succeeds, unless it is nil. It notes
// what can be restored: all that is promised rests on that, since what was archived can be
// deleted at any time.
func (t *session) see(ctx context.Context, list func() error) error {
	began := time.Now()
	err := t.findRepository(ctx)
	if err == nil && list != nil {
		err = list()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.mu.Lock()
	sight := &t.seen.sight
	changed := (err == nil) != (sight.err == nil)
	sight.err = err
	if list != nil {
		sight.unlisted = err != nil
	}
	if err == nil {
		sight.at = later(sight.at, began)
	}
	t.mu.Unlock()
	switch {
	case err == nil:
		s := t.describe(time.Now())
		t.mu.Lock()
		sight.until = earlier(t.recoverableUntil(s, t.seen), sight.at)
		if s.Archive != nil {
			sight.index = s.Archive.Recoverable
		}
		t.mu.Unlock()
		if changed {
			t.Logger.Info("the repository answers again")
		}
	case changed:
		t.Logger.Warn("the repository does not answer", "err", err)
	}
	return err
}

// findRepository reads the repository's marker, which is the one that was opened.
func (t *session) findRepository(ctx context.Context) error {
	_, err := t.openSound(ctx)
	return err
}

// openSound opens the repository, whose marker is in order.
func (t *session) openSound(ctx context.Context) (*repository.Repository, error) {
	ctx, cancel := context.WithTimeout(ctx, seeLimit)
	defer cancel()
	found, err := repository.OpenKnown(ctx, t.sink, t.repositoryID())
	if err != nil {
		return nil, err
	}
	if err := found.Damage(); err != nil {
		return nil, fmt.Errorf("%w: put it back from a copy", err)
	}
	return found, nil
}

// repositoryID is the ID of the repository that was opened; empty if none was.
func (t *session) repositoryID() string {
	if _, repo, _ := t.opened(); repo != nil {
		return repo.ID()
	}
	return ""
}

// lookAtInventory lists the repository.
func (t *session) lookAtInventory(ctx context.Context, s **inventory) error {
	return t.see(ctx, func() error { return t.listInventory(ctx, s) })
}

func (t *session) listInventory(ctx context.Context, s **inventory) (err error) {
	_, _, archiver := t.opened()
	var before archive.State
	if archiver != nil {
		before = archiver.State()
	}
	if *s == nil {
		keys := repository.KeysOf(t.documents)
		if dir := t.cfg.SeenDir(); dir != "" {
			keys.Memory = &signing.Memory{Dir: dir, Unkept: func(err error) { t.Logger.Warn("the end of the repository", "err", err) }}
		}
		if *s, err = newInventory(ctx, repository.WithKeys(t.documents, keys)); err != nil {
			return err
		}
	}
	if err := (*s).look(ctx, time.Now()); err != nil {
		return err
	}
	var r web.Repository
	(*s).describe(&r)
	agents := (*s).agents(ctx)
	newest := (*s).newest()
	logBytes, entries := (*s).since(newest)
	t.mu.Lock()
	if over := (*s).over; over != nil && (t.seen.over == nil || t.seen.over.Error() != over.Error()) {
		t.Logger.Error("the cluster started over", "why", over)
	}
	t.seen.repository, t.seen.less, t.seen.over = r, (*s).less, (*s).over
	t.seen.newest, t.seen.unproved, t.seen.logBytes, t.seen.held = newest, (*s).unproved(newest), logBytes, (*s).held()
	t.seen.rto = (*s).rto(entries, time.Now())
	t.seen.agents = agents
	known := t.seen.reach
	t.seen.reach = shortOf(before, r.Ranges)
	lacks := t.seen.reach != nil && (known == nil || *known != *t.seen.reach)
	another := newest != nil && newest.ID != t.lookedAt // it may be another agent's
	if archiver := t.archiver; archiver != nil && (lacks || another) {
		archiver.LookAgain()
		if newest != nil {
			t.lookedAt = newest.ID
		}
	}
	t.mu.Unlock()
	t.logVerified(*s, newest)
	t.runner.Wake()
	return nil
}

// shortOf compares how far the archiver believed its timeline to be recoverable with a
// listing made after that; nil where the listing reaches as far.
func shortOf(before archive.State, ranges []walreplay.Range) *reach {
	r := reach{timeline: before.Timeline, reason: "objects were deleted"}
	for _, one := range ranges {
		switch {
		case one.Timeline != before.Timeline:
		case one.Gap:
			r.reason = one.Reason
		default:
			r.index = one.LastIndex
		}
	}
	if before.Timeline.ClusterID == 0 || before.Role == archive.Starting || r.index >= before.Recoverable {
		return nil
	}
	return &r
}

// logVerified logs once that the newest full snapshot is verified: whoever has just
// started an agent wants to see that it works.
func (t *session) logVerified(s *inventory, newest *snapshot.Manifest) {
	if newest == nil || newest.ID == t.loggedVerified {
		return
	}
	if _, proved := s.chain.Newest(newest, report.Structure); proved {
		t.loggedVerified = newest.ID
		t.Logger.Info("full snapshot verified", "backup", newest.ID, "revision", newest.Facts.Revision)
	}
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
	if newest != nil {
		if need := t.cfg.ScratchNeed(newest.Object.RawSize); need > 0 {
			add("resources.scratch-dir", t.cfg.Resources.ScratchDir, need)
		}
	}
	return all
}
