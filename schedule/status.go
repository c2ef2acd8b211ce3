package schedule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/serve"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

// describe is what the agent knows at a time.
func (t *session) describe(now time.Time) *web.Status {
	t.mu.Lock()
	seen, archiver, closed := t.seen, t.archiver, t.failures["etcd"]
	t.mu.Unlock()
	s := &web.Status{
		Time: now.UTC(), Started: t.started.UTC(), Agent: t.cfg.Name, Tool: t.Tool, Archives: t.cfg.Archiving(),
		Cluster: seen.cluster, Repository: seen.repository, RTO: seen.rto,
		Certificates: slices.Clone(seen.certificates),
		Objectives: web.Objectives{
			RecoveryPoint: t.cfg.Objectives.RecoveryPoint.Std().Seconds(), VerifiedWithin: t.cfg.Objectives.VerifiedWithin.Std().Seconds(),
			CertificateNotice: t.cfg.Objectives.CertificateNotice.Std().Seconds(),
		},
	}
	s.Cluster.Members = slices.Clone(s.Cluster.Members)
	switch {
	case !seen.silent.IsZero():
		s.Cluster.Down = seen.silent.UTC()
	case !seen.leaderless.IsZero():
		s.Cluster.Down = seen.leaderless.UTC()
	case closed != nil:
		s.Cluster.Down = t.started.UTC()
	}
	s.Repository.URL = t.sink.String()
	if archiver != nil {
		state := archiver.State()
		state.Gaps, state.Alarms = filled(state.Gaps), filled(state.Alarms)
		s.Archive = &state
		s.Writer = state.Role == archive.Writer
		s.Repository.Timeline = state.Timeline
		state.Recoverable = seen.reach.least(state.Timeline, state.Recoverable)
		if seen.sight.err != nil {
			state.Recoverable = min(state.Recoverable, seen.sight.index)
		}
		if state.Applied > state.Recoverable {
			state.BehindEntries = state.Applied - state.Recoverable
		}
	}
	s.Repository.Seen = seen.sight.at.UTC()
	if err := seen.sight.err; err != nil {
		s.Repository.Error = err.Error()
	}
	s.Jobs = t.runner.Status()
	describeComparison(s)
	t.describeAgents(s, seen)
	s.RPO = t.rpo(now, s, seen)
	t.describeProblems(s, seen)
	noNil(s)
	return s
}

// noNil makes empty lists of those that are nil: null is no list to a reader.
func noNil(s *web.Status) {
	s.Cluster.Divergent, s.Cluster.Members = filled(s.Cluster.Divergent), filled(s.Cluster.Members)
	r := &s.Repository
	r.Backups, r.Ranges, r.Timelines = filled(r.Backups), filled(r.Ranges), filled(r.Timelines)
	s.Certificates, s.Problems, s.Jobs = filled(s.Certificates), filled(s.Problems), filled(s.Jobs)
}

