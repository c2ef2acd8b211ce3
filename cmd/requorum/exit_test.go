package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

func TestExitCodes(t *testing.T) {
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	damaged := &snapshot.DamagedError{Object: "x", Offset: -1, Err: errors.New("y")}
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want int
	}{
		{"done", t.Context(), nil, 0},
		{"done although interrupted", interrupted, nil, 0},
		{"failed", t.Context(), errors.New("x"), 1},
		{"usage", t.Context(), fmt.Errorf("x: %w", usageError{errors.New("y")}), 2},
		{"a request that contradicts itself", t.Context(), &restore.RequestError{Err: errors.New("x")}, 2},
		{"damaged", t.Context(), fmt.Errorf("x: %w", damaged), 3},
		{"a damaged log", t.Context(), fmt.Errorf("x: %w", &walfile.CorruptError{Err: errors.New("y")}), 3},
		{"two logs that contradict each other", t.Context(), fmt.Errorf("x: %w", &segment.ForkError{}), 3},
		{"nothing there", t.Context(), fmt.Errorf("x: %w", snapshot.ErrNoBackup), 4},
		{"incomplete", t.Context(), fmt.Errorf("x: %w", snapshot.IncompleteError("y")), 5},
		{"incomplete because one is damaged", t.Context(), fmt.Errorf("%w: %w", snapshot.IncompleteError("y"), damaged), 5},
		{"unproven", t.Context(), fmt.Errorf("%w: x", errUnproven), 6},
		{"incomplete, and unproven", t.Context(), errors.Join(snapshot.IncompleteError("x"), errUnproven), 5},
		{"more than one history", t.Context(), fmt.Errorf("x: %w", &sources.NeedSourceError{}), 2},
		{"a cluster that started over", t.Context(), fmt.Errorf("x: %w", &snapshot.StartedOverError{}), 7},
		{"nothing to recover from", t.Context(), &sources.NothingError{}, 4},
		{"interrupted", interrupted, errors.New("x"), 130},
	} {
		if got := exitCode(c.ctx, c.err); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
}

// Wrong arguments are wrong usage, of a command below another as well.
func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{{"list", "x"}, {"host", "may-start", "x"}} {
		if e := runHere(t.Context(), args...); e.code != exitUsage {
			t.Error(e)
		}
	}
}
