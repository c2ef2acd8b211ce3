package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A file is out of memory when it is called cold, and in it when it is called
// warm. The folder is beside the sources: the one for temporary files may be in
// memory altogether.
func TestColdAndWarm(t *testing.T) {
	dir, err := os.MkdirTemp(".", "pagecache-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, make([]byte, 8<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	resident := func() float64 {
		t.Helper()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		part, err := inMemory(f, 8<<20+1)
		if err != nil {
			t.Fatal(err)
		}
		return part
	}
	for range 2 {
		if err := makeWarm(dir); err != nil {
			t.Fatal(err)
		}
		if part := resident(); part != 1 {
			t.Errorf("warm: %.3f of it is in memory", part)
		}
		if err := makeCold(dir); err != nil {
			t.Skip(err) // a file system that lives in memory
		}
		if part := resident(); part > coldMost {
			t.Errorf("cold: %.3f of it is in memory", part)
		}
	}
}
