package schedule

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/archive"
)

// case of a problem: what is so that it is there.
type trouble struct {
	kind     string
	severity web.Severity
	text     string // a part of it
	make     func(t *session, s *web.Status, seen *observations)
}

func troubles(now time.Time) map[string]trouble {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	failed := func(name, text string) func(*session, *web.Status, *observations) {
		return func(_ *session, s *web.Status, _ *observations) {
			s.Jobs = []job.Status{{Name: name, LastFailure: &job.Run{Slot: "20260102T000000Z", Agent: "m2", Text: text, Finished: ago(time.Minute)}, LastSuccess: &job.Run{Slot: "20260101T000000Z", OK: true, Finished: ago(time.Hour)}}}
		}
	}
	backup := func(b web.Backup, more ...web.Backup) func(*session, *web.Status, *observations) {
		return func(_ *session, s *web.Status, _ *observations) {
			s.Repository.Listed, s.Repository.Backups = now, append([]web.Backup{b}, more...)
		}
	}
	certificate := func(c web.Certificate) func(*session, *web.Status, *observations) {
		return func(_ *session, _ *web.Status, seen *observations) { seen.certificates = []web.Certificate{c} }
	}
	opening := func(what string) func(*session, *web.Status, *observations) {
		return func(t *session, _ *web.Status, _ *observations) { t.failures[what] = errors.New("no route to host") }
	}
	all := map[string]trouble{
		"a refused reload": {web.KindConfig, web.Warning, "line 7", func(t *session, _ *web.Status, _ *observations) { t.Refuse(errors.New("line 7: what is this")) }},
		"etcd":             {web.KindCluster, web.Critical, "no route to host", opening("etcd")},
		"repository":       {web.KindRepository, web.Critical, "no route to host", opening("repository")},
		"archive":          {web.KindMember, web.Critical, "no route to host", opening("archive")},
		"recovery point": {web.KindRecoveryPoint, web.Critical, "would be lost", func(_ *session, s *web.Status, _ *observations) {
			s.RPO = web.RPO{Known: true, Until: ago(time.Hour), Seconds: 3600}
		}},
		"no recovery point": {web.KindRecoveryPoint, web.Critical, "everything would be lost", func(_ *session, s *web.Status, seen *observations) {
			s.RPO, seen.repository.Listed = web.RPO{Text: "everything would be lost"}, now
		}},
		"listing": {web.KindRepository, web.Critical, "denied", func(_ *session, _ *web.Status, seen *observations) { seen.repository.Error = "list: denied" }},
		"repository gone": {web.KindRepository, web.Critical, "does not answer since 11:58:00 UTC: denied", func(_ *session, s *web.Status, seen *observations) {
			seen.sight = sight{at: ago(2 * time.Minute), err: errors.New("denied")}
			s.RPO = web.RPO{Unknown: seen.sight.at, Until: seen.sight.at}
		}},
		"gone for longer than the objective": {web.KindRecoveryPoint, web.Critical, "is not known", func(_ *session, s *web.Status, _ *observations) {
			s.RPO = web.RPO{Unknown: ago(time.Hour), Until: ago(time.Hour)}
		}},
		"less than archived": {string(archive.AlarmGap), web.Critical, "can be restored to raft index 7 only, and more was archived: they are gone", func(_ *session, s *web.Status, seen *observations) {
			s.Archive = &archive.State{Role: archive.Writer, Timeline: timelineA}
			seen.reach, seen.newest = &reach{timelineA, 7, "they are gone"}, &snapshot.Manifest{}
		}},
		"nobody writes": {web.KindWriter, web.Warning, "20 min", func(_ *session, s *web.Status, _ *observations) {
			s.Archive = &archive.State{Role: archive.Follower, Behind: 20 * time.Minute}
		}},
		"survey":    {web.KindCluster, web.Critical, "no member answers", func(_ *session, s *web.Status, _ *observations) { s.Cluster.Error = "deadline exceeded" }},
		"no leader": {web.KindCluster, web.Critical, "quorum", func(_ *session, _ *web.Status, seen *observations) { seen.leaderless = ago(time.Minute) }},
		"a member": {web.KindRemote, web.Warning, "member m3 does not answer: refused", func(_ *session, s *web.Status, _ *observations) {
			s.Cluster.Members = []web.Member{{Name: "m3", Endpoint: "http://m3", Error: "refused"}}
		}},
		"full": {web.KindNoSpace, web.Critical, "NOSPACE is raised for m1, member 00a2: the database", func(_ *session, s *web.Status, seen *observations) {
			seen.full, s.Cluster.Members = []string{"00a1", "00a2"}, []web.Member{{ID: "00a1", Name: "m1"}}
		}},
		"corrupt": {web.KindCorrupt, web.Critical, "00a1", func(_ *session, _ *web.Status, seen *observations) { seen.corrupt = []string{"00a1"} }},
		"divergent": {web.KindDivergent, web.Critical, "revision 9", func(_ *session, s *web.Status, _ *observations) {
			s.Cluster.Divergent, s.Cluster.ComparedRevision = []string{"m2"}, 9
		}},
		"full failed":  {web.KindJob, web.Critical, "job full failed on m2: it is broken", failed(jobFull, "it is broken")},
		"merge failed": {web.KindJob, web.Warning, "job merge failed on m2", failed(jobMerge, "it is broken")},
		"prune failed": {web.KindRetention, web.Warning, "job prune failed on m2", failed(jobPrune, "denied")},
		"damage": {web.KindVerify, web.Critical, "job checksum failed on m2: damage", func(_ *session, s *web.Status, _ *observations) {
			failed(jobChecksum, "damage")(nil, s, nil)
			s.Jobs[0].LastFailure.Damaged = true
		}},
		"not verified once": {web.KindJob, web.Warning, "job checksum failed on m2: timeout", failed(jobChecksum, "timeout")},
		"late": {web.KindLate, web.Warning, "job full was last done 3 days ago", func(_ *session, s *web.Status, _ *observations) {
			s.Jobs = []job.Status{{Name: jobFull, LastSuccess: &job.Run{Slot: "20260101T000000Z", OK: true, Finished: ago(73 * time.Hour)}}}
		}},
		"never done": {web.KindLate, web.Warning, "job full has not been done since this agent started, 4 days ago", func(t *session, s *web.Status, _ *observations) {
			t.started = ago(100 * time.Hour)
			s.Jobs = []job.Status{{Name: jobFull}}
		}},
		"damaged backup":        {web.KindVerify, web.Critical, "backup b1 is damaged: bits", backup(web.Backup{ID: "b1", Damaged: "bits", Time: ago(time.Hour)}, web.Backup{ID: "b0", Proved: report.Structure, Time: ago(2 * time.Hour)})},
		"an old damaged backup": {web.KindVerify, web.Warning, "backup b1 is damaged: bits", backup(web.Backup{ID: "b1", Damaged: "bits", Time: ago(2 * time.Hour)}, web.Backup{ID: "b2", Proved: report.Replay, Time: ago(time.Hour)})},
		"unverified":            {web.KindUnverified, web.Critical, "is 3 days old", backup(web.Backup{ID: "b1", Proved: report.Structure, Time: ago(80 * time.Hour)})},
		"checksum is not enough": {web.KindUnverified, web.Critical, "no backup has passed", func(t *session, s *web.Status, seen *observations) {
			t.started = ago(49 * time.Hour)
			backup(web.Backup{ID: "b1", Proved: report.Checksum, Time: ago(time.Hour)})(t, s, seen)
		}},
		"the verifier is gone": {web.KindLate, web.Warning, "full snapshot b3 has not been verified for 13 h", func(t *session, s *web.Status, seen *observations) {
			s.Jobs = []job.Status{{Name: jobStructure, Off: "it is"}}
			backup(
				web.Backup{ID: "b1", Proved: report.Structure, Time: ago(38 * time.Hour)}, web.Backup{ID: "b2", Proved: report.Replay, Time: ago(26 * time.Hour)},
				web.Backup{ID: "b3", Time: ago(13 * time.Hour), Finished: ago(13 * time.Hour)}, web.Backup{ID: "b4", Time: ago(time.Hour), Finished: ago(time.Hour)},
			)(t, s, seen)
		}},
		"another retention": {web.KindRetention, web.Warning, "agent m2 has another retention (last 1) than this one (last 3)", func(_ *session, s *web.Status, _ *observations) {
			s.Agents = []web.Agent{{Name: "m1", Self: true, Keeps: "last 3"}, {Name: "m2", Keeps: "last 1"}, {Name: "m3", Keeps: "last 3"}, {Name: "verifier"}}
		}},
		"unreadable certificate": {web.KindCertificate, web.Critical, "permission", certificate(web.Certificate{Use: "etcd client", Place: "/a.crt", Error: "permission denied"})},
		"expired certificate":    {web.KindCertificate, web.Critical, "expired on 2026-", certificate(web.Certificate{Use: "etcd client", Place: "/a.crt", Expires: ago(time.Hour)})},
		"expiring certificate":   {web.KindCertificate, web.Warning, "expires in 9 days", certificate(web.Certificate{Use: "etcd client", Place: "/a.crt", Expires: ago(-9 * 24 * time.Hour)})},
		"identities": {web.KindIdentity, web.Critical, "do not open", func(_ *session, _ *web.Status, seen *observations) {
			seen.identities = errors.New("they do not open it")
		}},
		"space": {web.KindSpace, web.Warning, "/spool has 1.0 KiB free, and may need 2.0 KiB", func(_ *session, _ *web.Status, seen *observations) {
			seen.folders = []folder{{"archive.spool-dir", "/spool", 1024, 2048}}
		}},
		"heartbeat": {web.KindHeartbeat, web.Warning, "heartbeat", func(t *session, _ *web.Status, _ *observations) {
			t.heartbeat = &heartbeat{trouble: "it answers 502", since: ago(time.Minute)}
		}},
	}
	milder := []archive.Alarm{archive.AlarmSpool, archive.AlarmClock, archive.AlarmRestarted, archive.AlarmTimeline, archive.AlarmBehind, archive.AlarmForeign}
	for _, alarm := range archive.Alarms() {
		severity := web.Critical
		if slices.Contains(milder, alarm) {
			severity = web.Warning
		}
		all["alarm "+string(alarm)] = trouble{string(alarm), severity, "why", func(_ *session, s *web.Status, _ *observations) {
			s.Archive = &archive.State{Role: archive.Writer, Alarms: []archive.RaisedAlarm{{Alarm: alarm, Since: ago(time.Hour), Text: "why"}}}
		}}
	}
	return all
}

