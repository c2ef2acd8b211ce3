package repository_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// A document that readers would refuse is not written.
func TestLargeDocumentIsNotWritten(t *testing.T) {
	s := sinktest.NewMemory()
	r := claimRepo(t, s)
	pin := repository.Pin{Timeline: repository.TimelineID{ClusterID: 1, N: 1}, Backup: "20260102T150405Z-000001"}
	for what, reason := range map[string]string{"long": strings.Repeat("x", repository.DocumentLimit), "many values": strings.Repeat(",", 5000)} {
		pin.Reason = reason
		err := r.WritePin(t.Context(), pin)
		if err == nil || !strings.Contains(err.Error(), "pins/") || !strings.Contains(err.Error(), "than the") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all, err := r.Pins(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// mostRead counts the bytes that are asked for.
type mostRead struct {
	sinks.Sink
	bytes int
}

func (m *mostRead) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	r, err := m.Sink.Open(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	m.bytes = max(m.bytes, len(data))
	return io.NopCloser(bytes.NewReader(data)), errors.Join(err, r.Close())
}

// What is no document is damaged by its own fault alone: it is not read whole, and
// its neighbours are what they were.
func TestHostileDocuments(t *testing.T) {
	memory := sinktest.NewMemory()
	r := claimRepo(t, memory)
	timeline := repository.TimelineID{ClusterID: 1, N: 1}
	good := repository.Pin{Timeline: timeline, Backup: "20260102T150405Z-000001", Reason: "mine"}
	require.NoError(t, r.WritePin(t.Context(), good))
	seal := func(v any) []byte {
		data, err := repository.Seal(v)
		require.NoError(t, err)
		return data
	}
	hostile := [][]byte{
		bytes.Repeat([]byte(" "), 8<<20),
		seal(map[string]any{"format": "one"}),
		seal(map[string]any{"format": 1, "timeline": []int{1}}),
		seal(map[string]any{"format": 99}),
		seal([]int{}),
	}
	for i, data := range hostile {
		name := repository.PinName(timeline, "20260102T150406Z-00000"+string(rune('1'+i)))
		_, err := sinks.Put(t.Context(), memory, name, data, sinks.CreateOptions{})
		require.NoError(t, err)
	}
	counted := &mostRead{Sink: memory}
	r, err := repository.Open(t.Context(), counted)
	require.NoError(t, err)
	all, err := r.Pins(t.Context())
	if err != nil || len(all) != 1+len(hostile) || all[0].Reason != "mine" {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, p := range all[1:] {
		if p.Timeline != timeline || p.Backup == "" || !strings.Contains(p.Reason, "cannot be read") {
			t.Errorf("%+v", p)
		}
	}
	if counted.bytes != repository.DocumentLimit+1 {
		t.Errorf("%d bytes of one document were asked for", counted.bytes)
	}
}

// A budget keeps what was stored first and last, as a sort of all would show, however
// much comes, and holds no more than it may.
func TestBudget(t *testing.T) {
	type one struct {
		n    int
		size int64
		at   time.Time
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		count, bytes := 1+rnd.IntN(20), int64(rnd.IntN(4000))
		b := repository.NewBudget[one](count, bytes)
		var all []one
		for n := range rnd.IntN(3000) {
			o := one{n, int64(rnd.IntN(300)), time.Unix(int64(rnd.IntN(500)), 0)}
			all = append(all, o)
			b.Add(o, o.size, o.at)
		}
		slices.SortStableFunc(all, func(x, y one) int { return x.at.Compare(y.at) })
		var want []one
		half := func(from []one, count int, bytes int64) {
			for _, o := range from {
				if count--; count < 0 || o.size > bytes {
					return
				}
				bytes -= o.size
				if !slices.Contains(want, o) {
					want = append(want, o)
				}
			}
		}
		half(all, count/2, bytes/2)
		reversed := slices.Clone(all)
		slices.Reverse(reversed)
		half(reversed, count-count/2, bytes-bytes/2)
		kept, others := b.Kept()
		var sum int64
		for _, o := range kept {
			sum += o.size
		}
		lost := slices.ContainsFunc(want, func(o one) bool { return !slices.Contains(kept, o) })
		ordered := slices.IsSortedFunc(kept, func(x, y one) int { return x.n - y.n })
		if lost || !ordered || len(kept) > count || sum > bytes || others != len(all)-len(kept) {
			t.Fatalf("of %d, with room for %d and %d bytes, %v are kept and %d not; want %v at least", len(all), count, bytes, kept, others, want)
		}
	}
}
