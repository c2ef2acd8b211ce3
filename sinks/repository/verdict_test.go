package repository_test

import (
	"slices"
	"testing"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

func TestVerdictName(t *testing.T) {
	for _, n := range []uint64{1, 0xab, 1 << 63} {
		if got, err := repository.ParseVerdictName(repository.VerdictName(n)); err != nil || got != n {
			t.Errorf("%d is read back as %d, %v", n, got, err)
		}
	}
	for _, bad := range []string{
		"", "verdicts/", "verdicts/0000000000000000.json", "verdicts/1.json", "0000000000000001.json",
		"verdicts/0000000000000001", "verdicts/00000000000000AB.json", "verdicts/x/0000000000000001.json",
		"verdicts/00000000000000001.json", "verdicts/0000000000000001.json.json",
	} {
		if got, err := repository.ParseVerdictName(bad); err == nil {
			t.Errorf("%q was read as %d", bad, got)
		}
	}
}

// Verdicts are listed by number, and what else lies beside them is passed over.
func TestVerdicts(t *testing.T) {
	s := sinktest.NewMemory()
	r := claimRepo(t, s)
	for _, name := range []string{repository.VerdictName(16), repository.VerdictName(9), "verdicts/readme.txt"} {
		if _, err := sinks.Put(t.Context(), s, name, []byte("{}"), sinks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := r.Verdicts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, v := range all {
		if v.Object.Size != 2 {
			t.Errorf("%+v", v)
		}
		got = append(got, v.Sequence)
	}
	if !slices.Equal(got, []uint64{9, 16}) {
		t.Fatalf("got %v", got)
	}
	if ids, err := r.TimelineIDs(t.Context()); err != nil || len(ids) > 0 {
		t.Fatalf("the folder of verdicts is taken for timelines: %v, %v", ids, err)
	}
}
