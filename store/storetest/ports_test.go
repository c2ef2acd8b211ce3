package storetest

import (
	"fmt"
	"testing"
)

// A port is one test's until that ends, though nobody listens there.
func TestPortsOfOneTest(t *testing.T) {
	held := map[string]bool{}
	for range portsOfOne / 2 {
		held[FreeAddress(t)] = true
	}
	if len(held) != portsOfOne/2 {
		t.Errorf("%d different ports were given", len(held))
	}
	for i := range 4 { // more than once through all of them
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			for range portsOfOne / 4 {
				if a := FreeAddress(t); held[a] {
					t.Fatalf("%s was given twice", a)
				}
			}
		})
	}
	if free, err := freePorts(portsOfOne); err == nil {
		t.Errorf("%d ports were found that are held", len(free))
	}
}