// Promise 2: what is wrong is a problem, with the reason and the next step.
func TestPromise2Problems(t *testing.T) {
	now := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	kinds := map[string]bool{}
	for name, c := range troubles(now) {
		t.Run(name, func(t *testing.T) {
			session := termOn(t, beside, memory())
			session.started = now.Add(-time.Hour)
			s, seen := &web.Status{Time: now}, observations{}
			s.RPO = web.RPO{Known: true, Until: now}
			session.describeProblems(s, seen)
			if len(s.Problems) > 0 {
				t.Fatalf("in order: %+v", s.Problems)
			}
			c.make(session, s, &seen)
			session.describeProblems(s, seen)
			if len(s.Problems) != 1 {
				t.Fatalf("%+v", s.Problems)
			}
			p := s.Problems[0]
			if p.Kind != c.kind || p.Severity != c.severity || !strings.Contains(p.Text, c.text) || p.Next == "" || p.Since.IsZero() || p.Since.After(now) || p.Since.Location() != time.UTC {
				t.Errorf("%+v", p)
			}
			if (name == "survey" || name == "no leader") && !strings.Contains(p.Next, "docs/quorum-loss.md") {
				t.Errorf("a restore would lose the newest writes, and the next step is %s", p.Next)
			}
			if _, page, ok := strings.Cut(p.Next, docs); ok {
				page, _, _ := strings.Cut(page, "#")
				_, err := os.Stat("../docs/" + page)
				require.NoError(t, err, "the next step names no page of ours")
			}
			if ready, _ := s.Ready(); ready != (c.severity == web.Warning) {
				t.Errorf("ready: %v", ready)
			}
			noNull(t, s.Problems)
		})
		kinds[c.kind] = true
	}
	for _, kind := range []string{
		web.KindCluster, web.KindMember, web.KindRemote, web.KindRepository, web.KindRecoveryPoint, web.KindJob, web.KindLate, web.KindVerify,
		web.KindUnverified, web.KindDivergent, web.KindCorrupt, web.KindRetention, web.KindCertificate, web.KindIdentity, web.KindWriter,
		web.KindSpace, web.KindConfig, web.KindHeartbeat, web.KindNoSpace,
	} {
		if !kinds[kind] {
			t.Errorf("no problem of kind %s", kind)
		}
	}
}

