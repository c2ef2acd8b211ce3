package sinktest

import (
	"testing"

	"github.com/requorum/requorum/sinks"
)

// TestMemoryConforms also shows that the suite can be passed.
func TestMemoryConforms(t *testing.T) {
	Conformance(t, func(*testing.T) sinks.Sink { return NewMemory() }, Options{})
}

// TestFaultlessConforms: with an empty script Faulty changes nothing.
func TestFaultlessConforms(t *testing.T) {
	Conformance(t, func(*testing.T) sinks.Sink { return NewFaulty(NewMemory()) }, Options{})
}
