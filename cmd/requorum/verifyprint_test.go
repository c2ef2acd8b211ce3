package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The JUnit report of an earlier run is not taken for that of one that ended
// without any; what is no file is left alone.
func TestOldJUnitReportIsRemoved(t *testing.T) {
	folder := t.TempDir()
	path, link := filepath.Join(folder, "report.xml"), filepath.Join(folder, "link.xml")
	if err := errors.Join(os.WriteFile(path, []byte("<passed/>"), 0o600), os.Symlink("/dev/null", link)); err != nil {
		t.Fatal(err)
	}
	for _, junit := range []string{path, link, filepath.Join(folder, "never.xml")} {
		if e := runHere(t.Context(), "verify", "all", "--repo", filepath.Join(folder, "none"), "--junit", junit); e.code == exitOK {
			t.Fatalf("it passed: %s", e)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old report is still there: %v", err)
	}
	if _, err := os.Lstat(link); err != nil {
		t.Error(err)
	}
}
