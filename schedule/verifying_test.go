package schedule

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// What each job verifies when nobody says what.
func TestChosen(t *testing.T) {
	now := time.Now()
	sink := memory()
	s := newShelf(t, sink)
	session := termOn(t, verifier, sink)
	var due targetsOf
	chosen := func(name string, arg any) string {
		t.Helper()
		all, why, err := session.chosen(t.Context(), &job.Task{Job: name, Arg: arg}, due)
		must(t, err)
		if len(all) == 0 {
			return why
		}
		var texts []string
		for _, one := range all {
			texts = append(texts, strings.TrimSuffix(one.backup+"@"+one.timeline, "@"))
		}
		return strings.Join(texts, " ")
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s; want %s", what, got, want)
		}
	}
	due = theLatest
	expect("no backup", chosen(jobReplay, nil), noneYet)

	old := s.full(timelineA, now.Add(-30*24*time.Hour))
	s.log(timelineA, 1, now)
	first := s.full(timelineA, now.Add(-3*24*time.Hour))
	s.log(timelineA, 1, now)
	second := s.full(timelineA, now.Add(-2*24*time.Hour))
	s.log(timelineA, 1, now)
	third := s.full(timelineA, now.Add(-time.Hour))
	// Another history under the same roof makes "latest" ambiguous to who does not
	// say which.
	s.timeline(timelineB)
	other := s.full(timelineB, now.Add(-50*time.Hour))
	latestA := "latest@" + timelineA.String()
	expect("the newest with its log", chosen(jobDrill, nil), latestA)
	expect("demanded for one", chosen(jobStructure, arguments{Backup: old.ID}), old.ID)

	due = unread
	at := func(m *snapshot.Manifest) string { return m.ID + "@" + m.Timeline.String() }
	expect("all of this week", chosen(jobChecksum, nil), strings.Join([]string{at(first), at(second), at(other), latestA}, " "))
	s.verdict(first, report.Structure, report.Passed)
	s.verdict(second, "", report.Damaged)
	s.verdict(third, report.Checksum, report.Passed)
	expect("those that nobody read, and the log", chosen(jobChecksum, nil), strings.Join([]string{at(other), latestA}, " "))

	due = unproved
	expect("checksum is no structure", chosen(jobStructure, nil), at(third))
	s.verdict(third, report.Structure, report.Passed)
	expect("proved", chosen(jobStructure, nil), noneNew)
}

// What a report comes to: damage before all, then what could not be looked at; and
// what has nothing to be compared with yet is neither.
func TestAnswerOf(t *testing.T) {
	check := func(level report.Level, object string, status report.Status, text string) report.Check {
		c := report.Check{Level: level, Object: object, Status: status, Bytes: 1 << 20}
		if status == report.Damaged {
			c.Findings = []report.Finding{{Text: text}}
		} else {
			c.Reason = text
		}
		return c
	}
	r := &report.Report{Checks: []report.Check{
		check(report.Checksum, "t/full/a", report.Passed, ""), check(report.Replay, "t/full/a", report.Unchecked, "the first\none"),
	}}
	r.Checks[1].NoBase = true
	a := answerOf(verify.Latest, report.Replay, r)
	if a.Damaged != "" || a.Unchecked != "" || a.Bytes != 2<<20 || !strings.Contains(a.Text, nothingYet) || strings.Contains(a.Text, "\n") || strings.Contains(a.Text, "passed the level replay") {
		t.Errorf("too early: %+v", a)
	}
	r.Checks[1].NoBase = false
	a = answerOf("b", report.Replay, r)
	if a.Unchecked != `t/full/a: the first\none` || a.Of != "backup b" {
		t.Errorf("unchecked: %+v", a)
	}
	r.Checks = append(r.Checks, check(report.Structure, "t/full/b", report.Damaged, "bad"), check(report.Structure, "t/full/c", report.Damaged, "worse"))
	r.Checks[1].NoBase = true
	a = answerOf(verify.All, report.Replay, r)
	if a.Damaged != "t/full/b: bad" || a.Unchecked != "" || a.Of != "the repository" {
		t.Errorf("damaged: %+v", a)
	}
}

// library is a repository on disk with a log that begins at the member's first
// entry and databases that it gives.
type library struct {
	*testing.T
	repo    *repository.Repository
	entries []raftlog.Entry
	stored  int
	sum     raftlog.Sum
}

func newLibrary(t *testing.T, dir string) *library {
	t.Helper()
	sink, err := disk.New(filepath.Join(dir, "repo"))
	must(t, err)
	t.Cleanup(func() { sink.Close() })
	repo, err := repository.Init(t.Context(), sink, time.Now())
	must(t, err)
	l := &library{T: t, repo: repo}
	must(t, repo.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: timelineA, Created: time.Now(), Reason: "test"}))
	l.entries = logtest.Begin(t)
	return l
}

func (l *library) puts(n int) {
	l.Helper()
	for range n {
		l.entries = append(l.entries, logtest.Entry(l, uint64(len(l.entries)+1), logtest.Put("/k", fmt.Sprint(len(l.entries)))))
	}
}

