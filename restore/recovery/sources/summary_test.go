package sources

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/walreplay/raftlog"
)

type document struct {
	Text   string
	Number uint64
}

func made(t testing.TB, entries []logEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := newSummaryWriter(&b, document{"head", 1})
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, w.Add(e))
	}
	require.NoError(t, w.End(document{"end", math.MaxUint64}))
	return b.Bytes()
}

// parsed reads a summary as its caller has to: all of it, or an error.
func parsed(r io.Reader) (entries []logEntry, head, end document, err error) {
	d, err := newSummaryReader(r, &head)
	if err != nil {
		return nil, head, end, err
	}
	for e, err := range d.Entries() {
		if err != nil {
			return entries, head, end, err
		}
		e.Data = bytes.Clone(e.Data)
		entries = append(entries, e)
	}
	return entries, head, end, d.End(&end)
}

func outline(index, term uint64, moves bool) logEntry {
	return logEntry{Entry: raftlog.Entry{Index: index, Term: term}, Outline: true, Moves: moves, Sum: entrySumOf(fmt.Append(nil, index))}
}

func some() []logEntry {
	return []logEntry{
		outline(7, 1, true), outline(8, 1, false),
		wholeEntry(raftlog.Entry{Index: 9, Term: 2, Type: raftpb.EntryConfChange, Data: []byte("a member")}),
		wholeEntry(raftlog.Entry{Index: 10, Term: 2, Type: raftpb.EntryConfChangeV2}),
		outline(400, 3, true), outline(401, 1<<63, false), outline(math.MaxUint64, 1, true),
	}
}

// What was written is read, whatever the entries are like.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		want := []logEntry(nil)
		index, term := uint64(r.IntN(100)), uint64(0)
		for range r.IntN(40) {
			index, term = index+1+uint64(r.IntN(8)/7*r.IntN(1<<20)), term+uint64(r.IntN(4)/3)
			e := outline(index, term, r.IntN(2) == 0)
			if kind := r.IntN(6); kind < 3 {
				e = wholeEntry(raftlog.Entry{Index: index, Term: term, Type: raftpb.EntryType(kind)})
				if n := r.IntN(300); n > 0 {
					e.Data = bytes.Repeat([]byte{byte(n)}, n)
				}
			}
			want = append(want, e)
		}
		got, head, end, err := parsed(bytes.NewReader(made(t, want)))
		if err != nil || !reflect.DeepEqual(got, want) || head.Text != "head" || end != (document{"end", math.MaxUint64}) {
			t.Fatalf("seed %d: %+v, want %+v; %+v, %+v, %v", seed, got, want, head, end, err)
		}
	}
}