// filled is a list that is not nil.
func filled[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// rpo is what would be lost if everything but the repository burned now.
func (t *session) rpo(now time.Time, s *web.Status, seen observations) web.RPO {
	switch sight := seen.sight; {
	case sight.err != nil && sight.at.IsZero():
		return web.RPO{Unknown: t.started.UTC(), Text: fmt.Sprintf("It is not known what would be lost: the repository has not answered since this agent started at %s.", clockTime(t.started))}
	case sight.err != nil:
		text := fmt.Sprintf("It is not known what would be lost: the repository does not answer since %s.", clockTime(sight.at))
		if !sight.until.IsZero() {
			text += fmt.Sprintf(" Everything until %s could be restored from it then.", clockTime(sight.until))
		}
		return web.RPO{Unknown: sight.at.UTC(), Until: sight.until.UTC(), Text: text}
	case sight.at.IsZero() || s.Repository.Listed.IsZero():
		return web.RPO{Text: "It is not known what would be lost: the repository was not listed yet."}
	case seen.newest == nil:
		return web.RPO{Text: "Everything would be lost: there is no full snapshot."}
	}
	until := t.recoverableUntil(s, seen)
	if until.IsZero() {
		return web.RPO{Text: "It is not known what would be lost: no member has confirmed anything yet."}
	}
	// What was archived since may have been deleted since.
	if until = earlier(until, seen.sight.at); !seen.sight.until.IsZero() {
		until = earlier(until, seen.sight.until)
	}
	lost := max(0, now.Sub(until))
	text := fmt.Sprintf("What was written in the last %s would be lost.", inWords(lost))
	if s.Archive == nil {
		text = fmt.Sprintf("At most what was written in the last %s would be lost, as far as this agent knows, which archives nothing itself.", inWords(lost))
	}
	return web.RPO{Known: true, Until: until.UTC(), Seconds: lost.Seconds(), Text: text}
}

// clockTime is a time of the last hours for people.
func clockTime(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// recoverableUntil is up to when everything can be restored from what was seen in the
// repository: archived by the archiver here, and listed.
func (t *session) recoverableUntil(s *web.Status, seen observations) time.Time {
	until := t.point.at()
	// Another agent's archive shows in the listing only, and what this one's archived
	// before it was restarted.
	listed := until.IsZero()
	newest := seen.newest
	if newest == nil {
		return time.Time{}
	}
	if s.Archive != nil && s.Archive.Timeline.ClusterID != 0 && s.Archive.Timeline != newest.Timeline {
		return until // a history that has ended
	}
	until = later(until, seen.held[newest.Timeline])
	for _, r := range s.Repository.Ranges {
		if listed && r.Timeline == newest.Timeline && !r.Gap && r.LastIndex >= newest.Facts.RaftIndex && !isDamaged(s, r) {
			until = later(until, earlier(r.To, s.Repository.Listed))
		}
	}
	return until
}

// isDamaged says that a range begins with a full snapshot that is known to be
// damaged.
func isDamaged(s *web.Status, r walreplay.Range) bool {
	return slices.ContainsFunc(s.Repository.Backups, func(b web.Backup) bool {
		return b.Timeline == r.Timeline && b.ID == r.FirstBackup && b.Damaged != ""
	})
}

func earlier(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }
func later(times ...time.Time) time.Time   { return slices.MaxFunc(times, time.Time.Compare) }

// inWords is a length of time for people: no more exact than they need it, and seconds are
// rounded up, as the page does.
func inWords(d time.Duration) string {
	switch {
	case d < time.Second:
		return "1 s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(math.Ceil(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	case d < 72*time.Hour:
		return fmt.Sprintf("%d h", int(d.Round(time.Hour).Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// Without a drill, how long a restore takes is reckoned with what a small machine
// does; a drill measures it.
const (
	fetchRate  = 100 << 20 // bytes of the database a second: fetch, decrypt, unpack, build
	replayRate = 50_000    // entries a second
	bootTime   = 5 * time.Second
	// drillCounts is for how long a drill's time is shown before the reckoning is
	// more to the point.
	drillCounts = 60 * 24 * time.Hour
)

// ofDrill are the phases of a drill that are no part of a recovery.
var ofDrill = map[string]bool{serve.PhaseExpect: true, serve.PhaseServe: true, serve.PhaseRemove: true}

// rto is about how long a restore of the newest point takes, with so many entries
// of log behind the newest full snapshot.
func (s *inventory) rto(entries uint64, now time.Time) web.RTO {
	m := s.newest()
	if m == nil {
		return web.RTO{Text: "It is not known how long restoring would take: there is nothing to restore."}
	}
	if took, at := s.measured(); took > 0 && now.Sub(at) < drillCounts {
		return web.RTO{Known: true, Seconds: took.Seconds(), Measured: at, Text: fmt.Sprintf("A drill restored the newest point in %s, %s ago.", inWords(took), inWords(now.Sub(at)))}
	}
	took := bootTime + time.Duration(float64(m.Object.RawSize)/fetchRate*float64(time.Second)) + time.Duration(float64(entries)/replayRate*float64(time.Second))
	took = took.Round(time.Second)
	return web.RTO{Known: true, Seconds: took.Seconds(), Text: fmt.Sprintf("About %s, reckoned from the size; a drill would measure it.", inWords(took))}
}

// measured is the newest drill that measured how long a restore takes.
func (s *inventory) measured() (took time.Duration, at time.Time) {
	for i := len(s.chain.Entries) - 1; i >= 0; i-- {
		e := s.chain.Entries[i]
		if e.Err != nil || e.Verdict.Reached != report.Drill {
			continue
		}
		for _, p := range e.Verdict.Phases {
			if !ofDrill[p.Name] {
				took += p.Took
			}
		}
		if took > 0 {
			return took, e.Verdict.Finished
		}
	}
	return 0, time.Time{}
}

// sampleLimit bounds what waits to become durable. At one sample each
// sampleEvery that is a day of an outage; past it every second one goes, which
// makes the answer coarser, and never too good.
const (
	sampleLimit = 4096
	sampleEvery = 250 * time.Millisecond
)

// sample is one confirmation: what was acknowledged up to time is among the
// entries up to index.
type sample struct {
	index uint64
	time  time.Time
}

// recoveryPoint follows up to which time everything can be restored from the
// repository alone. It stands still while nothing is confirmed or nothing
// becomes durable, and goes back when what was taken for durable turns out not
// to be.
type recoveryPoint struct {
	mu      sync.Mutex
	waiting []sample // ordered by time, and so by index
	passed  []sample // the last of them is the answer
	history string   // whose indexes these are
	highest uint64   // that is known to be applied anywhere
	every   time.Duration
}

// reached says that a member has applied index: one that has applied less confirms
// nothing until it has caught up.
func (r *recoveryPoint) reached(index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.highest = max(r.highest, index)
}

// confirm adds that everything acknowledged until at is among the entries up to
// index.
func (r *recoveryPoint) confirm(index uint64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if index == 0 || at.IsZero() || index < r.highest {
		return
	}
	r.highest = index
	if n := len(r.waiting); n > 0 {
		last := &r.waiting[n-1]
		switch {
		case !at.After(last.time) || index < last.index:
			return // a slower answer
		case index == last.index:
			last.time = at
			return
		case n > 1 && at.Sub(r.waiting[n-2].time) < max(r.every, sampleEvery):
			*last = sample{index, at} // the later one, with the larger index, is the harder to meet
			return
		}
	}
	r.waiting = append(r.waiting, sample{index, at})
	if len(r.waiting) > sampleLimit { // from now on half as many are taken
		r.waiting = everySecond(r.waiting)
		r.every = max(2*r.every, 2*sampleEvery)
	}
}

// everySecond keeps half of the samples, the last one among them.
func everySecond(all []sample) []sample {
	kept := all[:0]
	for i, s := range all {
		if (len(all)-1-i)%2 == 0 {
			kept = append(kept, s)
		}
	}
	return kept
}

// durable says that all entries of a history up to index can be restored from
// the repository, and no later one. Indexes of another history mean something
// else: what is known is forgotten.
func (r *recoveryPoint) durable(history string, index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.history != history {
		if r.history != "" {
			r.waiting, r.passed, r.highest = nil, nil, 0
		}
		r.history = history
	}
	for len(r.passed) > 0 && r.passed[len(r.passed)-1].index > index {
		r.passed = r.passed[:len(r.passed)-1]
	}
	n := 0
	for n < len(r.waiting) && r.waiting[n].index <= index {
		n++
	}
	r.passed = append(r.passed, r.waiting[:n]...)
	r.waiting = append(r.waiting[:0], r.waiting[n:]...)
	if len(r.passed) > sampleLimit {
		r.passed = everySecond(r.passed)
	}
	if len(r.waiting) == 0 {
		r.every = sampleEvery
	}
}

// at is up to when everything can be restored; zero where that is not known.
func (r *recoveryPoint) at() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.passed) == 0 {
		return time.Time{}
	}
	return r.passed[len(r.passed)-1].time
}

// problemLog remembers since when each problem is there.
type problemLog struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// found sets since when the problems are there, by kind and subject, and forgets
// those that are over.
func (b *problemLog) found(all []problem, now time.Time) []web.Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := map[string]time.Time{}
	out := []web.Problem{}
	for _, p := range all {
		key := p.Kind + "/" + p.subject
		if p.Since.IsZero() {
			p.Since = b.since[key]
		}
		if p.Since.IsZero() {
			p.Since = now
		}
		next[key] = p.Since
		p.Since = p.Since.UTC()
		out = append(out, p.Problem)
	}
	b.since = next
	slices.SortStableFunc(out, func(x, y web.Problem) int {
		return cmp.Or(cmp.Compare(x.Severity, y.Severity), x.Since.Compare(y.Since)) // critical sorts before warning
	})
	return out
}

// problem is one that may be among others of its kind.
type problem struct {
	web.Problem
	subject string
}

// ofAlarm is how bad each of the archiver's alarms is, and what to do about it.
var ofAlarm = map[archive.Alarm]struct {
	severity web.Severity
	next     string
}{
	archive.AlarmStalled:    {web.Critical, "give the member's own data directory and client URL: member.data-dir and etcd.endpoints"},
	archive.AlarmBehind:     {web.Warning, "look whether the repository takes what is written: a slow line or a bandwidth limit may be too little"},
	archive.AlarmMember:     {web.Critical, "look at the member: its own log says why it does not answer"},
	archive.AlarmRepository: {web.Critical, "look at the repository and the way there; segments wait in the spool meanwhile, and follow"},
	archive.AlarmSpool:      {web.Warning, "bring the repository back, or raise archive.spool-limit"},
	archive.AlarmSpoolFull:  {web.Critical, "bring the repository back, and raise archive.spool-limit or make room on the spool's disk: what the member purges now is lost"},
	archive.AlarmGap:        {web.Critical, "a full snapshot closes it, and is taken by itself; look at the job full if it is not"},
	archive.AlarmClock:      {web.Warning, "set the clock: NTP on every member"},
	archive.AlarmRolledBack: {web.Critical, "find out who set the member's disk back; remove the member and add it anew, empty"},
	archive.AlarmTimeline:   {web.Warning, "make sure that this was meant: a restore, or a forced new cluster"},
	archive.AlarmLineage:    {web.Critical, "give this cluster a repository of its own; or say once what it is: 'requorum backup --parent' where it was restored from what is there, '--new-lineage' where it was not"},
	archive.AlarmDamaged:    {web.Critical, "verify the repository: 'requorum verify all --level checksum' shows what is damaged"},
	archive.AlarmForeign:    {web.Warning, "find out who wrote it, and remove it: 'requorum list' names the foreign objects that it reads"},
	archive.AlarmLog:        {web.Critical, "give the member's own member.data-dir (and member.wal-dir, where it has one), which this user may read"},
	archive.AlarmRestarted:  {web.Warning, "look at the reason, and at the agent's log if it comes again"},
}

// describeProblems finds what somebody has to look at.
func (t *session) describeProblems(s *web.Status, seen observations) {
	f := &finder{session: t, status: s, now: s.Time, away: seen.sight.err != nil}
	f.configuration()
	f.name()
	f.opening()
	f.archive()
	f.recoveryPoint(seen)
	f.repository(seen)
	f.cluster(seen)
	f.jobs()
	f.verified()
	f.verifiers()
	f.retention()
	f.host(seen)
	s.Problems = t.problems.found(f.all, s.Time)
}

// finder gathers the problems of a status.
type finder struct {
	*session
	status *web.Status
	now    time.Time
	away   bool // the repository does not answer, which repository reports
	all    []problem
}

func (f *finder) add(kind string, severity web.Severity, subject, text, next string) *problem {
	f.all = append(f.all, problem{web.Problem{Kind: kind, Severity: severity, Text: text, Next: next}, subject})
	return &f.all[len(f.all)-1]
}

func (f *finder) configuration() {
	f.Agent.mu.Lock()
	err := f.refused
	f.Agent.mu.Unlock()
	if err != nil {
		f.add(web.KindConfig, web.Warning, "reload", "the configuration that was read last is refused, and the one before goes on: "+err.Error(), "mend it, and send SIGHUP again")
	}
}

// name: another agent has the same one, where each takes the other for itself.
func (f *finder) name() {
	if f.runner.DuplicateName() {
		f.add(web.KindConfig, web.Warning, "name", fmt.Sprintf("another agent of this repository is called %s as well, and each takes the other's runs for its own", f.cfg.Name), "give each agent a name of its own: the key name, or the host's name")
	}
}

// opening are the parts that could not be opened since the agent started.
func (f *finder) opening() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range []struct{ what, kind, next string }{
		{"etcd", web.KindCluster, "look at the members, and at etcd's part of the configuration: 'requorum doctor' tries all of it"},
		{"repository", web.KindRepository, "look at the repository and the way there: 'requorum doctor' tries each operation"},
		{"archive", web.KindMember, "mend what it says; archiving is tried again by itself"},
	} {
		if err := f.failures[o.what]; err != nil && (!f.away || o.what != "repository") {
			f.add(o.kind, web.Critical, o.what, o.what+": "+err.Error(), o.next)
		}
	}
}

func (f *finder) archive() {
	a := f.status.Archive
	if a == nil {
		return
	}
	for _, alarm := range a.Alarms {
		if alarm.Alarm == archive.AlarmRepository && f.away {
			continue // it is named already
		}
		severity, next := ofAlarm[alarm.Alarm].severity, ofAlarm[alarm.Alarm].next
		if alarm.Alarm == archive.AlarmRepository && a.Role == archive.Starting {
			next = "look at the repository and the way there; until it answers once, what is written stays in the member's own log alone"
		}
		p := f.add(string(alarm.Alarm), severity, "", alarm.Text, next)
		p.Since = alarm.Since
	}
}

// recoveryPoint: what would be lost grows beyond what is allowed.
func (f *finder) recoveryPoint(seen observations) {
	objective := f.cfg.Objectives.RecoveryPoint.Std()
	r := f.status.RPO
	const next = "the other problems say what keeps the repository from following"
	switch {
	case !r.Unknown.IsZero() && !r.Until.IsZero() && f.now.Sub(r.Until) > objective+f.unseen():
		p := f.add(web.KindRecoveryPoint, web.Critical, "", fmt.Sprintf("whether what was written since %s would be lost is not known, and objectives.recovery-point is %s", r.Until.Format(time.RFC3339), f.cfg.Objectives.RecoveryPoint), next)
		p.Since = r.Until.Add(objective + f.unseen())
	case !r.Unknown.IsZero():
	case r.Known && f.cfg.Archiving() && f.point.at().IsZero() && f.now.Sub(f.started) <= objective:
		// The agent has just started, and its member is about to confirm more.
	case r.Known && r.Seconds > (objective+f.unseen()).Seconds():
		p := f.add(web.KindRecoveryPoint, web.Critical, "", fmt.Sprintf("everything since %s would be lost, and objectives.recovery-point is %s", r.Until.Format(time.RFC3339), f.cfg.Objectives.RecoveryPoint), next)
		p.Since = r.Until.Add(objective + f.unseen())
	case !r.Known && seen.repository.Listed.IsZero():
	case !r.Known && seen.newest == nil: // at once: nothing can be restored, however young the agent is
		f.add(web.KindRecoveryPoint, web.Critical, "", r.Text, "the first full snapshot is taken by itself where an agent may; 'requorum backup' takes one now")
	case !r.Known && f.now.Sub(f.started) > objective:
		f.add(web.KindRecoveryPoint, web.Critical, "", r.Text, next)
	}
}

// unseen is for how long this agent may not have seen what is archived: one that archives
// itself checks every few seconds, any other sees it in its listings.
func (f *finder) unseen() time.Duration {
	if f.status.Archive != nil {
		return seeEvery
	}
	return 2 * listEvery
}

func (f *finder) repository(seen observations) {
	const page = "; " + docs + "runbooks/RequorumRepositoryGone.md"
	next := "check the repository and the way there: 'requorum doctor' tries each operation" + page
	if err := seen.sight.err; err != nil {
		if errors.As(err, new(*repository.GoneError)) {
			next = "mount it, or put it back from a copy; to start a new repository on purpose, choose another archive.spool-dir" + page
		}
		since := seen.sight.at
		if since.IsZero() {
			since = f.started
		}
		p := f.add(web.KindRepository, web.Critical, "sight", fmt.Sprintf("%s does not answer since %s: %s", f.status.Repository.URL, clockTime(since), cause(err)), next)
		p.Since = since
	} else if err := seen.repository.Error; err != "" {
		f.add(web.KindRepository, web.Critical, "listing", err, next)
	}
	if err := seen.less; err != nil {
		f.add(web.KindRepository, web.Critical, "less", err.Error(), "look for the objects, or a newer copy; where what is there is all that is left, remove the file that it names")
	}
	if err := seen.over; err != nil {
		f.add(web.KindStartedOver, web.Critical, "", err.Error(), "restore, or accept the new timeline: "+docs+"restore.md#a-cluster-that-started-over")
	}
	a := f.status.Archive
	if a == nil {
		return
	}
	gap := slices.ContainsFunc(a.Alarms, func(r archive.RaisedAlarm) bool { return r.Alarm == archive.AlarmGap })
	if r := seen.reach; r != nil && r.timeline == a.Timeline && !gap && seen.newest != nil {
		f.add(string(archive.AlarmGap), web.Critical, "", fmt.Sprintf("timeline %s can be restored to raft index %d only, and more was archived: %s", r.timeline, r.index, r.reason), ofAlarm[archive.AlarmGap].next)
	}
	if a.Role == archive.Follower && a.Behind > f.cfg.Objectives.RecoveryPoint.Std() {
		f.add(web.KindWriter, web.Warning, "", fmt.Sprintf("no agent has archived what is committed since %s", inWords(a.Behind)), "check the other agents; this one takes over by itself")
	}
}

// cause is why a request failed, without the object and the place: the problem names the
// place.
func cause(err error) string {
	var short interface{ Cause() string }
	if errors.As(err, &short) {
		return short.Cause()
	}
	return err.Error()
}

// docs is where pages that a problem names can be read from a pager.
const docs = "https://github.com/requorum/requorum/blob/main/docs/"

// leaderlessAfter is longer than elections take.
const leaderlessAfter = 30 * time.Second

func (f *finder) cluster(seen observations) {
	c := &f.status.Cluster
	if c.Error != "" {
		if f.now.Sub(seen.silent) > leaderlessAfter { // a member that is restarted is back by then
			p := f.add(web.KindCluster, web.Critical, "survey", "no member answers: "+c.Error, "look at the members; where a majority is gone for good: "+docs+"quorum-loss.md")
			p.Since = seen.silent
		}
		return
	}
	if !seen.leaderless.IsZero() && f.now.Sub(seen.leaderless) > leaderlessAfter {
		p := f.add(web.KindCluster, web.Critical, "leader", "no member sees a leader: the quorum is lost, and nothing can be written", "bring members back; where a majority is gone for good: "+docs+"quorum-loss.md")
		p.Since = seen.leaderless
	}
	if !c.Asked.IsZero() && !f.seesVoter() && f.cfg.Jobs.Full.Runs() {
		f.add(web.KindCluster, web.Warning, "voter", "only learners answer this agent: it cannot take full snapshots, which need a voting member's word", "name the client URLs of voting members in etcd.endpoints as well")
	}
	for _, m := range c.Members {
		if m.Error != "" {
			f.add(web.KindRemote, web.Warning, m.Endpoint+m.ID, "member "+cmp.Or(m.Name, m.Endpoint, m.ID)+" does not answer: "+m.Error, "start the member, or correct etcd.endpoints; if it is gone for good, replace it while the others have a quorum: "+docs+"runbooks/RequorumClusterDown.md")
		}
	}
	if len(seen.full) > 0 {
		f.add(web.KindNoSpace, web.Critical, "", fmt.Sprintf("etcd's alarm NOSPACE is raised for %s: the database has reached its quota, and etcd refuses writes", f.names(seen.full)), "compact, defragment, clear the alarm: "+docs+"kubernetes-mistakes.md#etcd-is-full")
	}
	if len(seen.corrupt) > 0 {
		f.add(web.KindCorrupt, web.Critical, "", "etcd's own corruption alarm is raised for "+strings.Join(seen.corrupt, ", "), "take no backup from there: remove the member and add it anew, empty: "+docs+"runbooks/RequorumMembersDivergent.md")
	}
	if len(seen.foreign) > 0 {
		f.add(web.KindDivergent, web.Critical, "revision", strings.Join(seen.foreign, "; "), "no backup is taken from it: "+docs+"runbooks/RequorumMembersDivergent.md")
	}
	if len(c.Divergent) > 0 {
		f.add(web.KindDivergent, web.Critical, "", fmt.Sprintf("at revision %d the history of %s differs from the others'", c.ComparedRevision, strings.Join(c.Divergent, ", ")), "backups say which member they come from: "+docs+"runbooks/RequorumMembersDivergent.md")
	}
}

// names are the names of members by their IDs.
func (f *finder) names(ids []string) string {
	var all []string
	for _, id := range ids {
		name := "member " + id
		for _, m := range f.status.Cluster.Members {
			if m.ID == id {
				name = cmp.Or(m.Name, name)
			}
		}
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}

// jobs are those that failed, and those that are late.
func (f *finder) jobs() {
	for _, j := range f.status.Jobs {
		if j.Off != "" {
			continue
		}
		failed := j.LastFailure != nil && (j.LastSuccess == nil || j.LastFailure.Slot > j.LastSuccess.Slot)
		if failed {
			kind, severity, next := f.failed(j)
			p := f.add(kind, severity, j.Name, fmt.Sprintf("job %s failed on %s: %s", j.Name, j.LastFailure.Agent, j.LastFailure.Text), next)
			p.Since = j.LastFailure.Finished
		}
		f.late(j)
	}
}

func (f *finder) failed(j job.Status) (kind string, severity web.Severity, next string) {
	switch {
	case j.Name == jobFull:
		return web.KindJob, web.Critical, "fix the reason; the next run is at its usual time, or now: 'requorum backup'"
	case j.Name == jobPrune:
		return web.KindRetention, web.Warning, "'requorum prune --dry-run' shows what is to go, and why it cannot"
	case j.LastFailure.Damaged:
		return web.KindVerify, web.Critical, "'requorum show' and 'requorum verify' show more; take a full snapshot now; docs/runbooks/RequorumVerifyFailed.md"
	}
	return web.KindJob, web.Warning, "fix the reason; the next run is at its usual time"
}

// late: a job that nobody has done for twice its period, and an hour.
func (f *finder) late(j job.Status) {
	longest := f.longest[j.Name]
	if longest == 0 {
		return
	}
	last, done := f.started, "has not been done since this agent started,"
	if j.LastSuccess != nil {
		last, done = j.LastSuccess.Finished, "was last done"
	}
	if limit := 2*longest + time.Hour; f.now.Sub(last) > limit {
		p := f.add(web.KindLate, web.Warning, j.Name, fmt.Sprintf("job %s %s %s ago", j.Name, done, inWords(f.now.Sub(last))), "read the agents' logs")
		p.Since = last.Add(limit)
	}
}

// verified: damage that verdicts know of, and no backup that passed structure for
// long.
func (f *finder) verified() {
	r := f.status.Repository
	if r.Listed.IsZero() {
		return
	}
	newest := time.Time{}
	for _, b := range r.Backups {
		if b.Proved != "" && b.Proved.Includes(report.Structure) && b.Time.After(newest) {
			newest = b.Time
		}
	}
	for _, b := range r.Backups {
		if b.Damaged == "" {
			continue
		}
		severity, next := web.Critical, "take a full snapshot now, and find out what changed the object: "+docs+"runbooks/RequorumVerifyFailed.md"
		if newest.After(b.Time) {
			severity, next = web.Warning, "a newer one is proved; find out what changed the object: "+docs+"runbooks/RequorumVerifyFailed.md"
		}
		f.add(web.KindVerify, severity, b.Timeline.String()+"/"+b.ID, fmt.Sprintf("backup %s is damaged: %s", b.ID, b.Damaged), next)
	}
	within := f.cfg.Objectives.VerifiedWithin.Std()
	since := f.started
	text := "no backup has passed the level structure"
	if !newest.IsZero() {
		since = newest
		text = fmt.Sprintf("the newest backup that passed the level structure is %s old", inWords(f.now.Sub(newest)))
	}
	if f.now.Sub(since) > within {
		p := f.add(web.KindUnverified, web.Critical, "", text, "run the job structure here or on a verifier; or 'requorum verify' now")
		p.Since = since.Add(within)
	}
}

// verifierLate is for how long a full snapshot may wait for agents on other hosts to verify it.
const verifierLate = 12 * time.Hour

// verifiers reports agents that run structure elsewhere, and do not any more: each full
// snapshot was verified before, and the newest ones are not.
func (f *finder) verifiers() {
	off := slices.ContainsFunc(f.status.Jobs, func(j job.Status) bool { return j.Name == jobStructure && j.Off != "" })
	if !off {
		return // a failure or a late run here is a problem of its own
	}
	backups := slices.SortedFunc(slices.Values(f.status.Repository.Backups), func(a, b web.Backup) int { return b.Time.Compare(a.Time) })
	proved := func(b web.Backup) bool { return b.Proved != "" && b.Proved.Includes(report.Structure) }
	n := slices.IndexFunc(backups, proved)
	if n < 1 || len(backups) < n+2 || !proved(backups[n+1]) {
		return
	}
	first := backups[n-1]
	if since := first.Finished.Add(verifierLate); first.Damaged == "" && f.now.After(since) {
		p := f.add(web.KindLate, web.Warning, "verifier", fmt.Sprintf("full snapshot %s has not been verified for %s, and those before it were: no agent runs the job structure now", first.ID, inWords(f.now.Sub(first.Finished))), "check the verifier's agent, or the agent with jobs.structure")
		p.Since = since
	}
}

// retention compares what the agents keep: each prunes by its own rules. One that stopped, or
// has another name now, prunes no more.
func (f *finder) retention() {
	var own string
	for _, a := range f.status.Agents {
		if a.Self {
			own = a.Keeps
		}
	}
	for _, a := range f.status.Agents {
		if own != "" && a.Keeps != "" && a.Keeps != own && !a.Silent(f.now) {
			f.add(web.KindRetention, web.Warning, a.Name, fmt.Sprintf("agent %s has another retention (%s) than this one (%s), and the agent that prunes uses its own", a.Name, a.Keeps, own), "configure retention alike on all agents, or set jobs.prune.run to off on all but one")
		}
	}
}

func (f *finder) host(seen observations) {
	notice := f.cfg.Objectives.CertificateNotice.Std()
	for _, c := range seen.certificates {
		switch left := c.Expires.Sub(f.now); {
		case c.Error != "":
			f.add(web.KindCertificate, web.Critical, c.Place, c.Error, "put a certificate there that can be read")
		case left <= 0:
			f.add(web.KindCertificate, web.Critical, c.Place, fmt.Sprintf("the certificate %s (%s) expired on %s", c.Place, c.Use, c.Expires.Format(time.DateOnly)), "renew it: it is read again at each handshake")
		case left < notice:
			f.add(web.KindCertificate, web.Warning, c.Place, fmt.Sprintf("the certificate %s (%s) expires in %s", c.Place, c.Use, inWords(left)), "renew it: it is read again at each handshake")
		}
	}
	for _, sp := range seen.folders {
		if sp.free < sp.need {
			f.add(web.KindSpace, web.Warning, sp.key, fmt.Sprintf("%s has %s free, and may need %s (%s)", sp.dir, humanize.IBytes(uint64(sp.free)), humanize.IBytes(uint64(max(0, sp.need))), sp.key), "make room, or name another folder in "+sp.key)
		}
	}
	if seen.identities != nil {
		f.add(web.KindIdentity, web.Critical, "", seen.identities.Error(), "find the identity that fits encryption.recipients before it is needed: without it no backup can be opened")
	}
	if f.heartbeat != nil {
		if p, bad := f.heartbeat.problem(); bad {
			f.all = append(f.all, problem{p, p.Text})
		}
	}
}

// describeComparison adds what the newest comparison of the members found.
func describeComparison(s *web.Status) {
	for _, j := range s.Jobs {
		var c job.Comparison
		if j.Name == jobDivergence && j.LastSuccess != nil && json.Unmarshal(j.LastSuccess.Detail, &c) == nil {
			s.Cluster.Compared, s.Cluster.ComparedRevision, s.Cluster.Divergent = j.LastSuccess.Finished, c.Revision, c.Divergent
		}
	}
}
