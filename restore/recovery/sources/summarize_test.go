package sources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// told is all that findings say, and what is decided from them.
func told(t *testing.T, f *Findings) string {
	t.Helper()
	same := *f
	same.Taken = time.Time{}
	p, err := Decide(f, DecideRequest{})
	data, jerr := json.MarshalIndent(struct {
		Findings Findings
		Plan     *Plan
		Error    string
	}{same, p, errorText(err)}, "", " ")
	if jerr != nil {
		t.Fatal(jerr)
	}
	return string(data)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// checkSummaries holds what is true of every survey: of summaries, and of directories
// beside summaries, it finds the same as of the directories, and a summary has
// nothing of what the entries say.
func checkSummaries(t *testing.T, req SurveyRequest, of *Findings) {
	t.Helper()
	want := told(t, of)
	var all []Summary
	for i, s := range req.Survivors {
		data := summaryOf(t, s)
		if bytes.Contains(data, []byte("vvvvvvvv")) {
			t.Errorf("the summary of %s holds what was put", s.Name)
		}
		if log := of.Survivors[i].Log; log != nil && uint64(len(data)) > 30*log.Entries+16<<10 {
			t.Errorf("the summary of %s has %d bytes for %d entries", s.Name, len(data), log.Entries)
		}
		all = append(all, summarized(s.Name, data))
	}
	for local := range max(1, len(all)) { // none but summaries, then more and more directories
		from := req
		from.Survivors, from.Summaries = req.Survivors[:local:local], all[local:]
		f, err := Survey(t.Context(), from)
		if err != nil {
			t.Fatalf("%d directories, %d summaries: %v", len(from.Survivors), len(from.Summaries), err)
		}
		if got := told(t, f); got != want {
			t.Errorf("%d directories, %d summaries: they tell\n%s\nand the directories\n%s", len(from.Survivors), len(from.Summaries), difference(got, want), difference(want, got))
		}
	}
}

// difference are the lines of a that b has not.
func difference(a, b string) string {
	var lines []string
	for line := range strings.Lines(a) {
		if !strings.Contains(b, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// The log of a restored cluster begins with no entry of the old one's, and ends
// there where nothing was written yet; a torn tail is told as one.
func TestDigestOfRestoredAndTorn(t *testing.T) {
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
	if _, err := restore.Execute(t.Context(), plan, image, restore.ExecOptions{}); err != nil {
		t.Fatal(err)
	}
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
func TestDigestRefused(t *testing.T) {
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
	bare := copied(t, c, 0, "bare")
	require.NoError(t, os.RemoveAll(filepath.Join(bare.DataDir, "member", "wal")))
	for _, whole := range [][]byte{data, summaryOf(t, bare)} {
		for name, bad := range map[string][]byte{
			"cut off": whole[:len(whole)*2/3], "no end": whole[:len(whole)-1], "no start": {}, "altered": altered(whole, len(whole)/2), "altered sum": altered(whole, len(whole)-1),
			"longer": append(bytes.Clone(whole), 'x'), "another format": append([]byte("requorum summary 2"), whole[17:]...),
		} {
			_, err := Survey(t.Context(), SurveyRequest{Survivors: []Survivor{s}, Summaries: []Summary{summarized("far", bad)}})
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
		"twice":      {Survivors: []Survivor{s}, Summaries: []Summary{summarized(s.Name, data)}},
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
func TestDigestStartedMeanwhile(t *testing.T) {
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
	if _, err := Survey(t.Context(), SurveyRequest{Summaries: []Summary{summarized("m1", b.Bytes())}}); !errors.Is(err, ErrInvalidSummary) {
		t.Errorf("what was written of it: %v", err)
	}
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
