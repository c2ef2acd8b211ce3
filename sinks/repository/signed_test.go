package repository_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/sinks/sinktest"
)

// writeKey is a file with a private key; FILE.trust is one that trusts it, with these options.
func writeKey(t *testing.T, options string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "key")
	sinktest.WriteKey(t, path)
	line, err := os.ReadFile(path + ".trust")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".trust", bytes.Replace(line, []byte(" "), []byte(options+" "), 1), 0o600))
	return path
}

func readKeys(t *testing.T, key, trust string, revoked ...string) signing.Keys {
	t.Helper()
	keys, err := signing.Read(key, trust, revoked)
	require.NoError(t, err)
	return keys
}

// ownAndForeign are one repository, opened by who signs and checks, and by somebody else.
func ownAndForeign(t *testing.T, keys signing.Keys) (place sinks.Sink, own, other *repository.Repository) {
	t.Helper()
	place = sinktest.NewMemory()
	own, err := repository.Init(t.Context(), repository.WithKeys(place, keys), time.Now())
	require.NoError(t, err)
	other, err = repository.Open(t.Context(), place)
	require.NoError(t, err)
	return place, own, other
}

var (
	signedTimeline = repository.TimelineID{ClusterID: 0xab, N: 1}
	otherTimeline  = repository.TimelineID{ClusterID: 0xab, N: 2}
)

const signedBackup = "20260102T150405Z-3f9a2c"

// Of the marks of an idle cluster few are read: the first and the last of each member at
// each index, and what foreign ones lie outside of these.
func TestMarksOfAnIdleCluster(t *testing.T) {
	ctx := t.Context()
	keys := sinktest.NewKeys(t)
	place, own, other := ownAndForeign(t, keys)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	mark := func(r *repository.Repository, index, member uint64, minute int) repository.MarkName {
		n := repository.MarkName{Timeline: signedTimeline, Index: index, Time: start.Add(time.Duration(minute) * time.Minute), Member: member}
		require.NoError(t, r.WriteDocument(ctx, n.String(), struct{}{}))
		return n
	}
	var want []repository.MarkName
	const minutes = 200
	for index := uint64(7); index < 9; index++ {
		for minute := range minutes {
			for member := uint64(1); member < 4; member++ {
				want = append(want, mark(own, index, member, 1000*int(index)+minute))
			}
		}
	}
	// A single foreign one outside at each end, and of an index and a member of its own.
	mark(other, 7, 1, 0)
	mark(other, 8, 2, 1<<20)
	mark(other, 9, 1, 8000)
	mark(other, 8, 4, 8000)
	counted := sinktest.NewFaulty(place)
	reader, err := repository.Open(ctx, repository.WithKeys(counted, keys))
	require.NoError(t, err)
	before := counted.Calls(sinktest.Open)
	got, err := reader.Marks(ctx, signedTimeline)
	require.NoError(t, err)
	require.Equal(t, want, got)
	if n := counted.Calls(sinktest.Open) - before; n != 2*2*3+4 {
		t.Errorf("%d marks of %d were read", n, len(want)+4)
	}
}

// However many timelines and full snapshots somebody else adds, before and after: who
// checks signatures finds those that count.
func TestForeignFlood(t *testing.T) {
	ctx := t.Context()
	_, own, other := ownAndForeign(t, sinktest.NewKeys(t))
	backup := func(n int) string { return fmt.Sprintf("20260102T150405Z-%06x", n) }
	write := func(r *repository.Repository, n int) {
		id := repository.TimelineID{ClusterID: 0xab, N: n}
		require.NoError(t, r.OpenTimeline(ctx, repository.Timeline{ID: id}))
		require.NoError(t, r.WriteDocument(ctx, repository.ManifestName(signedTimeline, backup(n)), struct{}{}))
	}
	const some = repository.MaxTimelines
	for n := range some {
		write(other, 2+n)
	}
	write(own, 2+some)
	for n := range some {
		write(other, 3+some+n)
	}
	ids, more, err := own.ListTimelines(ctx)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, []repository.TimelineID{{ClusterID: 0xab, N: 2 + some}, signedTimeline}, []repository.TimelineID{ids[len(ids)-1], ids[0]})
	newest, err := own.NewestFulls(ctx, signedTimeline, 3)
	require.NoError(t, err)
	require.Len(t, newest, 1)
	require.Equal(t, backup(2+some), newest[0].ID)
}

