package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
)

func folder(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Promise 3: nothing is built inside of what a member left, by whatever path.
func TestPromise3NothingIsBuiltInsideASurvivor(t *testing.T) {
	dir := t.TempDir()
	old := folder(t, dir, "old", "m1")
	folder(t, old, "member", "wal")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(old, link); err != nil {
		t.Fatal(err)
	}
	wal := folder(t, dir, "wal")
	survivors := []sources.Survivor{{Name: "m1", DataDir: link, WALDir: wal}}
	for _, c := range []struct {
		dataDir, walDir string
		refused         bool
	}{
		{filepath.Join(dir, "new", "m1"), "", false},
		{filepath.Join(dir, "old", "m10"), "", false},
		{old, wal, false}, // in its place: --set-aside moves it
		{filepath.Join(old, "m1"), "", true},
		{filepath.Join(link, "member", "m1"), "", true},
		{filepath.Join(dir, "new"), filepath.Join(wal, "new"), true},
		{filepath.Join(dir, "new"), filepath.Join(old, "log"), true},
	} {
		plan := &restore.Plan{Members: []restore.Member{{Name: "m1", DataDir: c.dataDir, WALDir: c.walDir}}}
		if err := keepsOut(plan, "", survivors); (err != nil) != c.refused {
			t.Errorf("%s and %q: %v", c.dataDir, c.walDir, err)
		}
		if err := keepsOut(plan, "m2", survivors); err != nil {
			t.Errorf("another host's member: %v", err)
		}
	}
	inside := []sources.Survivor{{Name: "m1", DataDir: filepath.Join(old, "member", "copy")}}
	if err := keepsOut(&restore.Plan{Members: []restore.Member{{Name: "m1", DataDir: old}}}, "", inside); err == nil {
		t.Error("a survivor inside of what would be set aside is allowed")
	}
}

// A record binds nobody while nothing was changed: the survivors may have gone on.
func TestRecordOfNothingDoneIsForgotten(t *testing.T) {
	dir := t.TempDir()
	old := folder(t, dir, "m1")
	r := &recoveryRecord{
		Survivors: []sources.Survivor{{Name: "m1", DataDir: old}},
		Plan:      &restore.Plan{ID: "p", CreatedAt: time.Now().Add(-time.Hour), Members: []restore.Member{{Name: "m1", DataDir: old}}},
	}
	begun := func(want bool, when string) {
		t.Helper()
		if got, err := r.begun(); got != want || err != nil {
			t.Errorf("%s: begun %t, %v", when, got, err)
		}
	}
	begun(true, "the member's folder is away")
	folder(t, old, "member", "wal")
	begun(false, "nothing was changed")
	folder(t, old, ".requorum")
	begun(false, "only beside it")
	folder(t, old, "member.set-aside-"+time.Now().UTC().Format("20060102T150405Z"))
	begun(true, "it was set aside")
}

// Promise 2: what a survivor took after the decision is not dropped by going on.
func TestPromise2GoingOnNoticesLaterWrites(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(folder(t, dir, "member", "wal"), "0000000000000000-0000000000000000.wal")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := &localRecovery{o: &recoverOptions{}, survivors: []sources.Survivor{{Name: "m1", DataDir: dir}}}
	where := map[string]sources.Directories{"m1": {DataDir: dir}}
	for _, c := range []struct {
		began time.Time
		later bool
	}{{time.Time{}, false}, {time.Now(), false}, {time.Now().Add(-time.Minute), true}} {
		l.began = c.began
		err := l.notWritten(where)
		if (err != nil) != c.later || c.later && !strings.Contains(err.Error(), "m1 was started") {
			t.Errorf("decided at %s: %v", c.began, err)
		}
	}
}

func TestMemberNamedTwice(t *testing.T) {
	if _, err := parseSurvivors([]string{"m1=a", "m1=b"}); err == nil || !strings.Contains(err.Error(), "named twice") {
		t.Error(err)
	}
}
