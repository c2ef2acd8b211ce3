package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// What was pruned is distinguished from what an interrupted backup left, while its object
// is there for the grace.
func TestListPruned(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	repo := "file://" + filepath.Join(t.TempDir(), "repo")
	here := func(args ...string) ended {
		t.Helper()
		e := runHere(t.Context(), append(args, "--repo", repo)...)
		if e.code != exitOK {
			t.Fatal(e)
		}
		return e
	}
	for range 3 {
		here("backup", "--endpoints", c.Endpoints()[0])
	}
	here("prune", "--keep-any-point", "0s", "--keep-last", "1", "--keep-minimum", "1", "--grace", "24h")
	var listed catalogReport
	require.NoError(t, json.Unmarshal([]byte(here("list", "--output", "json").stdout), &listed))
	if len(listed.Backups) != 1 || len(listed.Incomplete) != 2 || !listed.Incomplete[0].Pruned || !listed.Incomplete[1].Pruned {
		t.Errorf("%d backups, without a manifest: %+v", len(listed.Backups), listed.Incomplete)
	}
	if text := here("list").stdout; strings.Count(text, "pruned: its object is deleted after the grace") != 2 || strings.Contains(text, "interrupted") {
		t.Error(text)
	}
}