// What is no trouble: a job that succeeded since, one that is off, an election, and
// what a fresh agent does not know yet.
func TestNoProblems(t *testing.T) {
	now := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	for name, make := range map[string]func(t *session, s *web.Status, seen *observations){
		"succeeded since": func(_ *session, s *web.Status, _ *observations) {
			s.Jobs = []job.Status{{Name: jobFull, LastFailure: &job.Run{Slot: "20260101T000000Z"}, LastSuccess: &job.Run{Slot: "20260101T000000Z-demand-aaaaaa", OK: true, Finished: now}}}
		},
		"off": func(_ *session, s *web.Status, _ *observations) {
			s.Jobs = []job.Status{{Name: jobFull, Off: "it is", LastFailure: &job.Run{Slot: "20260101T000000Z"}}}
		},
		"on demand only": func(t *session, s *web.Status, _ *observations) {
			t.started = now.Add(-24 * 365 * time.Hour)
			s.Jobs = []job.Status{{Name: jobStructure}}
		},
		"verified weekly": func(_ *session, s *web.Status, _ *observations) {
			s.Jobs = []job.Status{{Name: jobStructure, Off: "it is"}}
			s.Repository.Listed, s.Repository.Backups = now, []web.Backup{
				{ID: "b1", Time: now.Add(-47 * time.Hour)}, {ID: "b2", Proved: report.Structure, Time: now.Add(-46 * time.Hour)}, {ID: "b3", Time: now.Add(-23 * time.Hour)},
			}
		},
		"another retention of an agent that stopped": func(_ *session, s *web.Status, _ *observations) {
			s.Agents = []web.Agent{{Name: "m1", Self: true, Keeps: "last 3"}, {Name: "m1-old", Role: "follower", Keeps: "last 1", Seen: now.Add(-time.Hour)}}
		},
		"an election": func(_ *session, _ *web.Status, seen *observations) { seen.leaderless = now.Add(-10 * time.Second) },
		"a fresh agent": func(t *session, s *web.Status, seen *observations) {
			t.started = now.Add(-20 * time.Second)
			s.Archive = &archive.State{Role: archive.Starting}
			s.RPO = web.RPO{Known: true, Until: now.Add(-9 * time.Hour), Seconds: 9 * 3600}
			seen.newest = &snapshot.Manifest{}
		},
		"seen by listings": func(_ *session, s *web.Status, _ *observations) {
			s.RPO = web.RPO{Known: true, Until: now.Add(-9 * time.Minute), Seconds: 9 * 60}
		},
		"not listed yet": func(_ *session, s *web.Status, _ *observations) { s.RPO = web.RPO{Text: "not listed"} },
		"a heartbeat":    func(t *session, _ *web.Status, _ *observations) { t.heartbeat = &heartbeat{} },
	} {
		t.Run(name, func(t *testing.T) {
			session := termOn(t, beside, memory())
			session.started = now.Add(-time.Hour)
			s, seen := &web.Status{Time: now, RPO: web.RPO{Known: true, Until: now}}, observations{}
			make(session, s, &seen)
			session.describeProblems(s, seen)
			if len(s.Problems) > 0 {
				t.Errorf("%+v", s.Problems)
			}
		})
	}
}

