package schedule

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// A job's process says why it did nothing, whatever the reason is.
func TestChildRefuses(t *testing.T) {
	dir := t.TempDir()
	sink := memory()
	session := termOn(t, onDisk(dir, "127.0.0.1:0", ""), sink)
	expect := func(what string, req childRequest, want string) {
		t.Helper()
		if err := session.child(t.Context(), req, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("no repository", childRequest{Verify: &verifyRequest{}}, repository.ErrNoRepository.Error())
	newLibrary(t, dir)
	expect("nothing asked for", childRequest{}, "asks for nothing")
	expect("no such backup", childRequest{Verify: &verifyRequest{Backup: "20260101T000000Z-000000", Level: "checksum"}}, "20260101T000000Z-000000")
	expect("no such level", childRequest{Verify: &verifyRequest{Backup: "latest", Level: "ladder"}}, "ladder")
	_, err := serveJob(t.Context(), json.RawMessage(`{"config": "eDogMQ=="}`), nil)
	require.ErrorContains(t, err, "x", "a configuration that is none")
	_, err = serveJob(t.Context(), json.RawMessage(`7`), nil)
	require.Error(t, err, "a request that is none")
}

// A synthetic full snapshot is made, made once, and not made where there is nothing
// to make.
func TestChildSynthetic(t *testing.T) {
	dir := t.TempDir()
	l := newLibrary(t, dir)
	session := termOn(t, onDisk(dir, "127.0.0.1:0", ""), l.repo.Sink())
	ask := func(id string, attempt int) (r job.Result) {
		t.Helper()
		must(t, session.child(t.Context(), childRequest{Synthetic: &syntheticRequest{Timeline: timelineA, ID: id, Attempt: attempt, Slot: "20260101T000000Z"}}, &r, nil))
		return r
	}
	id := repository.NewBackupID(time.Now())
	l.puts(3)
	l.archive(0)
	if a := ask(id, 1); a.Text == "" || a.Backup != "" {
		t.Errorf("no base: %+v", a)
	}
	base := l.full()
	if a := ask(id, 1); a.Text == "" || a.Backup != "" {
		t.Errorf("nothing new: %+v", a)
	}
	l.puts(4)
	l.archive(0)
	a := ask(id, 1)
	if a.Backup != id || a.Bytes == 0 || !strings.Contains(a.Text, "from backup "+base.ID+" and 4 entries") {
		t.Errorf("%+v", a)
	}
	l.puts(2)
	l.archive(0)
	if a := ask(id, 2); a.Backup != id || !strings.Contains(a.Text, "an earlier attempt had made") {
		t.Errorf("made already: %+v", a)
	}
}

// A backup that was pruned since it was chosen is no failure; one that was never
// there is.
func TestVerifyWhatWasPruned(t *testing.T) {
	sink := memory()
	s := newShelf(t, sink)
	m := s.full(timelineA, time.Now(), false)
	cfg := parse(t, beside)
	cfg.Resources.ScratchDir = t.TempDir()
	ask := func(backup string) (*verifyAnswer, error) {
		return serveVerify(t.Context(), cfg, s.repo, childRequest{Tool: "test", Verify: &verifyRequest{Level: report.Checksum, Backup: backup}}, func(string, int64, int64) {})
	}
	must(t, s.repo.RecordPruned(t.Context(), repository.Pruned{Timeline: timelineA, Backup: m.ID, Reason: "test", Created: time.Now()}))
	must(t, sink.Delete(t.Context(), repository.ManifestName(timelineA, m.ID)))
	if a, err := ask(m.ID); err != nil || a.Damaged != "" || !strings.Contains(a.Text, "pruned") {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := ask("20200101T000000Z-abcdef"); !errors.Is(err, snapshot.ErrNoBackup) {
		t.Errorf("%+v, %v", a, err)
	}
}
