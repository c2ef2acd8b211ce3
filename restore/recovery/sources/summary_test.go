package sources

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// writeSummary writes the summary of a member whose log has these entries.
func writeSummary(t testing.TB, w io.Writer, log iter.Seq2[raftlog.Entry, error]) error {
	t.Helper()
	d := &memberDir{Survivor: Survivor{Name: "m1", DataDir: t.TempDir()}, remains: &Remains{Name: "m1", Log: &Log{}, Written: time.Unix(1, 0).UTC()}}
	return d.write(t.Context(), w, log)
}

func yielded(entries []raftlog.Entry) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// heard reads a summary as Survey does: all of it, or an error.
func heard(t testing.TB, r io.Reader, visit func(logEntry)) (Remains, error) {
	t.Helper()
	y := &survey{}
	if err := y.open(Summary{"m1", func() (io.ReadCloser, error) { return io.NopCloser(r), nil }}); err != nil {
		return Remains{}, err
	}
	for e, err := range y.members[0].entries(t.Context()) {
		if err != nil {
			return Remains{}, err
		}
		visit(e)
	}
	return y.members[0].found, nil
}

// What was written is read, whatever the entries are like.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		var entries []raftlog.Entry
		var want, got []logEntry
		index, term := uint64(r.IntN(100)), uint64(0)
		for range r.IntN(40) {
			index, term = index+1+uint64(r.IntN(8)/7*r.IntN(1<<20)), term+uint64(r.IntN(4)/3)
			for range 1 + r.IntN(20)/19*3*mostOfRun {
				e := raftlog.Entry{Index: index, Term: term, Data: fmt.Append(nil, index)}
				entries, want = append(entries, e), append(want, entryOf(e))
				index++
			}
		}
		var b bytes.Buffer
		require.NoError(t, writeSummary(t, &b, yielded(entries)))
		found, err := heard(t, &b, func(e logEntry) { got = append(got, e) })
		require.NoError(t, err)
		require.True(t, slices.Equal(want, got), "seed %d: %d entries, want %d", seed, len(got), len(want))
		require.Equal(t, Remains{Name: "m1", Written: time.Unix(1, 0).UTC(), Log: &Log{Entries: uint64(len(want))}}, found)
	}
}

// Promise 2: cut anywhere, or anything behind it: an error.
func TestPromise2NothingButTheWhole(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeSummary(t, &b, yielded([]raftlog.Entry{{Index: 7, Term: 1}, {Index: 8, Term: 1}, {Index: 400, Term: 3}, {Index: math.MaxUint64 - 1, Term: 1 << 63}})))
	whole := b.Bytes()
	read := func(r io.Reader) error { _, err := heard(t, r, func(logEntry) {}); return err }
	require.NoError(t, read(bytes.NewReader(whole)))
	broken := errors.New("broken")
	for n := range len(whole) - 1 { // the last line's end is none of it
		require.Error(t, read(bytes.NewReader(whole[:n])), "cut after %d of %d bytes", n, len(whole))
		require.ErrorIs(t, read(io.MultiReader(bytes.NewReader(whole[:n]), failing{broken})), broken, "after %d of %d bytes", n, len(whole))
	}
	for _, more := range []string{"x", "\n", string(whole)} {
		require.ErrorContains(t, read(strings.NewReader(string(whole)+more)), "follows its end")
	}
	require.ErrorIs(t, read(io.MultiReader(bytes.NewReader(whole), failing{broken})), broken)
	lines := strings.SplitAfter(string(whole), "\n")
	begin, runs, end := lines[0], strings.Join(lines[1:len(lines)-2], ""), lines[len(lines)-2]
	for what, text := range map[string]string{
		"no beginning": runs + end, "two of them": begin + begin + runs + end, "entries once more": begin + runs + runs + end,
		"entries of a log that could not be read": `{"begin":{}}` + "\n" + runs + end, "no entries": begin + `{"run":{"first":9}}` + "\n" + end,
		"a part of a sum": begin + `{"run":{"first":9,"sums":"AAAAAAAAAAAAAAAAAAAAAAAA"}}` + "\n" + end, "beyond all indexes": begin + `{"run":{"first":18446744073709551615,"sums":"AAAAAAAAAAAAAAAAAAAAAA=="}}` + "\n" + end,
		"another file": begin + `{"end":{"databases":[{"path":"/etc/passwd"}]}}` + "\n",
	} {
		require.ErrorContains(t, read(strings.NewReader(text)), "the summary of m1: line ", what)
	}
	require.ErrorIs(t, read(strings.NewReader(strings.Repeat("x", maxSummaryLine))), bufio.ErrTooLong)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