// Since is when a problem was first seen, and a problem that was over begins anew;
// what is critical comes first, and then what is older.
func TestProblemsSince(t *testing.T) {
	begin := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	b := &problemLog{}
	warning := problem{web.Problem{Kind: "w", Severity: web.Warning, Since: begin.Add(-time.Hour)}, ""}
	one := func(subject string) problem {
		return problem{web.Problem{Kind: "c", Severity: web.Critical}, subject}
	}
	look := func(minutes int, all ...problem) (since []int) {
		t.Helper()
		found := b.found(all, begin.Add(time.Duration(minutes)*time.Minute))
		if !slices.IsSortedFunc(found, func(x, y web.Problem) int { return strings.Compare(string(x.Severity), string(y.Severity)) }) {
			t.Errorf("the order is %+v", found)
		}
		for _, p := range found {
			since = append(since, int(p.Since.Sub(begin).Minutes()))
		}
		return since
	}
	expect := func(got []int, want ...int) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("since %v, want %v", got, want)
		}
	}
	expect(look(0, warning, one("a")), 0, -60)
	expect(look(1, warning, one("b"), one("a")), 0, 1, -60)
	expect(look(2, one("b")), 1)
	expect(look(3, one("a"), one("b")), 1, 3)
	expect(look(4))
	expect(look(5, one("b")), 5)
	if b.found(nil, begin) == nil {
		t.Error("no problems are a nil list")
	}
}

