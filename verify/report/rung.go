// Package report is what verify found: rungs of proof, the checks that were
// done on each, and their findings. Its JSON form is stable; docs/json.md has it.
package report

import (
	"fmt"
	"slices"
	"strings"
)

// Rung is how much is proved. Each includes those before it.
type Rung string

// The rungs, from the least to the most.
const (
	// Checksum: every stored byte is what was stored, and nothing is missing.
	Checksum Rung = "checksum"
	// Structure: the database is one that etcd could have written.
	Structure Rung = "structure"
	// Replay: the snapshot is what the snapshot before it and the log give.
	Replay Rung = "replay"
	// Drill: a cluster that was built from it served.
	Drill Rung = "drill"
)

// Rungs are all of them, in their order.
func Rungs() []Rung { return []Rung{Checksum, Structure, Replay, Drill} }

// ParseRung reads a rung's name.
func ParseRung(s string) (Rung, error) {
	if slices.Contains(Rungs(), Rung(s)) {
		return Rung(s), nil
	}
	var names []string
	for _, r := range Rungs() {
		names = append(names, string(r))
	}
	return "", fmt.Errorf("no rung %q: use one of %s", s, strings.Join(names, ", "))
}

// Includes tells whether proving r means to prove other as well.
func (r Rung) Includes(other Rung) bool {
	return slices.Index(Rungs(), other) <= slices.Index(Rungs(), r) && slices.Contains(Rungs(), other)
}
