package main

import (
	"context"
	"log/slog"
	"slices"
	"testing"
)

// Rounds change their direction, the first one isn't counted, and a slow
// contestant takes part in its number of counted ones only.
func TestContestRounds(t *testing.T) {
	var ran []string
	named := func(name string, rounds int) contestant {
		return contestant{name: name, rounds: rounds, run: func(context.Context) (usage, error) {
			ran = append(ran, name)
			return usage{}, nil
		}}
	}
	b := &bench{log: slog.New(slog.DiscardHandler)}
	outcomes, err := b.contest(t.Context(), 3, []contestant{named("a", 0), named("b", 0), named("slow", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "slow", "b", "a", "a", "b", "b", "a"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
	for i, want := range []int{3, 3, 1} {
		if got := len(outcomes[i].usages); got != want {
			t.Errorf("%s counted %d rounds, want %d", outcomes[i].name, got, want)
		}
	}
}
