package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	link := filepath.Join(folder, "link.xml")
	require.NoError(t, os.Symlink("/dev/null", link))
	if e := runHere(t.Context(), "verify", "--repo", none, "--junit", link); e.code != exitFailed {
		t.Errorf("status %d: %s", e.code, e)
	}
	if target, err := os.Readlink(link); err != nil || target != "/dev/null" {
		t.Error(target, err)
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