// What cannot be written, or what nobody takes, is an error; and so is a member that was
// started meanwhile, see TestSummaryStartedMeanwhile.
func TestNotWritten(t *testing.T) {
	broken := errors.New("broken")
	require.ErrorIs(t, writeSummary(t, failing{broken}, yielded(nil)), broken)
	d := &memberDir{Survivor: Survivor{DataDir: t.TempDir()}, remains: &Remains{DataDir: strings.Repeat("d", maxSummaryLine)}}
	require.ErrorContains(t, d.write(t.Context(), io.Discard, yielded(nil)), "at most")
}

// Promise 1: memory does not grow with the log, and an entry takes a few bytes.
func TestPromise1Flat(t *testing.T) {
	const n = 200_000
	from, to := io.Pipe()
	size := 0
	go func() {
		to.CloseWithError(writeSummary(t, writerFunc(func(b []byte) (int, error) { size += len(b); return to.Write(b) }), func(yield func(raftlog.Entry, error) bool) {
			for i := uint64(1); i <= n && yield(raftlog.Entry{Index: i, Term: 7}, nil); i++ {
			}
		}))
	}()
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, count := held(), 0
	_, err := heard(t, from, func(logEntry) {
		if count++; count%(n/4) == 0 {
			if now := held(); now > before+1<<20 {
				t.Errorf("%d bytes are held after %d entries, %d before", now, count, before)
			}
		}
	})
	require.NoError(t, err)
	require.Equal(t, n, count)
	if size/n > 22 {
		t.Errorf("%d bytes an entry", size/n)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Promise 3: nothing makes it panic or allocate what did not come; and a summary that is
// whole can still say what no member's data says: neither what is found of it nor what is
// decided goes wrong otherwise than by an error.
func FuzzSummary(f *testing.F) {
	found := Remains{
		DataDir: "/d", ClusterID: 7, MemberID: 1, Databases: []Database{{Path: "/d/member/snap/db", Index: 5, Term: 1, Revision: 3}}, Written: time.Unix(1, 0).UTC(),
		Log: &Log{FirstIndex: 3, LastIndex: 9, LastTerm: 2, Commit: 8, Ranges: []Range{{3, 9}}, Restored: true}, Revision: Bounds{3, 5}, Findings: []Finding{{KindMissing, "older files are gone", ""}},
		Membership: Membership{Index: 5, Members: []snapshot.Member{{ID: 1, Name: "m1"}, {ID: 2, Name: "m2"}}}}
	found.Steps = []Membership{found.Membership}
	run := &logRun{First: 4, Term: 1, Sums: make([]byte, 6*len(entrySum{}))}
	for _, lines := range [][]summaryLine{
		{{Begin: &found}, {Run: run}, {End: &found}}, {{Begin: &found}, {Run: run}}, {{Begin: &found}, {End: &Remains{}}},
		{{Begin: &Remains{}}, {End: &found}}, {{Begin: &Remains{Log: &Log{}}}, {Run: run}, {End: &Remains{Log: &Log{}}}},
	} {
		var b []byte
		for _, l := range lines {
			line, err := json.Marshal(l)
			require.NoError(f, err)
			b = append(append(b, line...), '\n')
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := heard(t, bytes.NewReader(data), func(logEntry) {})
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20+1000*uint64(len(data)) {
			t.Errorf("%d bytes were allocated for %d", got, len(data))
		}
		if err != nil {
			return
		}
		survey, err := Survey(t.Context(), SurveyRequest{Summaries: []Summary{summarized("m1", data), summarized("m2", data)}})
		require.NoError(t, err)
		p, err := Decide(survey, DecideRequest{})
		if err == nil {
			_, _ = p.NewMembers(MembersRequest{})
		}
	})
}

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
// there where nothing was written yet; a torn tail is reported as one.
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

// A summary that was cut off or lengthened, or of another
// summary's member under one name, fails the survey by the member's name; and what
// runs is not read.
func TestSummaryRefused(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	c.WaitReady(t)
	put(t, c, 30)
	s := survivorsOf(c, 0)[0]
	if err := WriteSummary(t.Context(), io.Discard, s, SummaryOptions{}); !errors.Is(err, restore.ErrInUse) {
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
			"cut off": whole[:len(whole)*2/3], "no end": whole[:len(whole)-2], "no start": {},
			"longer": append(bytes.Clone(whole), 'x'), "something else": []byte("<html>a proxy answered this</html>"),
		} {
			_, err := Survey(t.Context(), SurveyRequest{Summaries: append(summaries(t, s), summarized("far", bad))})
			require.ErrorContains(t, err, "the summary of far: line ", name)
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
	if db == nil || !errors.Is(err, restore.ErrInUse) {
		t.Fatalf("started meanwhile: %v", err)
	}
	require.NoError(t, db.Close())
	_, err = Survey(t.Context(), SurveyRequest{Summaries: []Summary{summarized("m1", b.Bytes())}})
	require.ErrorContains(t, err, "the summary of m1: line ", "what was written of it")
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
