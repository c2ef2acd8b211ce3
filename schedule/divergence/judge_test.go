package divergence

import (
	"slices"
	"testing"
)

func TestJudge(t *testing.T) {
	const fixed, old = "3.5.16", "3.5.15"
	for _, tt := range []struct {
		name      string
		hashes    []uint32
		version   string
		divergent []uint64
		undecided bool
		unknown   int
	}{
		{"one", []uint32{1}, fixed, nil, false, 0},
		{"equal", []uint32{1, 1, 1}, fixed, nil, false, 0},
		{"equal, old", []uint32{1, 1, 1}, old, nil, false, 0},
		{"one of three", []uint32{1, 2, 1}, fixed, []uint64{1}, false, 0},
		{"two of five", []uint32{1, 2, 1, 3, 1}, fixed, []uint64{1, 3}, false, 0},
		{"no majority", []uint32{1, 2}, fixed, []uint64{0, 1}, true, 0},
		{"half is no majority", []uint32{1, 1, 2, 3}, fixed, []uint64{0, 1, 2, 3}, true, 0},
		{"old servers differ without a fault", []uint32{1, 2, 1}, old, nil, false, 3},
	} {
		var r Result
		for i, h := range tt.hashes {
			r.Hashes = append(r.Hashes, MemberHash{Member{ID: uint64(i)}, tt.version, h})
		}
		r.judge()
		var got []uint64
		for _, m := range r.Divergent {
			got = append(got, m.ID)
		}
		if !slices.Equal(got, tt.divergent) || r.Undecided != tt.undecided || len(r.Unknown) != tt.unknown {
			t.Errorf("%s: %+v", tt.name, r)
		}
	}
}

func TestHashesExactly(t *testing.T) {
	for version, want := range map[string]bool{"3.4.33": false, "3.4.34": true, "3.5.15": false, "3.5.16": true, "3.6.0": true, "3.7.0-rc.1": true, "4.0.0": true, "3.3.9": false, "": false} {
		if got := hashesExactly(version); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}
