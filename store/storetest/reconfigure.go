package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

const (
	reconfigureTry = 5 * time.Second
	reconfigureAll = 40 * time.Second
)

// Reconfigure changes a cluster's members, and tries again: a young cluster refuses
// for 5 s, and raft drops a change that comes before the one before it is applied,
// without a word to who waits for it. An error that is among done tells that an
// earlier try had done it.
func Reconfigure(t testing.TB, change func(context.Context) error, done ...error) {
	t.Helper()
	for deadline := time.Now().Add(reconfigureAll); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), reconfigureTry)
		err := change(ctx)
		cancel()
		if err == nil || slices.ContainsFunc(done, func(d error) bool { return errors.Is(err, d) }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("change the members: %v", err)
		}
	}
}