// full stores the state at the log's end as if a member had sent it.
func (l *library) full() *snapshot.Manifest {
	l.Helper()
	image, _ := logtest.Database(l, l.entries)
	m := logtest.Full(l, l.repo, image, logtest.Stored{Timeline: timelineA})
	time.Sleep(time.Millisecond) // clocks that stand still would leave it open which is the newest
	return m
}

// archive stores what is new in the log; skip leaves out so many entries before.
func (l *library) archive(skip int) {
	l.Helper()
	if skip > 0 {
		must(l, segment.WriteGap(l.Context(), l.repo, segment.GapRecord{Timeline: timelineA, First: uint64(l.stored + 1), Last: uint64(l.stored + skip), Reason: "test", Created: time.Now()}))
	}
	for range skip {
		l.sum = l.sum.Next(l.entries[l.stored])
		l.stored++
	}
	l.sum = logtest.Archive(l, l.repo, timelineA, l.sum, segment.Batch{Entries: l.entries[l.stored:]}, time.Now(), codec.Options{}).After
	l.stored = len(l.entries)
}

// Jobs that verify, in processes of their own: what has nothing to be compared with
// yet is in order, damage ends the slot and hides nothing else, and what could not
// be looked at is tried again.
func TestVerifyingJobs(t *testing.T) {
	dir := t.TempDir()
	l := newLibrary(t, dir)
	session := termOn(t, onDisk(dir, "127.0.0.1:0", ""), l.repo.Sink())
	session.Program = storetest.Requorum(t)
	run := func(do func(*job.Task) (job.Result, error), want string) job.Result {
		t.Helper()
		r, err := do(&job.Task{Job: jobReplay})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Fatalf("%+v, %v; want %q", r, err, want)
		}
		return r
	}
	checksum := func(task *job.Task) (job.Result, error) { return session.checksum(t.Context(), task) }
	structure := func(task *job.Task) (job.Result, error) { return session.structure(t.Context(), task) }
	replay := func(task *job.Task) (job.Result, error) { return session.replay(t.Context(), task) }
	words := func(r job.Result, want string) {
		t.Helper()
		if !strings.Contains(r.Text, want) || strings.Contains(r.Text, "\n") {
			t.Errorf("%q; want %q", r.Text, want)
		}
	}

	for _, do := range []func(*job.Task) (job.Result, error){checksum, structure, replay} {
		words(run(do, ""), noneYet)
	}
	l.puts(5)
	l.stored = len(l.entries) // the agent came to a cluster that ran already
	l.full()
	l.puts(4)
	l.archive(0)
	words(run(replay, ""), nothingYet)
	words(run(structure, ""), noneNew) // the replay includes it
	l.puts(3)
	second := l.full()
	l.archive(0)
	words(run(structure, ""), "passed the level structure")
	words(run(replay, ""), "the newest backup, with the log after it, passed the level replay")
	words(run(checksum, ""), "passed the level checksum")
	if w := proofOf(t, l.repo, second); w != report.Replay {
		t.Errorf("it reached %q", w)
	}
	// The first one behind a gap.
	l.puts(4)
	l.puts(4)
	l.full()
	l.puts(2)
	l.archive(8)
	words(run(replay, ""), nothingYet)

	// Damage in one that is new hides nothing of the next.
	damaged := l.full()
	l.puts(1)
	l.archive(0)
	newest := l.full()
	path := filepath.Join(dir, "repo", damaged.Object.Name)
	data, err := os.ReadFile(path)
	must(t, err)
	data[len(data)/2] ^= 1
	must(t, os.Chmod(path, 0o600))
	must(t, os.WriteFile(path, data, 0o600))
	r := run(checksum, "damage was found in backup "+damaged.ID)
	again, err := checksum(&job.Task{Job: jobChecksum, Arg: arguments{Backup: damaged.ID}})
	if err == nil || r.Bytes == 0 || !r.Damaged || !r.Final || !again.Damaged {
		t.Errorf("%+v, %v", r, err)
	}
	if w := proofOf(t, l.repo, newest); w != report.Checksum {
		t.Errorf("the newest reached %q", w)
	}
	run(checksum, "") // the damage is known by now
	// What could not be looked at: the process's own room is missing.
	must(t, os.RemoveAll(filepath.Join(dir, "scratch")))
	must(t, os.WriteFile(filepath.Join(dir, "scratch"), nil, 0o600))
	if r, err := structure(&job.Task{Job: jobStructure}); err == nil || !strings.Contains(err.Error(), "scratch") || r.Final || r.Damaged {
		t.Errorf("no scratch folder: %v", err)
	}
}

func proofOf(t *testing.T, repo *repository.Repository, m *snapshot.Manifest) report.Level {
	t.Helper()
	chain, err := verdict.ReadAll(t.Context(), repo)
	must(t, err)
	m, err = snapshot.ReadManifest(t.Context(), repo, m.Timeline, m.ID)
	must(t, err)
	w, _ := chain.Best(m)
	return w.Verdict.Reached
}

// Errors of several backups are one line, and each is found in it.
func TestTogether(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	if err := together([]error{a, b}); !errors.Is(err, a) || !errors.Is(err, b) || err.Error() != "a; b" {
		t.Error(err)
	}
	if together(nil) != nil || !slices.Contains([]error{a}, together([]error{a})) {
		t.Error("none, or one")
	}
}
