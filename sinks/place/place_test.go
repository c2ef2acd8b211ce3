package place

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for raw, want := range map[string]string{
		"file://" + dir:                        "file://" + dir,
		filepath.Join(dir, "a"):                "file://" + dir + "/a",
		"s3://bucket/prefix?region=eu-north-1": "s3://bucket/prefix?region=eu-north-1",
		"s3://bucket/?region=eu-north-1&endpoint=https%3A%2F%2F10.0.0.1": "s3://bucket?endpoint=https%3A%2F%2F10.0.0.1&region=eu-north-1",
	} {
		s, err := Open(t.Context(), raw, time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
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

// What names no place is told from a place that cannot be opened, and secrets in
// it are not repeated.
func TestRefused(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                 "empty",
		"file://host/path":                 "three slashes",
		"file:///path?a=b":                 "nothing behind",
		"ftp://host/path":                  `"ftp" repositories`,
		"s3://key:hunter2@bucket":          "credentials come from",
		"s3://bucket?secret-key=hunter2":   "credentials come from",
		"s3://bucket/prefix?region=":       "empty",
		"s3://bucket/prefix?colour=yellow": "unknown parameter",
	} {
		s, err := Open(t.Context(), raw, 0)
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