// The status is reported at any time, while everything changes.
func TestDescribeConcurrently(t *testing.T) {
	session := termOn(t, beside, memory())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			session.mu.Lock()
			session.seen.cluster.Members = []web.Member{{Name: "m1", Local: true, Role: roleLeader}}
			session.seen.local = client.MemberStatus{MemberID: uint64(i)}
			session.seen.repository.Error = "away"
			session.mu.Unlock()
			session.Refuse(errors.New("x"))
			session.lookSoon()
		}
	}()
	for {
		s := session.Status()
		noNull(t, s)
		select {
		case <-done:
			return
		default:
		}
	}
}

// Another agent of the same name is reported by name.
func TestDuplicateName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := termOn(t, beside, memory())
		must(t, session.openRepository(t.Context()))
		withRunner(t, session, nil)
		named := func() (found []web.Problem) {
			must(t, session.runner.History(t.Context()))
			s := &web.Status{Time: time.Now()}
			session.describeProblems(s, observations{})
			for _, p := range s.Problems {
				if strings.Contains(p.Text, "is called m1 as well") {
					found = append(found, p)
				}
			}
			return found
		}
		time.Sleep(time.Hour)
		if p := named(); len(p) != 0 {
			t.Errorf("alone: %+v", p)
		}
		name := repository.JobName{Job: jobMerge, Slot: repository.SlotName(time.Now())}
		must(t, session.repo.WriteJob(t.Context(), name, repository.JobRecord{Job: name.Job, Slot: name.Slot, Attempt: 1, OK: true, Holder: session.cfg.Name, Process: "another"}))
		if p := named(); len(p) != 1 || p[0].Kind != web.KindConfig || p[0].Next == "" {
			t.Errorf("beside another: %+v", p)
		}
	})
}
