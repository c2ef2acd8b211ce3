package place

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	here := t.TempDir()
	t.Chdir(here)
	for raw, want := range map[string]string{
		"file://" + dir:                        "file://" + dir,
		filepath.Join(dir, "a"):                "file://" + dir + "/a",
		"./a":                                  "file://" + here + "/a",
		".":                                    "file://" + here,
		"s3://bucket/prefix?region=eu-north-1": "s3://bucket/prefix?region=eu-north-1",
		"s3://bucket/?region=eu-north-1&endpoint=https%3A%2F%2F10.0.0.1": "s3://bucket?endpoint=https%3A%2F%2F10.0.0.1&region=eu-north-1",
	} {
		s, err := Open(t.Context(), raw, sinks.Options{})
		require.NoError(t, err, raw)
		defer s.Close()
		if s.String() != want {
			t.Errorf("%s: %s, want %s", raw, s, want)
		}
		if err := Check(raw); err != nil {
			t.Error(err)
		}
		if got := Name(raw); got != want {
			t.Errorf("%s: its name is %s, want %s", raw, got, want)
		}
	}
}

// No repository is made where it would be lost with a member, or mistaken for a part of
// another one. One that is there already is opened wherever it is.
func TestFolderThatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"m1/member/snap", "wal-elsewhere/snap/db", "repo/timelines", "m2/member/wal/repo", "m1/member/lost/timelines"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o700))
	}
	for _, repo := range []string{"repo", "m2/member/wal/repo"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, repo, "requorum.json"), nil, 0o600))
	}
	for path, want := range map[string]string{
		"m1": "the data directory of a member", "m1/member": "the data directory of a member", "m1/backups/etcd": "the data directory of a member",
		"wal-elsewhere": "the data directory of a member", "repo/timelines": "inside the repository " + filepath.Join(dir, "repo"), "repo/new": "inside the repository",
		"repo": "", "m1/member/lost": "", "m2/member/wal/repo": "", "new/repo": "", "repo2": "",
	} {
		s, err := Open(t.Context(), filepath.Join(dir, path), sinks.Options{})
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrURL) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// What names no place is distinguished from a place that cannot be opened, and secrets in
// it are not repeated.
func TestRefused(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                 "empty",
		"file://host/path":                 "three slashes",
		"file:///path?a=b":                 "nothing after",
		"s3:/my-bucket/etcd":               "want a bucket as s3://bucket/prefix",
		"S3://my-bucket/etcd":              "in small letters",
		"gs://my-bucket/etcd":              `"gs" repositories`,
		"http://10.0.0.1/etcd":             `"http" repositories`,
		"file:/var/backups":                "want a bucket as s3://bucket/prefix",
		"backups/etcd":                     "backups/etcd: want",
		"s3:hunter2@bucket":                "want a bucket as s3://bucket/prefix",
		"ftp://host/path":                  `"ftp" repositories`,
		"s3://key:hunter2@bucket":          "credentials come from",
		"s3://bucket?secret-key=hunter2":   "credentials come from",
		"s3://bucket/prefix?region=":       "empty",
		"s3://bucket/prefix?colour=yellow": "unknown parameter",
	} {
		s, err := Open(t.Context(), raw, sinks.Options{})
		if err == nil {
			s.Close()
			t.Errorf("%s was opened", raw)
			continue
		}
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", raw, err)
		}
		if name := Name(raw); strings.Contains(name, "hunter2") {
			t.Errorf("%s: its name is %s", raw, name)
		}
		if checked := Check(raw); checked == nil || checked.Error() != err.Error() {
			t.Errorf("%s: Check says %v", raw, checked)
		}
	}
}
