package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
)

// verdict catches what AllFired says.
type verdict struct {
	testing.TB
	said string
}

func (v *verdict) Helper()                           {}
func (v *verdict) Errorf(format string, args ...any) { v.said += fmt.Sprintf(format, args...) }

// TestFaultyStrikes every kind of fault once, at the call that it names.
func TestFaultyStrikes(t *testing.T) {
	ctx := t.Context()
	mine := errors.New("mine")
	f := NewFaulty(NewMemory(),
		Fail(Create, 2, mine).Of("a"), Lose(Commit, 1, mine), Fail(Delete, 1, nil), Fail(Stat, 2, mine).Always(), Fail(List, 1, mine),
		CutRead(2, 4, mine), CutList(2, 1, mine), Fail(Abort, 1, mine).Of("c"))
	var unfired verdict
	f.AllFired(&unfired)
	if unfired.said == "" || f.Fired() != 0 {
		t.Errorf("%d fired; AllFired said %q", f.Fired(), unfired.said)
	}
	want := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	data := []byte("0123456789")
	_, err := sinks.Put(ctx, f, "a", data, sinks.CreateOptions{})
	want("lost answer", err, mine)
	_, err = f.Create(ctx, "b", sinks.CreateOptions{})
	want("create of another name", err, nil)
	_, err = f.Create(ctx, "a", sinks.CreateOptions{})
	want("second create", err, mine)
	want("delete", f.Delete(ctx, "a"), ErrInjected)
	_, err = f.Stat(ctx, "a")
	want("first stat", err, nil)
	for range 3 {
		_, err = f.Stat(ctx, "a")
		want("later stat", err, mine)
	}
	if stored, err := sinks.Get(ctx, f.Unwrap(), "a", 100); err != nil || !bytes.Equal(stored, data) {
		t.Errorf("stored %q, %v", stored, err)
	}
	got, err := read(ctx, f, "a", 5, -1) // the first reader
	if err != nil || !bytes.Equal(got, []byte("56789")) {
		t.Errorf("read %q, %v", got, err)
	}
	got, err = read(ctx, f, "a", 2, 3)
	want("uncut", err, nil)
	if len(got) != 3 {
		t.Errorf("read %q", got)
	}
	put(t, f.Unwrap(), "b", nil)
	for round, names := range []int{0, 1} {
		seen := 0
		for _, e := range f.List(ctx, "", "") {
			if err = e; e == nil {
				seen++
			}
		}
		want("list", err, mine)
		if seen != names {
			t.Errorf("list %d: %d names", round, seen)
		}
	}
	w, err := f.Create(ctx, "c", sinks.CreateOptions{})
	want("create", err, nil)
	want("abort", w.Abort(), mine)
	if f.Calls(Create) != 4 || f.Calls(Stat) != 4 {
		t.Errorf("calls: %v", f.calls)
	}
	f.AllFired(&unfired)
}

// TestFaultyCommitLeavesNothing: a Commit that was not made keeps the contract
// of one that failed.
func TestFaultyCommitLeavesNothing(t *testing.T) {
	f := NewFaulty(NewMemory(), Fail(Commit, 1, nil))
	w := create(t.Context(), t, f, "a")
	_, err := w.Commit(t.Context())
	require.ErrorIs(t, err, ErrInjected)
	_, err = w.Write(nil)
	require.ErrorIs(t, err, sinks.ErrClosed)
	f.AllFired(t)
}

// TestFaultyDelays until its time is over or its context is.
func TestFaultyDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(NewMemory(), Delay(Stat, 1, time.Minute), Delay(Stat, 2, time.Hour))
		began := time.Now()
		if _, err := f.Stat(t.Context(), "a"); !errors.Is(err, sinks.ErrNotFound) || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.Stat(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		f.AllFired(t)
	})
}