// A timeline with a full snapshot of one's own is there, whoever wrote its descriptor, and
// without one: else that one object stopped all backups of its cluster.
func TestForeignDescriptor(t *testing.T) {
	ctx := t.Context()
	_, own, other := ownAndForeign(t, sinktest.NewKeys(t))
	require.NoError(t, own.WriteDocument(ctx, repository.ManifestName(signedTimeline, signedBackup), struct{}{}))
	require.NoError(t, other.WriteDocument(ctx, repository.ManifestName(otherTimeline, signedBackup), struct{}{}))
	want := []repository.TimelineID{signedTimeline}
	ids, err := own.TimelineIDs(ctx)
	require.NoError(t, err)
	require.Equal(t, want, ids, "without a descriptor")
	require.NoError(t, other.OpenTimeline(ctx, repository.Timeline{ID: signedTimeline}))
	require.NoError(t, other.OpenTimeline(ctx, repository.Timeline{ID: otherTimeline}))
	ids, err = own.TimelineIDs(ctx)
	require.NoError(t, err)
	require.Equal(t, want, ids, "with a foreign one")
}

// What nobody who is trusted wrote does not exist for what is made of names.
func TestForeignNames(t *testing.T) {
	ctx := t.Context()
	place, own, other := ownAndForeign(t, sinktest.NewKeys(t))
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	slot := "20260102T010000Z"
	must(own.OpenTimeline(ctx, repository.Timeline{ID: signedTimeline}))
	must(other.OpenTimeline(ctx, repository.Timeline{ID: otherTimeline}))
	for n := range 3 {
		must(other.WriteDocument(ctx, repository.SupersededName(signedTimeline, n+1), repository.Superseded{Format: 1, Timeline: signedTimeline, By: otherTimeline}))
	}
	_, err := sinks.Put(ctx, place, repository.SupersededName(signedTimeline, 4), []byte("junk"), sinks.CreateOptions{})
	must(err)
	must(other.RecordPruned(ctx, repository.Pruned{Timeline: signedTimeline, Backup: signedBackup}))
	for _, attempt := range []int{1, 3} {
		must(other.WriteJob(ctx, repository.JobName{Job: "full", Slot: slot, Kind: repository.JobBegun, Attempt: attempt}, repository.JobRecord{Job: "full", Slot: slot, Attempt: attempt}))
	}
	must(other.WriteJob(ctx, repository.JobName{Job: "full", Slot: slot}, repository.JobRecord{Job: "full", Slot: slot, OK: true}))

	if ids, err := own.TimelineIDs(ctx); err != nil || len(ids) != 1 || ids[0] != signedTimeline {
		t.Errorf("timelines %v, %v", ids, err)
	}
	if id, err := own.FreeTimeline(ctx, otherTimeline); err != nil || id.N != 3 {
		t.Errorf("free is %v, %v", id, err)
	}
	if _, ended, err := own.Superseded(ctx, signedTimeline); ended || err != nil {
		t.Errorf("it has ended, %v", err)
	}
	if _, ended, err := other.Superseded(ctx, signedTimeline); !ended || err != nil {
		t.Errorf("without trust it has not ended, %v", err)
	}
	if names, err := own.PrunedNames(ctx); err != nil || len(names) != 0 {
		t.Errorf("pruned %v, %v", names, err)
	}
	if s, err := own.ReadSlots(ctx, "full", slot, slot); err != nil || len(s) != 1 || s[0] != (repository.SlotState{Slot: slot, Next: 2}) {
		t.Errorf("slot %+v, %v", s, err)
	}
	if all := own.Unusable(); len(all) < 6 {
		t.Errorf("unusable: %v", all)
	}

	// The real mark comes behind the forged ones, and counts.
	must(own.Supersede(ctx, repository.Superseded{Timeline: signedTimeline, By: repository.TimelineID{ClusterID: 0xcd, N: 1}}))
	if s, ended, err := own.Superseded(ctx, signedTimeline); !ended || err != nil || s.By.ClusterID != 0xcd {
		t.Errorf("%+v, %v, %v", s, ended, err)
	}
	// Without end they are not followed, and keep nobody from the timeline: whoever writes
	// refuses to go behind them, so no real one is there.
	for n := 5; n < 80; n++ {
		_, err := sinks.Put(ctx, place, repository.SupersededName(otherTimeline, n-4), []byte("junk"), sinks.CreateOptions{})
		must(err)
	}
	if _, ended, err := own.Superseded(ctx, otherTimeline); ended || err != nil {
		t.Errorf("ended: %v, %v", ended, err)
	}
	require.ErrorContains(t, own.Supersede(ctx, repository.Superseded{Timeline: otherTimeline, By: signedTimeline}), "more than 64 marks")
}

