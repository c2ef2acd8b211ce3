package main

import (
	"math"
	"runtime/debug"
	"testing"
)

// The agent bounds its own memory, and leaves a bound that the user has set. That
// this is enough is measured by .tools/bench, with databases of 1 and 8 GiB.
func TestAgentBoundsMemory(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	boundMemory(func(string) string { return "1GiB" })
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("the user's bound was replaced by %d", got)
	}
	boundMemory(func(string) string { return "" })
	if got := debug.SetMemoryLimit(-1); got != agentMemoryLimit {
		t.Errorf("the bound is %d, want %d", got, agentMemoryLimit)
	}
}
