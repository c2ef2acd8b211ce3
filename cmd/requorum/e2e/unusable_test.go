package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// list names each unsigned object among those that it reads, and ends as for damage.
// Records of pruned full snapshots and results of jobs are named by the commands that read
// them.
func TestListNamesUnsigned(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	place, key := filepath.Join(dir, "repo"), filepath.Join(dir, "key")
	trusting := []string{"--repo", "file://" + place, "--trust", key + ".trust", "--signing-key", key}
	must := func(code int, args ...string) string {
		t.Helper()
		e := run(t, args...)
		require.Equal(t, code, e.Code, e)
		return e.Stdout
	}
	sinktest.WriteKey(t, key)
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	endpoints := c.Endpoints()[0]
	must(exitOK, append([]string{"backup", "--endpoints", endpoints}, trusting...)...)
	putSome(t, c, "/some/", 3)
	must(exitOK, append([]string{"agent", "--once", "--data-dir", c.Member(0).DataDir, "--endpoints", endpoints, "--spool-dir", filepath.Join(dir, "spool")}, trusting...)...)
	if text := must(exitOK, append([]string{"list"}, trusting...)...); strings.Contains(text, "UNUSABLE") {
		t.Fatal(text)
	}

	other := openRepo(t, place)
	ids, err := other.TimelineIDs(ctx)
	require.NoError(t, err)
	id, by := ids[0], repository.TimelineID{ClusterID: 0xab, N: 1}
	const backup = "20260102T150405Z-3f9a2c"
	newest, ok, err := segment.Newest(ctx, other, id)
	require.NoError(t, err)
	require.True(t, ok)
	next := raftlog.Entry{Index: newest.LastIndex + 1, Term: newest.LastTerm}
	h, data, err := segment.Encode(ctx, id, newest.After, false, segment.Batch{Entries: []raftlog.Entry{next}}, segment.Meta{Member: 1, Cut: time.Now(), Previous: newest.FirstIndex}, segment.Options{Tool: "another"})
	require.NoError(t, err)
	_, err = sinks.Put(ctx, other.Sink(), h.Name(), data, sinks.CreateOptions{})
	require.NoError(t, err)
	unsigned := []string{h.Name()}
	for name, document := range map[string]any{
		repository.TimelineName(by):                                                             repository.Timeline{Format: 1, ID: by, Created: time.Now()},
		repository.ManifestName(id, backup):                                                     struct{}{},
		repository.SupersededName(id, 1):                                                        repository.Superseded{Format: 1, Timeline: id, By: by},
		repository.GapName{Timeline: id, First: 1 << 30, Last: 1<<30 + 1}.String():              struct{}{},
		repository.MarkName{Timeline: id, Index: 1 << 30, Time: time.Now(), Member: 1}.String(): struct{}{},
		repository.PinName(id, backup):                                                          repository.Pin{Format: 1, Timeline: id, Backup: backup},
	} {
		require.NoError(t, other.WriteDocument(ctx, name, document))
		unsigned = append(unsigned, name)
	}

	var listed catalogReport
	require.NoError(t, json.Unmarshal([]byte(must(exitDamaged, append([]string{"list", "--output", "json"}, trusting...)...)), &listed))
	var shown []string
	for _, u := range listed.Unusable {
		shown = append(shown, u.Object)
	}
	require.ElementsMatch(t, unsigned, shown)
}