// Forged full snapshots with the newest IDs do not stand for the newest state.
func TestNewestFullsAreOwn(t *testing.T) {
	ctx := t.Context()
	_, own, other := ownAndForeign(t, sinktest.NewKeys(t))
	for n := range 20 {
		by := other
		if n == 3 || n == 5 {
			by = own
		}
		id := fmt.Sprintf("20260102T1504%02dZ-3f9a2c", n)
		require.NoError(t, by.WriteDocument(ctx, repository.ManifestName(signedTimeline, id), struct{}{}))
	}
	fulls, err := own.NewestFulls(ctx, signedTimeline, 4)
	if err != nil || len(fulls) != 2 || fulls[1].ID != "20260102T150405Z-3f9a2c" {
		t.Errorf("%+v, %v", fulls, err)
	}
	if fulls, err := other.NewestFulls(ctx, signedTimeline, 4); err != nil || len(fulls) != 4 || fulls[3].ID != "20260102T150419Z-3f9a2c" {
		t.Errorf("without trust %+v, %v", fulls, err)
	}
}

// What a key may not sign, by whom the writer trusts itself, is not written: it would be
// foreign to its own writer.
func TestNotWrittenForOthers(t *testing.T) {
	ctx := t.Context()
	key := writeKey(t, ` namespaces="requorum-repository,requorum-timeline"`)
	own, err := repository.Init(ctx, repository.WithKeys(sinktest.NewMemory(), readKeys(t, key, key+".trust")), time.Now())
	require.NoError(t, err)
	require.NoError(t, own.OpenTimeline(ctx, repository.Timeline{ID: signedTimeline}))
	err = own.RecordPruned(ctx, repository.Pruned{Timeline: signedTimeline, Backup: signedBackup})
	require.ErrorContains(t, err, "may not sign requorum-pruned")
	if names, err := own.PrunedNames(ctx); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

// Nothing unsigned is written where it would be foreign, and nothing is signed or
// checked where the repository's ID is lost.
func TestKeysNeedARepository(t *testing.T) {
	ctx := t.Context()
	key := writeKey(t, "")
	trust := key + ".trust"
	place := sinktest.NewMemory()
	own, err := repository.Init(ctx, repository.WithKeys(place, readKeys(t, key, trust)), time.Now())
	if err == nil {
		err = own.OpenTimeline(ctx, repository.Timeline{ID: signedTimeline})
	}
	require.NoError(t, err)
	reader := repository.WithKeys(place, readKeys(t, "", trust))
	r, err := repository.Open(ctx, reader)
	require.NoError(t, err)
	require.ErrorContains(t, r.OpenTimeline(ctx, repository.Timeline{ID: otherTimeline}), "--signing-key")
	require.NoError(t, place.Delete(context.Background(), repository.MarkerName))
	_, err = repository.Open(ctx, reader)
	require.ErrorContains(t, err, "--insecure-unsigned")
	_, err = repository.Init(ctx, repository.WithKeys(place, readKeys(t, key, "")), time.Now())
	require.ErrorContains(t, err, "put it back from a copy")
	if r, err := repository.Open(ctx, place); err != nil || r.Damage() == nil {
		t.Errorf("without keys it is not opened: %v", err)
	}
}

// Keys go with a sink: whatever wraps one has to give it, or nothing would be signed and
// checked behind it.
func TestWrappersUnwrap(t *testing.T) {
	embeds := regexp.MustCompile(`(?m)^\t(sinks\.)?Sink$`)
	unwraps := regexp.MustCompile(`\) Unwrap\(\) (sinks\.)?Sink`)
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "../.." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil && embeds.Match(data) {
			if seen++; len(embeds.FindAll(data, -1)) > len(unwraps.FindAll(data, -1))+strings.Count(path, "signed.go") {
				t.Errorf("%s: a sink within another one has no Unwrap", path)
			}
		}
		return err
	})
	if err != nil || seen < 4 {
		t.Errorf("%d files, %v", seen, err)
	}
}
