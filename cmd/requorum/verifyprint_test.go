package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// The JUnit report of an earlier run is never taken for this one's: however a run
// ends, one error in it says so. One that cannot be written ends the run before it
// begins.
func TestJUnitReportOfARunThatFailed(t *testing.T) {
	folder := t.TempDir()
	none := filepath.Join(folder, "none")
	ended, end := context.WithCancelCause(t.Context())
	end(errInterrupted)
	for _, c := range []struct {
		name string
		ctx  context.Context
		args []string
		code int
		says string
	}{
		{"no repository", t.Context(), []string{"all", "--repo", none}, exitFailed, "none"},
		{"usage", t.Context(), []string{"--wal-dir", "7"}, exitUsage, "of no use without --data-dir"},
		{"a level that is none", t.Context(), []string{"--level", "highest"}, exitUsage, "no level"},
		{"no data directory", t.Context(), []string{"--data-dir", none}, exitFailed, "want the folder that holds member/"},
		{"interrupted", ended, []string{"all", "--repo", none}, exitInterrupted, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "report.xml")
			require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("<passed/>", 1000)), 0o600))
			if e := runHere(c.ctx, append([]string{"verify", "--junit", path}, c.args...)...); e.code != c.code {
				t.Errorf("status %d: %s", e.code, e)
			}
			data, err := os.ReadFile(path)
			if err != nil || strings.Contains(string(data), "passed") || strings.Count(string(data), "<testcase") != 1 || !strings.Contains(string(data), "<error") || !strings.Contains(string(data), c.says) {
				t.Errorf("%v: %s", err, data)
			}
		})
	}
	link, linked := filepath.Join(folder, "link.xml"), filepath.Join(folder, "linked.xml")
	require.NoError(t, errors.Join(os.WriteFile(linked, nil, 0o600), os.Symlink(linked, link)))
	if e := runHere(t.Context(), "verify", "--repo", none, "--junit", link); e.code != exitFailed {
		t.Errorf("status %d: %s", e.code, e)
	}
	if data, err := os.ReadFile(linked); err != nil || !strings.Contains(string(data), "<error") {
		t.Errorf("%v: %s", err, data)
	}
	if e := runHere(t.Context(), "verify", "--repo", none, "--junit", filepath.Join(none, "report.xml")); e.code != exitUsage || !strings.Contains(e.String(), "--junit") {
		t.Errorf("status %d: %s", e.code, e)
	}
}

// A report that nobody gets is no success, and no damage is reported by its status
// alone. A JUnit report that cannot be written in the end takes nothing from it.
func TestReportThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	file := filepath.Join(t.TempDir(), "snapshot.db")
	require.NoError(t, os.WriteFile(file, []byte("nothing"), 0o600))
	for _, output := range []string{"table", "json"} {
		var stderr bytes.Buffer
		env := environment{stdin: strings.NewReader(""), stdout: full, stderr: &stderr, getenv: func(string) string { return "" }}
		code := run(t.Context(), []string{"verify", "--from-file", file, "--output", output}, env)
		if code != exitFailed || !strings.Contains(stderr.String(), "could not be written") {
			t.Errorf("%s: status %d: %s", output, code, &stderr)
		}
	}
	e := runHere(t.Context(), "verify", "--from-file", file, "--junit", "/dev/full")
	if e.code != exitDamaged || !strings.Contains(e.String(), "DAMAGED") || !strings.Contains(e.String(), "--junit /dev/full") {
		t.Errorf("status %d: %s", e.code, e)
	}
}

// What another user planted in a directory like /tmp is neither written to nor believed.
func TestFilesOfAnotherUser(t *testing.T) {
	storetest.NeedRoot(t)
	folder := t.TempDir()
	secret, public := filepath.Join(folder, "secret"), filepath.Join(folder, "tmp")
	require.NoError(t, errors.Join(os.WriteFile(secret, []byte("root's"), 0o600), os.Mkdir(public, 0o700), os.Chmod(public, 0o777|os.ModeSticky)))
	link, hard, plan := filepath.Join(public, "link.xml"), filepath.Join(public, "hard.xml"), filepath.Join(public, "plan.json")
	require.NoError(t, errors.Join(os.Symlink(secret, link), os.Link(secret, hard), os.WriteFile(plan, []byte("{}"), 0o600)))
	require.NoError(t, errors.Join(os.Lchown(link, 2379, 2379), os.Lchown(plan, 2379, 2379)))
	for _, path := range []string{link, hard} {
		e := runHere(t.Context(), "verify", "--from-file", secret, "--junit", path)
		data, err := os.ReadFile(secret)
		if e.code != exitUsage || err != nil || string(data) != "root's" {
			t.Errorf("status %d, %v, %q: %s", e.code, err, data, e)
		}
	}
	if e := runHere(t.Context(), "restore", "--plan", plan, "--name", "m1"); !strings.Contains(e.String(), "could have written") {
		t.Errorf("status %d: %s", e.code, e)
	}
}
