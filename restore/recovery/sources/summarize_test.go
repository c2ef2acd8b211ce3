package sources

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

func summaryOf(t *testing.T, s Survivor) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteSummary(t.Context(), &b, s, SummaryOptions{}))
	return b.Bytes()
}

func summarized(name string, data []byte) Summary {
	return Summary{name, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}

// The log of a restored cluster begins with no entry of the old one's, and ends
// there where nothing was written yet; a torn tail is told as one.
func TestSummaryOfRestoredAndTorn(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	c.WaitReady(t)
	put(t, c, 20)
	c.KillAll()
	old := survivorsOf(c, 0)[0]

	image, err := snapshot.OpenFile(filepath.Join(old.DataDir, "member", "snap", "db"))
	require.NoError(t, err)
	dir := t.TempDir()
	plan, err := restore.NewPlan(t.Context(), restore.Request{Image: image, InitialCluster: storetest.InitialCluster(t, "n1"), DataDir: filepath.Join(dir, "{name}")})
	require.NoError(t, err)
	_, err = restore.Execute(t.Context(), plan, image, restore.ExecOptions{})
	require.NoError(t, err)
	fresh := Survivor{Name: "n1", DataDir: filepath.Join(dir, "n1")}
	if f := surveyed(t, fresh); !f.Survivors[0].Log.Restored {
		t.Errorf("freshly restored: %+v", f.Survivors[0])
	}
	started := storetest.Start(t, storetest.Options{Version: "3.6", DataDirs: map[string]string{"n1": fresh.DataDir}, InitialCluster: plan.InitialCluster(), ExtraArgs: []string{"--initial-cluster-state=existing"}})
	put(t, started, 5)
	started.KillAll()
	surveyed(t, fresh, old)

	torn := copied(t, c, 0, "torn")
	path := segmentOf(t, torn)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	end := bytes.LastIndex(data, []byte("vvvvvvvv"))
	clear(data[end-40:]) // within the last record
	require.NoError(t, os.WriteFile(path, data, 0o600))
	if f := surveyed(t, torn); f.Survivors[0].Log.Torn == nil && f.Survivors[0].Log.Damage == nil {
		t.Errorf("torn: %+v", f.Survivors[0].Log)
	}
}

// A summary that was cut off, altered or is of another format, or of another
// summary's member under one name, fails the survey by the member's name; and what
// runs is not read.
func TestSummaryRefused(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	c.WaitReady(t)
	put(t, c, 30)
	s := survivorsOf(c, 0)[0]
	var running *RunningError
	if err := WriteSummary(t.Context(), io.Discard, s, SummaryOptions{}); !errors.As(err, &running) {
		t.Errorf("of a member that runs: %v", err)
	}
	c.KillAll()
	if err := WriteSummary(t.Context(), io.Discard, Survivor{Name: "gone", DataDir: filepath.Join(t.TempDir(), "gone")}, SummaryOptions{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("of nothing: %v", err)
	}
	data := summaryOf(t, s)
	if bytes.Contains(data, []byte("vvvvvvvv")) || len(data) > 30*40+16<<10 {
		t.Errorf("the summary has %d bytes, or holds what was put", len(data))
	}
	bare := copied(t, c, 0, "bare")
	require.NoError(t, os.RemoveAll(filepath.Join(bare.DataDir, "member", "wal")))
	for _, whole := range [][]byte{data, summaryOf(t, bare)} {
		for name, bad := range map[string][]byte{
			"cut off": whole[:len(whole)*2/3], "no end": whole[:len(whole)-1], "no start": {}, "altered": altered(whole, len(whole)/2), "altered sum": altered(whole, len(whole)-1),
			"longer": append(bytes.Clone(whole), 'x'), "another format": append([]byte("requorum summary 2"), whole[17:]...),
		} {
			_, err := Survey(t.Context(), SurveyRequest{Summaries: append(summaries(t, s), summarized("far", bad))})
			var broken *SummaryError
			var format *SummaryFormatError
			if !errors.As(err, &broken) || broken.Name != "far" || !errors.Is(err, ErrInvalidSummary) && !errors.As(err, &format) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	unreachable := errors.New("unreachable")
	for name, req := range map[string]SurveyRequest{
		"not opened": {Summaries: []Summary{{"far", func() (io.ReadCloser, error) { return nil, unreachable }}}},
		"no name":    {Summaries: []Summary{summarized("", data)}},
		"no way":     {Summaries: []Summary{{Name: "far"}}},
		"twice":      {Summaries: append(summaries(t, s), summarized(s.Name, data))},
	} {
		if _, err := Survey(t.Context(), req); err == nil || name == "not opened" && !errors.Is(err, unreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func altered(data []byte, at int) []byte {
	data = bytes.Clone(data)
	data[at] ^= 4
	return data
}

// A member that is started while its summary is taken has written into what was
// read: what was written of the summary is not a whole one. So is one that was
// ended before its end.
func TestSummaryStartedMeanwhile(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.5"})
	c.WaitReady(t)
	put(t, c, 30)
	c.KillAll()
	s := survivorsOf(c, 0)[0]
	var db *bbolt.DB
	var b bytes.Buffer
	err := WriteSummary(t.Context(), &b, s, SummaryOptions{Progress: func(phase string, _, _ int64) {
		if !strings.HasPrefix(phase, "log of") {
			return
		}
		var err error
		if db, err = bbolt.Open(filepath.Join(s.DataDir, "member", "snap", "db"), 0o600, nil); err != nil { // as etcd does first of all
			t.Error(err)
		}
	}})
	var running *RunningError
	if db == nil || !errors.As(err, &running) {
		t.Fatalf("started meanwhile: %v", err)
	}
	require.NoError(t, db.Close())
	_, err = Survey(t.Context(), SurveyRequest{Summaries: []Summary{summarized("m1", b.Bytes())}})
	require.ErrorIs(t, err, ErrInvalidSummary, "what was written of it")
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	err = WriteSummary(ctx, &b, s, SummaryOptions{Progress: func(phase string, _, _ int64) {
		if strings.HasPrefix(phase, "log of") {
			cancel(enough)
		}
	}})
	if !errors.Is(err, enough) && !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
}
