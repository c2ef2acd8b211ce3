package main

import "testing"

// The values are of the sizes that the report promises, and the same seed
// gives the same ones.
func TestObjects(t *testing.T) {
	a, b := newObjects(1), newObjects(1)
	const count = 20_000
	var total int
	for range count {
		o := a.draw()(a)
		if o != b.draw()(b) {
			t.Fatal("the same seed gave another object")
		}
		if n := len(o.value); n < 500 || n > 8<<10 {
			t.Errorf("%s: %d bytes, want 0.5 to 8 KB", o.key, n)
		}
		total += len(o.value)
	}
	if mean := total / count; mean < 2000 || mean > 4000 {
		t.Errorf("mean %d bytes, want about 3 KB", mean)
	}
}
