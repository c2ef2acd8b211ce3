package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// spread is the median of some measurements with the least and the most.
type spread[T int64 | float64 | time.Duration] struct {
	median, least, most T
}

// spreadOf needs at least one value.
func spreadOf[T int64 | float64 | time.Duration](values []T) spread[T] {
	sorted := slices.Clone(values)
	slices.SortFunc(sorted, cmp.Compare[T])
	middle := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		middle = (middle + sorted[len(sorted)/2-1]) / 2
	}
	return spread[T]{middle, sorted[0], sorted[len(sorted)-1]}
}

func seconds(s spread[time.Duration]) string {
	return between(s.median.Seconds(), s.least.Seconds(), s.most.Seconds(), " s")
}

func times(s spread[float64]) string { return between(s.median, s.least, s.most, "×") }

// between leaves out the least and the most where they are the same.
func between(median, least, most float64, unit string) string {
	text := fmt.Sprintf("%.2f%s", median, unit)
	if from, to := fmt.Sprintf("%.2f", least), fmt.Sprintf("%.2f", most); from != to {
		text += " (" + from + "–" + to + ")"
	}
	return text
}

// mebibytes writes bytes to whole MiB.
func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<19)>>20) }
