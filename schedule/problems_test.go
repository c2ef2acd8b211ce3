package schedule

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/archive"
)

// told is a teller that cannot deliver.
type told struct{ since time.Time }

func (told) Run(context.Context) error { return nil }
func (w told) Problem() (status.Problem, bool) {
	return status.Problem{Kind: status.KindHeartbeat, Severity: status.Warning, Since: w.since, Text: "the heartbeat cannot be delivered", Next: "look at the service"}, !w.since.IsZero()
}

// case of a problem: what is so that it is there.
type trouble struct {
	kind     string
	severity status.Severity
	text     string // a part of it
	make     func(t *term, s *status.Status, seen *observations)
}

func troubles(now time.Time) map[string]trouble {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	failed := func(name, text string) func(*term, *status.Status, *observations) {
		return func(_ *term, s *status.Status, _ *observations) {
			s.Jobs = []status.Job{{Name: name, LastFailure: &status.Run{Slot: "20260102T000000Z", Agent: "m2", Text: text, Finished: ago(time.Minute)}, LastSuccess: &status.Run{Slot: "20260101T000000Z", OK: true, Finished: ago(time.Hour)}}}
		}
	}
	backup := func(b status.Backup, more ...status.Backup) func(*term, *status.Status, *observations) {
		return func(_ *term, s *status.Status, _ *observations) {
			s.Repository.Listed, s.Repository.Backups = now, append([]status.Backup{b}, more...)
		}
	}
	certificate := func(c status.Certificate) func(*term, *status.Status, *observations) {
		return func(_ *term, _ *status.Status, seen *observations) { seen.certificates = []status.Certificate{c} }
	}
	opening := func(what string) func(*term, *status.Status, *observations) {
		return func(t *term, _ *status.Status, _ *observations) { t.failures[what] = errors.New("no route to host") }
	}
	all := map[string]trouble{
		"a refused reload": {status.KindConfig, status.Warning, "line 7", func(t *term, _ *status.Status, _ *observations) { t.Refuse(errors.New("line 7: what is this")) }},
		"etcd":             {status.KindCluster, status.Critical, "no route to host", opening("etcd")},
		"repository":       {status.KindRepository, status.Critical, "no route to host", opening("repository")},
		"archive":          {status.KindMember, status.Critical, "no route to host", opening("archive")},
		"jobs":             {status.KindJob, status.Critical, "no route to host", opening("jobs")},
		"recovery point": {status.KindRecoveryPoint, status.Critical, "would be lost", func(_ *term, s *status.Status, _ *observations) {
			s.RPO = status.RPO{Known: true, Until: ago(time.Hour), Seconds: 3600}
		}},
		"no recovery point": {status.KindRecoveryPoint, status.Critical, "everything would be lost", func(_ *term, s *status.Status, seen *observations) {
			s.RPO, seen.repository.Listed = status.RPO{Text: "everything would be lost"}, now
		}},
		"listing": {status.KindRepository, status.Critical, "denied", func(_ *term, _ *status.Status, seen *observations) { seen.repository.Error = "list: denied" }},
		"nobody writes": {status.KindWriter, status.Warning, "20 min", func(_ *term, s *status.Status, _ *observations) {
			s.Archive = &archive.State{Role: archive.Follower, Behind: 20 * time.Minute}
		}},
		"survey":    {status.KindCluster, status.Critical, "no member answers", func(_ *term, s *status.Status, _ *observations) { s.Cluster.Error = "deadline exceeded" }},
		"no leader": {status.KindCluster, status.Critical, "quorum", func(_ *term, _ *status.Status, seen *observations) { seen.leaderless = ago(time.Minute) }},
		"a member": {status.KindRemote, status.Warning, "member m3: refused", func(_ *term, s *status.Status, _ *observations) {
			s.Cluster.Members = []status.Member{{Name: "m3", Endpoint: "http://m3", Error: "refused"}}
		}},
		"corrupt": {status.KindCorrupt, status.Critical, "00a1", func(_ *term, _ *status.Status, seen *observations) { seen.corrupt = []string{"00a1"} }},
		"divergent": {status.KindDivergent, status.Critical, "revision 9", func(_ *term, s *status.Status, _ *observations) {
			s.Cluster.Divergent, s.Cluster.ComparedRevision = []string{"m2"}, 9
		}},
		"full failed":       {status.KindJob, status.Critical, "job full failed on m2: it is broken", failed(jobFull, "it is broken")},
		"merge failed":      {status.KindJob, status.Warning, "job merge failed on m2", failed(jobMerge, "it is broken")},
		"prune failed":      {status.KindRetention, status.Warning, "job prune failed on m2", failed(jobPrune, "denied")},
		"damage":            {status.KindVerify, status.Critical, "job checksum failed on m2: damage", failed(jobChecksum, damageIn+"backup x")},
		"not verified once": {status.KindJob, status.Warning, "job checksum failed on m2: timeout", failed(jobChecksum, "timeout")},
		"late": {status.KindLate, status.Warning, "job full was last done 3 days ago", func(_ *term, s *status.Status, _ *observations) {
			s.Jobs = []status.Job{{Name: jobFull, LastSuccess: &status.Run{Slot: "20260101T000000Z", OK: true, Finished: ago(73 * time.Hour)}}}
		}},
		"never done": {status.KindLate, status.Warning, "job full has not been done since this agent started, 4 days ago", func(t *term, s *status.Status, _ *observations) {
			t.started = ago(100 * time.Hour)
			s.Jobs = []status.Job{{Name: jobFull}}
		}},
		"damaged backup":        {status.KindVerify, status.Critical, "backup b1 is damaged: bits", backup(status.Backup{ID: "b1", Damaged: "bits", Time: ago(time.Hour)}, status.Backup{ID: "b0", Proved: report.Structure, Time: ago(2 * time.Hour)})},
		"an old damaged backup": {status.KindVerify, status.Warning, "backup b1 is damaged: bits", backup(status.Backup{ID: "b1", Damaged: "bits", Time: ago(2 * time.Hour)}, status.Backup{ID: "b2", Proved: report.Replay, Time: ago(time.Hour)})},
		"unverified":            {status.KindUnverified, status.Critical, "is 3 days old", backup(status.Backup{ID: "b1", Proved: report.Structure, Time: ago(80 * time.Hour)})},
		"checksum is not enough": {status.KindUnverified, status.Critical, "no backup has passed", func(t *term, s *status.Status, seen *observations) {
			t.started = ago(49 * time.Hour)
			backup(status.Backup{ID: "b1", Proved: report.Checksum, Time: ago(time.Hour)})(t, s, seen)
		}},
		"unreadable certificate": {status.KindCertificate, status.Critical, "permission", certificate(status.Certificate{Use: "etcd client", Place: "/a.crt", Error: "permission denied"})},
		"expired certificate":    {status.KindCertificate, status.Critical, "expired on 2026-", certificate(status.Certificate{Use: "etcd client", Place: "/a.crt", Expires: ago(time.Hour)})},
		"expiring certificate":   {status.KindCertificate, status.Warning, "expires in 9 days", certificate(status.Certificate{Use: "etcd client", Place: "/a.crt", Expires: ago(-9 * 24 * time.Hour)})},
		"canary":                 {status.KindCanary, status.Critical, "do not open", func(_ *term, _ *status.Status, seen *observations) { seen.canary = errors.New("they do not open it") }},
		"space": {status.KindSpace, status.Warning, "/spool has 1.0 KiB free, and may need 2.0 KiB", func(_ *term, _ *status.Status, seen *observations) {
			seen.folders = []folder{{"archive.spool-dir", "/spool", 1024, 2048}}
		}},
		"teller": {status.KindHeartbeat, status.Warning, "heartbeat", func(t *term, _ *status.Status, _ *observations) { t.tellers = []teller{told{ago(time.Minute)}} }},
	}
	for alarm := range afterAlarm {
		severity := status.Critical
		if milder[alarm] {
			severity = status.Warning
		}
		all["alarm "+string(alarm)] = trouble{string(alarm), severity, "why", func(_ *term, s *status.Status, _ *observations) {
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
			term := termOn(t, beside, memory())
			term.started = now.Add(-time.Hour)
			s, seen := &status.Status{Time: now}, observations{}
			s.RPO = status.RPO{Known: true, Until: now}
			term.describeProblems(s, seen)
			if len(s.Problems) > 0 {
				t.Fatalf("in order: %+v", s.Problems)
			}
			c.make(term, s, &seen)
			term.describeProblems(s, seen)
			if len(s.Problems) != 1 {
				t.Fatalf("%+v", s.Problems)
			}
			p := s.Problems[0]
			if p.Kind != c.kind || p.Severity != c.severity || !strings.Contains(p.Text, c.text) || p.Next == "" || p.Since.IsZero() || p.Since.After(now) || p.Since.Location() != time.UTC {
				t.Errorf("%+v", p)
			}
			if ready, _ := s.Ready(); ready != (c.severity == status.Warning) {
				t.Errorf("ready: %v", ready)
			}
			noNull(t, s.Problems)
		})
		kinds[c.kind] = true
	}
	for _, kind := range []string{
		status.KindCluster, status.KindMember, status.KindRemote, status.KindRepository, status.KindRecoveryPoint, status.KindJob, status.KindLate, status.KindVerify,
		status.KindUnverified, status.KindDivergent, status.KindCorrupt, status.KindRetention, status.KindCertificate, status.KindCanary, status.KindWriter,
		status.KindSpace, status.KindConfig, status.KindHeartbeat,
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
	for name, make := range map[string]func(t *term, s *status.Status, seen *observations){
		"succeeded since": func(_ *term, s *status.Status, _ *observations) {
			s.Jobs = []status.Job{{Name: jobFull, LastFailure: &status.Run{Slot: "20260101T000000Z"}, LastSuccess: &status.Run{Slot: "20260101T000000Z-demand-aaaaaa", OK: true, Finished: now}}}
		},
		"off": func(_ *term, s *status.Status, _ *observations) {
			s.Jobs = []status.Job{{Name: jobFull, Off: "it is", LastFailure: &status.Run{Slot: "20260101T000000Z"}}}
		},
		"on demand only": func(t *term, s *status.Status, _ *observations) {
			t.started = now.Add(-24 * 365 * time.Hour)
			s.Jobs = []status.Job{{Name: jobStructure}}
		},
		"an election": func(_ *term, _ *status.Status, seen *observations) { seen.leaderless = now.Add(-10 * time.Second) },
		"a fresh agent": func(t *term, s *status.Status, seen *observations) {
			t.started = now.Add(-20 * time.Second)
			s.Archive = &archive.State{Role: archive.Starting}
			s.RPO = status.RPO{Known: true, Until: now.Add(-9 * time.Hour), Seconds: 9 * 3600}
			seen.newest = &snapshot.Manifest{}
		},
		"seen by listings": func(_ *term, s *status.Status, _ *observations) {
			s.RPO = status.RPO{Known: true, Until: now.Add(-9 * time.Minute), Seconds: 9 * 60}
		},
		"not listed yet": func(_ *term, s *status.Status, _ *observations) { s.RPO = status.RPO{Text: "not listed"} },
		"a teller":       func(t *term, _ *status.Status, _ *observations) { t.tellers = []teller{told{}} },
	} {
		t.Run(name, func(t *testing.T) {
			term := termOn(t, beside, memory())
			term.started = now.Add(-time.Hour)
			s, seen := &status.Status{Time: now, RPO: status.RPO{Known: true, Until: now}}, observations{}
			make(term, s, &seen)
			term.describeProblems(s, seen)
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
	b := &problemBook{}
	warning := problem{status.Problem{Kind: "w", Severity: status.Warning, Since: begin.Add(-time.Hour)}, ""}
	one := func(subject string) problem {
		return problem{status.Problem{Kind: "c", Severity: status.Critical}, subject}
	}
	look := func(minutes int, all ...problem) (since []int) {
		t.Helper()
		found := b.found(all, begin.Add(time.Duration(minutes)*time.Minute))
		if !slices.IsSortedFunc(found, func(x, y status.Problem) int { return strings.Compare(string(x.Severity), string(y.Severity)) }) {
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

// The status is told at any time, while everything changes.
func TestDescribeConcurrently(t *testing.T) {
	term := termOn(t, beside, memory())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			term.mu.Lock()
			term.seen.cluster.Members = []status.Member{{Name: "m1", Local: true, Role: roleLeader}}
			term.seen.local = store.MemberStatus{MemberID: uint64(i)}
			term.seen.repository.Error = "away"
			term.mu.Unlock()
			term.Refuse(errors.New("x"))
			term.lookSoon()
		}
	}()
	for {
		s := term.Status()
		noNull(t, s)
		select {
		case <-done:
			return
		default:
		}
	}
}

// Another agent of the same name is told of by name.
func TestNamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory()
		term := termOn(t, beside, sink)
		must(t, term.openRepository(t.Context()))
		must(t, term.newRunner())
		named := func() (found []status.Problem) {
			s := &status.Status{Time: time.Now()}
			term.describeProblems(s, observations{})
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
		other, err := job.NewBoard(term.repo, "m1", job.BoardOptions{Exclusive: true})
		must(t, err)
		slot := repository.SlotName(time.Now())
		task, held, err := other.Claim(t.Context(), jobFull, slot)
		if err != nil || !held {
			t.Fatal(held, err)
		}
		defer task.Abandon()
		if _, held, err := term.board.Claim(t.Context(), jobFull, slot); err != nil || held {
			t.Fatal(held, err)
		}
		if p := named(); len(p) != 1 || p[0].Kind != status.KindConfig || p[0].Next == "" {
			t.Errorf("beside another: %+v", p)
		}
	})
}
