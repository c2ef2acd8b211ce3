package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/divergence"
	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/archive"
)

// problemBook remembers since when each problem is there.
type problemBook struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// found sets since when the problems are there, by kind and subject, and forgets
// those that are over.
func (b *problemBook) found(all []problem, now time.Time) []status.Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := map[string]time.Time{}
	out := []status.Problem{}
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
	slices.SortStableFunc(out, func(x, y status.Problem) int {
		return cmp.Or(cmp.Compare(x.Severity, y.Severity), x.Since.Compare(y.Since)) // critical sorts before warning
	})
	return out
}

// problem is one that may be among others of its kind.
type problem struct {
	status.Problem
	subject string
}

// severities of the archiver's alarms; others are critical.
var milder = map[archive.Alarm]bool{
	archive.AlarmSpool: true, archive.AlarmClock: true, archive.AlarmRestarted: true, archive.AlarmTimeline: true, archive.AlarmBehind: true,
}

// afterAlarm is what to do about an alarm.
var afterAlarm = map[archive.Alarm]string{
	archive.AlarmStalled:    "give the member's own data directory and client URL: member.data-dir and etcd.endpoints",
	archive.AlarmBehind:     "look whether the repository takes what is written: a slow line or a bandwidth limit may be too little",
	archive.AlarmMember:     "look at the member: its own log says why it does not answer",
	archive.AlarmRepository: "look at the repository and the way there; segments wait in the spool meanwhile, and follow",
	archive.AlarmSpool:      "bring the repository back, or raise archive.spool-limit",
	archive.AlarmSpoolFull:  "bring the repository back, and raise archive.spool-limit or make room on the spool's disk: what the member purges now is lost",
	archive.AlarmGap:        "a full snapshot closes it, and is taken by itself; look at the job full if it is not",
	archive.AlarmClock:      "set the clock: NTP on every member",
	archive.AlarmRolledBack: "find out who set the member's disk back; remove the member and add it anew, empty",
	archive.AlarmTimeline:   "make sure that this was meant: a restore, or a forced new cluster",
	archive.AlarmDamaged:    "verify the repository: 'requorum verify all --rung checksum' tells what is damaged",
	archive.AlarmLog:        "give the member's own member.data-dir (and member.wal-dir, where it has one), which this user may read",
	archive.AlarmRestarted:  "look at the reason, and at the agent's log if it comes again",
}

// describeProblems finds what somebody has to look at.
func (t *term) describeProblems(s *status.Status, seen observations) {
	f := &finder{term: t, status: s, now: s.Time}
	f.configuration()
	f.namesake()
	f.opening()
	f.archive()
	f.recoveryPoint(seen)
	f.repository(seen)
	f.cluster(seen)
	f.jobs()
	f.verified()
	f.host(seen)
	s.Problems = t.problems.found(f.all, s.Time)
}

// finder gathers the problems of a status.
type finder struct {
	*term
	status *status.Status
	now    time.Time
	all    []problem
}

func (f *finder) add(kind string, severity status.Severity, subject, text, next string) *problem {
	f.all = append(f.all, problem{status.Problem{Kind: kind, Severity: severity, Text: text, Next: next}, subject})
	return &f.all[len(f.all)-1]
}

func (f *finder) configuration() {
	f.Agent.mu.Lock()
	err := f.refused
	f.Agent.mu.Unlock()
	if err != nil {
		f.add(status.KindConfig, status.Warning, "reload", "the configuration that was read last is refused, and the one before goes on: "+err.Error(), "mend it, and send SIGHUP again")
	}
}

// namesake is another agent of the same name: each takes the other for itself.
func (f *finder) namesake() {
	f.mu.Lock()
	board := f.board
	f.mu.Unlock()
	if board == nil {
		return
	}
	if since, there := board.Namesake(); there {
		p := f.add(status.KindConfig, status.Warning, "name", fmt.Sprintf("another agent of this repository is called %s as well, and each takes the other's runs for its own", f.cfg.Name), "give each agent a name of its own: the key name, or the host's name")
		p.Since = since
	}
}

// opening are the parts that could not be opened since the agent started.
func (f *finder) opening() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range []struct{ what, kind, next string }{
		{"etcd", status.KindCluster, "look at the members, and at etcd's part of the configuration: 'requorum doctor' tries all of it"},
		{"repository", status.KindRepository, "look at the repository and the way there: 'requorum doctor' tries each operation"},
		{"archive", status.KindMember, "mend what it says; archiving is tried again by itself"},
		{"jobs", status.KindJob, "mend the configuration"},
	} {
		if err := f.failures[o.what]; err != nil {
			f.add(o.kind, status.Critical, o.what, o.what+": "+err.Error(), o.next)
		}
	}
}

