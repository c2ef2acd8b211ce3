package segment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
)

func TestNewest(t *testing.T) {
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	want := func(what string, last uint64) {
		t.Helper()
		h, ok, err := Newest(t.Context(), repo, testTimeline)
		if err != nil || ok != (last > 0) || h.LastIndex != last {
			t.Errorf("%s: %+v, %v, %v; want %d", what, h, ok, err, last)
		}
	}
	want("nothing", 0)
	pieces := run("a", 0, 1, 10, 20, 30)
	for _, p := range pieces {
		p.store(t, s)
		want("more", p.last)
	}
	piece{"a", 1, 1, 29, 1, nil, 0}.store(t, s)
	want("merged", 29)
	// One that begins sooner and ends later.
	piece{"a", 1, 15, 40, 0, nil, 0}.store(t, s)
	want("an overlap", 40)

	// Damaged ones are passed over, however many, and vanished ones too.
	for first := uint64(41); first < 100; first++ {
		p := piece{"a", 1, first, first, 0, nil, 0}
		h, data := p.encode(t)
		data[100] ^= 1
		overwrite(t, s, h.Name(), data)
	}
	want("damaged ones", 40)
	faulty := sinktest.NewFaulty(s, sinktest.Fail(sinktest.Open, 1, sinks.ErrNotFound).Of("l0/000000000000000f"))
	repo = newRepo(t, faulty)
	want("a vanished one", 29)
	faulty.AllFired(t)

	faulty.Add(sinktest.Fail(sinktest.Open, 1, sinks.ErrDenied).Of("l0/"))
	_, _, err := Newest(t.Context(), repo, testTimeline)
	require.ErrorIs(t, err, sinks.ErrDenied, "a sink that fails")
	faulty.AllFired(t)

	// Who does not understand the newest must not go on from another.
	h, data := piece{"a", 1, 200, 210, 0, nil, 0}.encode(t)
	h.Format = 2
	block, err := h.block()
	require.NoError(t, err)
	overwrite(t, s, h.Name(), append(block, data[HeaderSize:]...))
	_, _, err = Newest(t.Context(), repo, testTimeline)
	require.ErrorIs(t, err, snapshot.ErrNewerFormat, "a newer format")
}
