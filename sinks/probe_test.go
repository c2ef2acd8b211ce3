package sinks_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

func TestProbe_WorkingPlace_LeavesNothing(t *testing.T) {
	place := sinktest.NewMemory()
	found, err := sinks.Probe(t.Context(), place)
	require.NoError(t, err)
	require.Zero(t, found)
	for o, err := range place.List(t.Context(), "", "") {
		t.Errorf("%s is left: %v", o.Name, err)
	}
}

func TestProbe_FailingOperation_Named(t *testing.T) {
	errBroken := errors.New("broken")
	for op, text := range map[sinktest.Op]string{sinktest.Commit: "write: ", sinktest.Open: "read: ", sinktest.Stat: "stat: ", sinktest.List: "list: "} {
		place := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.Fail(op, 1, errBroken))
		_, err := sinks.Probe(t.Context(), place)
		if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), text) {
			t.Errorf("%v: %v", op, err)
		}
	}
	place := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.Fail(sinktest.Delete, 1, sinks.ErrDenied))
	found, err := sinks.Probe(t.Context(), place)
	require.NoError(t, err)
	require.ErrorIs(t, found.Kept, sinks.ErrDenied)
}