func (f *finder) archive() {
	a := f.status.Archive
	if a == nil {
		return
	}
	for _, alarm := range a.Alarms {
		severity := status.Critical
		if milder[alarm.Alarm] {
			severity = status.Warning
		}
		next := afterAlarm[alarm.Alarm]
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
	case r.Known && f.cfg.Archiving() && f.point.at().IsZero() && f.now.Sub(f.started) <= objective:
		// The agent has just started, and its member is about to confirm more.
	case r.Known && r.Seconds > (objective+f.unseen()).Seconds():
		p := f.add(status.KindRecoveryPoint, status.Critical, "", fmt.Sprintf("everything since %s would be lost, and objectives.recovery-point is %s", r.Until.Format(time.RFC3339), f.cfg.Objectives.RecoveryPoint), next)
		p.Since = r.Until.Add(objective + f.unseen())
	case !r.Known && seen.repository.Listed.IsZero():
	case !r.Known && f.now.Sub(f.started) > objective:
		f.add(status.KindRecoveryPoint, status.Critical, "", r.Text, next)
	}
}

// unseen is for how long this agent may not have seen what others archive: one that
// archives itself knows at once, any other by its listings.
func (f *finder) unseen() time.Duration {
	if f.status.Archive != nil {
		return 0
	}
	return 2 * listEvery
}

func (f *finder) repository(seen observations) {
	if err := seen.repository.Error; err != "" {
		f.add(status.KindRepository, status.Critical, "listing", err, "look at the repository and the way there: 'requorum doctor' tries each operation")
	}
	if a := f.status.Archive; a != nil && a.Role == archive.Follower && a.Behind > f.cfg.Objectives.RecoveryPoint.Std() {
		f.add(status.KindWriter, status.Warning, "", fmt.Sprintf("nobody has archived what is committed since %s", inWords(a.Behind)), "look at the other agents; this one takes over by itself")
	}
}

// docs is where pages that a problem names can be read from a pager.
const docs = "https://github.com/requorum/requorum/blob/main/docs/"

// leaderlessAfter is longer than elections take.
const leaderlessAfter = 30 * time.Second

