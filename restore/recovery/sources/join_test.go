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

func logOf(entries []raftlog.Entry, end error) iter.Seq2[logEntry, error] {
	return func(yield func(logEntry, error) bool) {
		for _, e := range entries {
			if !yield(wholeEntry(e), nil) {
				return
			}
		}
		if end != nil {
			yield(logEntry{}, end)
		}
	}
}

// outlined is a log as another host tells it: without data.
func outlined(log iter.Seq2[logEntry, error]) iter.Seq2[logEntry, error] {
	return func(yield func(logEntry, error) bool) {
		for e, err := range log {
			e.Sum, e.Outline, e.Data = entrySumOf(e.Data), true, nil
			if !yield(e, err) {
				return
			}
		}
	}
}

// dumb compares two logs that are held in memory, index by index.
func dumb(a, b []raftlog.Entry) logPair {
	var p logPair
	for _, one := range a {
		for _, other := range b {
			if one.Index != other.Index || p.Parted != nil {
				continue
			}
			if !one.Equal(other) {
				p.Parted = &Parting{one.Index, one.Term, other.Term}
				continue
			}
			if p.First == 0 {
				p.First = one.Index
			}
			p.Last = one.Index
		}
	}
	return p
}

// The merge gives what comparing every two logs in memory gives, whatever is
// missing in them: beginnings, ends, and pieces between, and whichever of them come
// without their data; and each log is visited once, in its order.
func TestLogsAgainstADumbOne(t *testing.T) {
	parted, apart := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var held [][]raftlog.Entry
		var logs []iter.Seq2[logEntry, error]
		for range 1 + r.IntN(5) {
			var entries []raftlog.Entry
			wrong := uint64(r.IntN(60))
			for index := 1 + uint64(r.IntN(15)); index < uint64(15+r.IntN(30)); index++ {
				if r.IntN(12) == 0 {
					index += uint64(r.IntN(9)) // a leader's snapshot came
				}
				e := raftlog.Entry{Index: index, Term: 1 + index/8, Data: fmt.Append(nil, index)}
				if index >= wrong {
					e.Data = append(e.Data, 'x')
					e.Term += uint64(r.IntN(2))
				}
				entries = append(entries, e)
			}
			held = append(held, entries)
			logs = append(logs, logOf(entries, nil))
		}
		seen := make([][]uint64, len(held))
		pairs, _, err := compareLogs(t.Context(), logs, func(i int, e logEntry) { seen[i] = append(seen[i], e.Index) })
		require.NoError(t, err)
		for i := range logs {
			if r.IntN(2) == 0 {
				logs[i] = outlined(logs[i])
			}
		}
		if again, _, err := compareLogs(t.Context(), logs, nil); err != nil || !reflect.DeepEqual(again, pairs) {
			t.Errorf("seed %d: some without data: %+v, %v; with it: %+v", seed, again, err, pairs)
		}
		for a := range held {
			if len(seen[a]) != len(held[a]) {
				t.Fatalf("seed %d: %d of %d entries were visited", seed, len(seen[a]), len(held[a]))
			}
			for i, e := range held[a] {
				if seen[a][i] != e.Index {
					t.Fatalf("seed %d: visited %v", seed, seen[a])
				}
			}
			for b := a + 1; b < len(held); b++ {
				got, want := pairs[a][b], dumb(held[a], held[b])
				if got.First != want.First || got.Last != want.Last || (got.Parted == nil) != (want.Parted == nil) || got.Parted != nil && *got.Parted != *want.Parted {
					t.Errorf("seed %d: logs %d and %d: %+v, want %+v", seed, a, b, got, want)
				}
				if want.Parted != nil {
					parted++
				}
				if !want.Met() {
					apart++
				}
			}
		}
	}
	if parted == 0 || apart == 0 {
		t.Errorf("%d pairs parted, %d had nothing in common: the test shows nothing", parted, apart)
	}
}

// One log that cannot be read to its end hinders no other.
func TestOneLogFails(t *testing.T) {
	entries := []raftlog.Entry{{Index: 1, Term: 1}, {Index: 2, Term: 1}, {Index: 3, Term: 2}}
	broken := errors.New("broken")
	pairs, errs, err := compareLogs(t.Context(), []iter.Seq2[logEntry, error]{logOf(entries[:1], broken), logOf(entries, nil), logOf(entries, nil)}, nil)
	if err != nil || errs[0] != broken || errs[1] != nil || pairs[0][1].Last != 1 || pairs[1][2].Last != 3 {
		t.Errorf("%+v, %v, %v", pairs, errs, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, _, err := compareLogs(ctx, []iter.Seq2[logEntry, error]{logOf(entries, nil)}, nil); err != broken {
		t.Errorf("ended: %v", err)
	}
}
