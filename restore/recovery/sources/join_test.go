package sources

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/walreplay/raftlog"
)

func logOf(entries []logEntry, end error) iter.Seq2[logEntry, error] {
	return func(yield func(logEntry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
		if end != nil {
			yield(logEntry{}, end)
		}
	}
}

// dumb compares two logs that are held in memory, index by index.
func dumb(a, b []logEntry) Relation {
	var p Relation
	for _, one := range a {
		for _, other := range b {
			if one.Index != other.Index || p.Parted != nil {
				continue
			}
			if one != other {
				p.Parted = &Parting{one.Index, one.Term, other.Term}
				continue
			}
			if p.First == 0 {
				p.First = one.Index
			}
			p.Last, p.LastTerm = one.Index, one.Term
		}
	}
	return p
}

// The merge gives what comparing every two logs in memory gives, whatever is
// missing in them: beginnings, ends, and pieces between; and each log is visited once,
// in its order.
func TestLogsAgainstADumbOne(t *testing.T) {
	parted, apart := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var held [][]logEntry
		var logs []iter.Seq2[logEntry, error]
		var names []string
		for range 1 + r.IntN(5) {
			var entries []logEntry
			wrong := uint64(r.IntN(60))
			for index := 1 + uint64(r.IntN(15)); index < uint64(15+r.IntN(30)); index++ {
				if r.IntN(12) == 0 {
					index += uint64(r.IntN(9)) // a leader's snapshot came
				}
				e := logEntry{Index: index, Term: 1 + index/8, Sum: entrySum{byte(index)}}
				if index >= wrong {
					e.Sum[1] = 'x'
					e.Term += uint64(r.IntN(2))
				}
				entries = append(entries, e)
			}
			names = append(names, fmt.Sprint(len(held)))
			held = append(held, entries)
			logs = append(logs, logOf(entries, nil))
		}
		seen := make([][]logEntry, len(held))
		got, _, err := compareLogs(t.Context(), names, logs, func(i int, e logEntry) { seen[i] = append(seen[i], e) })
		require.NoError(t, err)
		require.Equal(t, held, seen, "seed %d: visited", seed)
		var want []Relation
		for a := range held {
			for b := a + 1; b < len(held); b++ {
				p := dumb(held[a], held[b])
				if p.Parted != nil {
					parted++
				}
				if p == (Relation{}) {
					apart++
					continue
				}
				p.A, p.B = names[a], names[b]
				want = append(want, p)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("seed %d: %+v, want %+v", seed, got, want)
		}
	}
	if parted == 0 || apart == 0 {
		t.Errorf("%d pairs parted, %d had nothing in common: the test shows nothing", parted, apart)
	}
}

// One log that cannot be read to its end hinders no other.
func TestOneLogFails(t *testing.T) {
	entries := []logEntry{{Index: 1, Term: 1}, {Index: 2, Term: 1}, {Index: 3, Term: 2}}
	broken := errors.New("broken")
	met, errs, err := compareLogs(t.Context(), []string{"a", "b", "c"}, []iter.Seq2[logEntry, error]{logOf(entries[:1], broken), logOf(entries, nil), logOf(entries, nil)}, nil)
	if err != nil || errs[0] != broken || errs[1] != nil || met[0].Last != 1 || met[2].Last != 3 {
		t.Errorf("%+v, %v, %v", met, errs, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, _, err := compareLogs(ctx, []string{"a"}, []iter.Seq2[logEntry, error]{logOf(entries, nil)}, nil); err != broken {
		t.Errorf("ended: %v", err)
	}
}

// Equal means term, type and data.
func TestEntriesDiffer(t *testing.T) {
	e := raftlog.Entry{Index: 7, Term: 2, Data: []byte("data")}
	same := e
	same.Data = []byte("data")
	require.Equal(t, entryOf(e), entryOf(same))
	for what, change := range map[string]func(*raftlog.Entry){
		"index": func(e *raftlog.Entry) { e.Index++ }, "term": func(e *raftlog.Entry) { e.Term++ },
		"type": func(e *raftlog.Entry) { e.Type++ }, "data": func(e *raftlog.Entry) { e.Data = []byte("date") },
	} {
		other := e
		change(&other)
		require.NotEqual(t, entryOf(e), entryOf(other), what)
	}
}