func (f *finder) cluster(seen observations) {
	c := &f.status.Cluster
	if c.Error != "" {
		if f.now.Sub(seen.silent) > leaderlessAfter { // a member that is restarted is back by then
			p := f.add(status.KindCluster, status.Critical, "survey", "no member answers: "+c.Error, "look at the members; where a majority is gone for good: "+docs+"restore.md")
			p.Since = seen.silent
		}
		return
	}
	if !seen.leaderless.IsZero() && f.now.Sub(seen.leaderless) > leaderlessAfter {
		p := f.add(status.KindCluster, status.Critical, "leader", "no member sees a leader: the quorum is lost, and nothing can be written", "bring members back; where a majority is gone for good: "+docs+"restore.md")
		p.Since = seen.leaderless
	}
	if !c.Asked.IsZero() && !f.seesVoter() && f.cfg.Jobs.Full.Enabled {
		f.add(status.KindCluster, status.Warning, "voter", "only learners answer this agent: it cannot take full snapshots, which need a voting member's word", "name the client URLs of voting members in etcd.endpoints as well")
	}
	for _, m := range c.Members {
		if m.Error != "" {
			f.add(status.KindRemote, status.Warning, m.Endpoint+m.ID, "member "+cmp.Or(m.Name, m.Endpoint, m.ID)+": "+m.Error, "look at the member, and at etcd.endpoints")
		}
	}
	if len(seen.corrupt) > 0 {
		f.add(status.KindCorrupt, status.Critical, "", "etcd's own corruption alarm is raised for "+strings.Join(seen.corrupt, ", "), "take no backup from there: remove the member and add it anew, empty: "+docs+"runbooks/RequorumMembersDivergent.md")
	}
	if len(c.Divergent) > 0 {
		f.add(status.KindDivergent, status.Critical, "", fmt.Sprintf("at revision %d the history of %s differs from the others'", c.ComparedRevision, strings.Join(c.Divergent, ", ")), "backups say which member they come from: "+docs+"runbooks/RequorumMembersDivergent.md")
	}
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

func (f *finder) failed(j status.Job) (kind string, severity status.Severity, next string) {
	switch {
	case j.Name == jobFull:
		return status.KindJob, status.Critical, "mend the reason; the next run is at its usual time, or now: POST /api/v1/jobs/full"
	case j.Name == jobPrune:
		return status.KindRetention, status.Warning, "'requorum prune --dry-run' shows what is to go, and why it cannot"
	case strings.HasPrefix(j.LastFailure.Text, damageIn):
		return status.KindVerify, status.Critical, "'requorum show' and 'requorum verify' tell more; take a full snapshot now; docs/runbooks/RequorumVerifyFailed.md"
	}
	return status.KindJob, status.Warning, "mend the reason; the next run is at its usual time, or now: POST /api/v1/jobs/" + j.Name
}

// late: a job that nobody has done for twice its period, and an hour.
func (f *finder) late(j status.Job) {
	longest := f.longest[j.Name]
	if longest == 0 {
		return
	}
	last, done := f.started, "has not been done since this agent started,"
	if j.LastSuccess != nil {
		last, done = j.LastSuccess.Finished, "was last done"
	}
	if limit := 2*longest + time.Hour; f.now.Sub(last) > limit {
		p := f.add(status.KindLate, status.Warning, j.Name, fmt.Sprintf("job %s %s %s ago", j.Name, done, inWords(f.now.Sub(last))), "look at the agents' logs; POST /api/v1/jobs/"+j.Name+" runs it now")
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
		severity, next := status.Critical, "take a full snapshot now, and find out what changed the object: "+docs+"runbooks/RequorumVerifyFailed.md"
		if newest.After(b.Time) {
			severity, next = status.Warning, "a newer one is proved; find out what changed the object: "+docs+"runbooks/RequorumVerifyFailed.md"
		}
		f.add(status.KindVerify, severity, b.Timeline.String()+"/"+b.ID, fmt.Sprintf("backup %s is damaged: %s", b.ID, b.Damaged), next)
	}
	within := f.cfg.Objectives.VerifiedWithin.Std()
	since := f.started
	text := "no backup has passed the rung structure"
	if !newest.IsZero() {
		since = newest
		text = fmt.Sprintf("the newest backup that passed the rung structure is %s old", inWords(f.now.Sub(newest)))
	}
	if f.now.Sub(since) > within {
		p := f.add(status.KindUnverified, status.Critical, "", text, "run the job structure here or on a verifier: POST /api/v1/jobs/structure, or 'requorum verify'")
		p.Since = since.Add(within)
	}
}

func (f *finder) host(seen observations) {
	notice := f.cfg.Objectives.CertificateNotice.Std()
	for _, c := range seen.certificates {
		switch left := c.Expires.Sub(f.now); {
		case c.Error != "":
			f.add(status.KindCertificate, status.Critical, c.Place, c.Error, "put a certificate there that can be read")
		case left <= 0:
			f.add(status.KindCertificate, status.Critical, c.Place, fmt.Sprintf("the certificate %s (%s) expired on %s", c.Place, c.Use, c.Expires.Format(time.DateOnly)), "renew it: it is read again at each handshake")
		case left < notice:
			f.add(status.KindCertificate, status.Warning, c.Place, fmt.Sprintf("the certificate %s (%s) expires in %s", c.Place, c.Use, inWords(left)), "renew it: it is read again at each handshake")
		}
	}
	for _, sp := range seen.folders {
		if sp.free < sp.need {
			f.add(status.KindSpace, status.Warning, sp.key, fmt.Sprintf("%s has %s free, and may need %s (%s)", sp.dir, humanize.IBytes(uint64(sp.free)), humanize.IBytes(uint64(max(0, sp.need))), sp.key), "make room, or name another folder in "+sp.key)
		}
	}
	if seen.canary != nil {
		f.add(status.KindCanary, status.Critical, "", seen.canary.Error(), "find the identity that fits encryption.recipients before it is needed: without it no backup can be opened")
	}
	for _, one := range f.tellers {
		if p, bad := one.Problem(); bad {
			f.all = append(f.all, problem{p, p.Text})
		}
	}
}

// describeComparison takes over what the newest comparison of the members showed.
func (t *term) describeComparison(s *status.Status) {
	t.mu.Lock()
	board := t.board
	t.mu.Unlock()
	if board == nil {
		return
	}
	h, ok := board.Known()[jobDivergence]
	if !ok || h.LastSuccess == nil {
		return
	}
	var r divergence.Result
	if err := json.Unmarshal(h.Detail, &r); err != nil {
		return // an older version wrote none
	}
	s.Cluster.Compared, s.Cluster.ComparedRevision = h.LastSuccess.Finished, r.Revision
	for _, m := range r.Divergent {
		s.Cluster.Divergent = append(s.Cluster.Divergent, m.String())
	}
}
