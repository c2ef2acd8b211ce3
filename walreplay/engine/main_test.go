package engine

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets tests of real servers run side by side: they mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