// Promise 2: cut anywhere, any byte altered, or anything behind it: an error.
func TestPromise2NothingButTheWhole(t *testing.T) {
	whole := made(t, some())
	for n := range whole {
		_, _, _, err := parsed(bytes.NewReader(whole[:n]))
		require.ErrorIs(t, err, ErrInvalidSummary, "cut after %d of %d bytes", n, len(whole))
		for bit := range 8 {
			altered := bytes.Clone(whole)
			altered[n] ^= 1 << bit
			var format *SummaryFormatError
			if _, _, _, err := parsed(bytes.NewReader(altered)); !errors.Is(err, ErrInvalidSummary) && !errors.As(err, &format) {
				t.Errorf("bit %d of byte %d: %v", bit, n, err)
			}
		}
	}
	if _, _, _, err := parsed(bytes.NewReader(append(bytes.Clone(whole), 0))); !errors.Is(err, ErrInvalidSummary) || !strings.Contains(err.Error(), "follows its end") {
		t.Errorf("one byte more: %v", err)
	}
	// An end that was not reached proves nothing.
	d, err := newSummaryReader(bytes.NewReader(whole), &document{})
	require.NoError(t, err)
	for range d.Entries() {
		break
	}
	require.Error(t, d.End(&document{}), "the end of a summary that was not read")
	broken := errors.New("broken")
	if _, _, _, err := parsed(io.MultiReader(bytes.NewReader(whole[:60]), failing{broken})); err != broken {
		t.Errorf("a reader that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Another format is named as what it is.
func TestOtherFormat(t *testing.T) {
	if want := fmt.Sprintf("%s%d\n", summaryLineStart, SummaryFormat); summaryLine != want {
		t.Fatalf("the first line is %q, want %q", summaryLine, want)
	}
	for _, found := range []string{"2", "17"} {
		_, _, _, err := parsed(strings.NewReader(summaryLineStart + found + "\n{and what nobody knows yet}"))
		var format *SummaryFormatError
		if !errors.As(err, &format) || format.Found != found || !strings.Contains(err.Error(), "same version") {
			t.Errorf("%v", err)
		}
	}
	_, _, _, err := parsed(strings.NewReader("<html>a proxy answered this</html>"))
	require.ErrorIs(t, err, ErrInvalidSummary)
}

// What cannot be told is not written.
func TestWriterRefuses(t *testing.T) {
	w, err := newSummaryWriter(io.Discard, document{})
	require.NoError(t, err)
	require.NoError(t, w.Add(outline(5, 1, true)))
	change := outline(6, 1, false)
	change.Type = raftpb.EntryConfChange
	for _, e := range []logEntry{outline(5, 1, true), outline(4, 1, true), change, wholeEntry(raftlog.Entry{Index: 6, Type: 3}), wholeEntry(raftlog.Entry{Index: 6, Data: make([]byte, maxSummaryPart+1)})} {
		require.Error(t, w.Add(e), "%s was taken", e)
	}
	broken := errors.New("broken")
	w, err = newSummaryWriter(failing{broken}, document{})
	require.NoError(t, err)
	if err := w.Flush(); err != broken {
		t.Errorf("nobody takes it: %v", err)
	}
	if err := w.End(document{}); err != broken {
		t.Errorf("nobody takes the end: %v", err)
	}
}

// Promise 1: memory does not grow with the log, and an entry takes a few bytes.
func TestPromise1Flat(t *testing.T) {
	const n = 200_000
	from, to := io.Pipe()
	size := 0
	go func() {
		w, err := newSummaryWriter(writerFunc(func(b []byte) (int, error) { size += len(b); return to.Write(b) }), document{})
		for i := uint64(1); err == nil && i <= n; i++ {
			err = w.Add(logEntry{Entry: raftlog.Entry{Index: i, Term: 7}, Outline: true, Moves: true})
		}
		if err == nil {
			err = w.End(document{})
		}
		to.CloseWithError(err)
	}()
	d, err := newSummaryReader(from, &document{})
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	count := 0
	for _, err := range d.Entries() {
		require.NoError(t, err)
		count++
	}
	runtime.ReadMemStats(&after)
	if err := d.End(&document{}); err != nil || count != n {
		t.Fatal(count, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes were allocated for %d entries", got, n)
	}
	if size/n > 20 {
		t.Errorf("%d bytes an entry", size/n)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Promise 3: nothing makes it panic or allocate what did not come; and what it
// takes is what is written again.
func FuzzReader(f *testing.F) {
	whole := made(f, some())
	f.Add(whole)
	f.Add(whole[:len(whole)-40])
	f.Add(made(f, nil))
	huge := binary.AppendUvarint([]byte(summaryLine), maxSummaryPart)
	f.Add(append(huge, '{'))
	f.Fuzz(func(t *testing.T, data []byte) {
		var head document
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d, err := newSummaryReader(bytes.NewReader(data), &head)
		if err != nil {
			return
		}
		var again bytes.Buffer
		w, err := newSummaryWriter(&again, head)
		require.NoError(t, err)
		for e, err := range d.Entries() {
			if err != nil {
				return
			}
			require.NoError(t, w.Add(e), "%s was read and cannot be written", e)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20+100*uint64(len(data)) {
			t.Errorf("%d bytes were allocated for %d", got, len(data))
		}
		var end document
		if err := d.End(&end); err != nil {
			return
		}
		require.NoError(t, w.End(end))
		if _, _, _, err := parsed(&again); err != nil {
			t.Errorf("what was written again: %v", err)
		}
	})
}
